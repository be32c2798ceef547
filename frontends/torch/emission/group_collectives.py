"""Reductions, gathers and broadcasts: what all ranks of a group make of each other's tensors.

The idea: the in-place ops of ``c10d`` and the functional ones differ in where their tensors stand;
what torch lays out otherwise than StableHLO (lists of outputs, flat buffers, several tensors in one
call) is reshaped around the collective, which costs nothing.

    all_gather_lists(emitter)
"""

from __future__ import annotations

import math

from flint.frontends.torch.emission.emitter import Emitter, flat, starts
from flint.frontends.torch.lowerings import operations as build
from flint.frontends.torch.recording.recording import View, views_in


def all_reduce(emitter: Emitter) -> None:
    """As fresh tensors, or in place where there are none."""
    views = emitter.views(0)
    values = emitter.all_reduce([emitter.read(view) for view in views])
    for view, value in zip(emitter.results() or views, values, strict=True):
        emitter.write(view, value)


def all_reduce_in_place(emitter: Emitter) -> None:
    """Into the tensors that are reduced."""
    views = emitter.views(0)
    values = emitter.all_reduce([emitter.read(view) for view in views])
    for view, value in zip(views, values, strict=True):
        emitter.write(view, value)


def _broadcast_in_place(emitter: Emitter) -> None:
    (view,) = emitter.views(0)
    emitter.write(view, emitter.broadcast(emitter.read(view), emitter.root()))


def broadcast(emitter: Emitter) -> None:
    """In place, or as a fresh tensor."""
    if emitter.op.name.startswith("c10d."):
        return _broadcast_in_place(emitter)
    (view,) = emitter.views(0)
    value = emitter.broadcast(emitter.read(view), emitter.root())
    for result in emitter.results() or [view]:
        emitter.write(result, value)
    return None


def _gather_into(emitter: Emitter, inputs: list[View], outputs: list[View]) -> None:
    values = []
    for view, out in zip(inputs, outputs, strict=True):
        value = emitter.read(view)
        fits = view.shape and out.shape == (view.shape[0] * emitter.size, *view.shape[1:])
        values.append(value if fits else flat(value))
    for out, value in zip(outputs, emitter.all_gather(values), strict=True):
        emitter.write(out, build.reshape(value, out.shape))


def all_gather_base(emitter: Emitter) -> None:
    """Along dim 0, into tensors that are there."""
    _gather_into(emitter, emitter.views(1), emitter.views(0))


def all_gather_functional(emitter: Emitter) -> None:
    """Along dim 0, as fresh tensors or into ``out``."""
    out = list(views_in(emitter.op.kwargs.get("out"))) or emitter.results()
    _gather_into(emitter, emitter.views(0), out)


def all_gather_lists(emitter: Emitter) -> None:
    """Outputs per rank in lists of their own."""
    (source,) = emitter.views(1)
    outputs = emitter.views(0)
    value = emitter.read(source)
    if len({math.prod(out.shape) for out in outputs}) > 1:
        # Of parts of several sizes each is broadcast by its owner, as NCCL's process group does.
        for root, out in enumerate(outputs):
            own = emitter.ranks()[root] == emitter.among.recording.rank
            part = value if own else build.constant(0, out.shape, out.dtype)
            emitter.write(out, emitter.broadcast(build.reshape(part, out.shape), root))
        return
    (gathered,) = emitter.all_gather([flat(value)])
    count = math.prod(source.shape)
    for at, out in enumerate(outputs):
        part = build.slice_dim(gathered, 0, at * count, (at + 1) * count)
        emitter.write(out, build.reshape(part, out.shape))


def all_gather_coalesced(emitter: Emitter) -> None:
    """Several tensors of every rank, in a list per rank, by one communication."""
    sources, outputs = emitter.views(1), emitter.views(0)
    parts = [flat(emitter.read(source)) for source in sources]
    (gathered,) = emitter.all_gather([build.concatenate(parts, 0)])
    for out, start in zip(outputs, starts([math.prod(o.shape) for o in outputs]), strict=True):
        part = build.slice_dim(gathered, 0, start, start + math.prod(out.shape))
        emitter.write(out, build.reshape(part, out.shape))


def _scatter_into(emitter: Emitter, inputs: list[View], outputs: list[View]) -> None:
    if len(inputs) == 1:
        view, out = inputs[0], outputs[0]
        value = emitter.read(view)
        fits = view.shape and view.shape == (out.shape[0] * emitter.size, *out.shape[1:])
        reduced = emitter.reduce_scatter(value if fits else flat(value))
        emitter.write(out, build.reshape(reduced, out.shape))
        return
    # Several tensors in one call are one communication: the shares of each rank side by side.
    rows = [
        build.reshape(emitter.read(view), (emitter.size, math.prod(out.shape)))
        for view, out in zip(inputs, outputs, strict=True)
    ]
    reduced = emitter.reduce_scatter(build.concatenate(rows, 1))
    firsts = starts([math.prod(out.shape) for out in outputs])
    for out, start in zip(outputs, firsts, strict=True):
        part = build.slice_dim(reduced, 1, start, start + math.prod(out.shape))
        emitter.write(out, build.reshape(part, out.shape))


def reduce_scatter_base(emitter: Emitter) -> None:
    """Along dim 0, into tensors that are there."""
    _scatter_into(emitter, emitter.views(1), emitter.views(0))


def reduce_scatter_functional(emitter: Emitter) -> None:
    """Also the coalesced one, whose name both namespaces have."""
    if emitter.op.name.startswith("c10d."):
        return reduce_scatter_base(emitter)
    out = list(views_in(emitter.op.kwargs.get("out"))) or emitter.results()
    return _scatter_into(emitter, emitter.views(0), out)


def reduce_scatter_lists(emitter: Emitter) -> None:
    """A tensor of each member's, of which one is kept."""
    (out,) = emitter.views(0)
    parts = [flat(emitter.read(view)) for view in emitter.views(1)]
    reduced = emitter.reduce_scatter(build.concatenate(parts, 0))
    emitter.write(out, build.reshape(reduced, out.shape))


def reduce(emitter: Emitter) -> None:
    """To one rank: an all-reduce, which is what the other ranks' values may be taken for."""
    emitter.among.warnings["reduce to one rank written as an all-reduce"] += 1
    all_reduce_in_place(emitter)
