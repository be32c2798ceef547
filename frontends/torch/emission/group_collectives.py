"""Emission of reductions, gathers, broadcasts and barriers among the ranks of a group.

The idea: where torch's layout differs from StableHLO's (lists of outputs, flat buffers, several
tensors in one call), tensors are reshaped around the collective, which costs nothing.  Gathers to a
root and scatters from a root become messages, as in NCCL's process group.

    all_gather_list(emitter, [input], outputs)
"""

from __future__ import annotations

import functools
import math

from flint.frontends.torch.emission.emitter import Emitter, flat, write_parts
from flint.frontends.torch.lowerings import operations as build
from flint.frontends.torch.recording.recording import View

_REDUCE = "reduce to one rank written as an all-reduce"


def all_reduce(emitter: Emitter, inputs: list[View], outputs: list[View]) -> None:
    """An all-reduce of all tensors in one collective."""
    values = emitter.all_reduce([emitter.read(view) for view in inputs])
    for view, value in zip(outputs, values, strict=True):
        emitter.write(view, value)


def reduce(emitter: Emitter, inputs: list[View], outputs: list[View]) -> None:
    """A reduce to one rank, written as an all-reduce: the other ranks' results are not used."""
    emitter.among.warnings[_REDUCE] += 1
    all_reduce(emitter, inputs, outputs)


def broadcast(emitter: Emitter, inputs: list[View], outputs: list[View]) -> None:
    """From the root."""
    (view,) = inputs
    value = emitter.broadcast(emitter.read(view), emitter.root())
    for output in outputs:
        emitter.write(output, value)


def all_gather(emitter: Emitter, inputs: list[View], outputs: list[View]) -> None:
    """Along dim 0."""
    values = []
    for view, out in zip(inputs, outputs, strict=True):
        value = emitter.read(view)
        fits = view.shape and out.shape == (view.shape[0] * emitter.size, *view.shape[1:])
        values.append(value if fits else flat(value))
    for out, value in zip(outputs, emitter.all_gather(values), strict=True):
        emitter.write(out, build.reshape(value, out.shape))


def all_gather_list(emitter: Emitter, inputs: list[View], outputs: list[View]) -> None:
    """Outputs per rank, each rank's in a separate list."""
    (source,) = inputs
    value = emitter.read(source)
    if len({math.prod(out.shape) for out in outputs}) > 1:
        # Parts of different sizes are broadcast by their owners, as in NCCL's process group.
        for root, out in enumerate(outputs):
            own = emitter.ranks()[root] == emitter.among.recording.rank
            part = value if own else build.constant(0, out.shape, out.dtype)
            emitter.write(out, emitter.broadcast(build.reshape(part, out.shape), root))
        return
    (gathered,) = emitter.all_gather([flat(value)])
    write_parts(emitter, gathered, outputs)


def all_gather_coalesced(emitter: Emitter, inputs: list[View], outputs: list[View]) -> None:
    """Several tensors of every rank, in a list per rank, by one communication."""
    parts = [flat(emitter.read(source)) for source in inputs]
    (gathered,) = emitter.all_gather([build.concatenate(parts, 0)])
    write_parts(emitter, gathered, outputs)


def reduce_scatter(emitter: Emitter, inputs: list[View], outputs: list[View]) -> None:
    """Along dim 0."""
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
    write_parts(emitter, emitter.reduce_scatter(build.concatenate(rows, 1)), outputs, dim=1)


def reduce_scatter_list(emitter: Emitter, inputs: list[View], outputs: list[View]) -> None:
    """A tensor from each member; each rank keeps one."""
    (out,) = outputs
    if len({math.prod(view.shape) for view in inputs}) > 1:
        # Parts of different sizes are reduced one by one, as in NCCL's process group.
        emitter.among.warnings[_REDUCE] += len(inputs)
        for owner, view in zip(emitter.ranks(), inputs, strict=True):
            (value,) = emitter.all_reduce([emitter.read(view)])
            if owner == emitter.among.recording.rank:
                emitter.write(out, build.reshape(value, out.shape))
        return
    parts = [flat(emitter.read(view)) for view in inputs]
    reduced = emitter.reduce_scatter(build.concatenate(parts, 0))
    emitter.write(out, build.reshape(reduced, out.shape))


def gather(emitter: Emitter, inputs: list[View], outputs: list[View]) -> None:
    """A message from every other member to the root, as in NCCL's process group.

    Every member's program has all messages, so that members that do the same share one program.
    """
    (source,) = inputs
    root = emitter.root()
    value = emitter.read(source)
    for at in range(len(emitter.ranks())):
        part = value if at == root else emitter.permute_within(value, at, root)
        if outputs:
            emitter.write(outputs[at], build.reshape(part, outputs[at].shape))


def scatter(emitter: Emitter, inputs: list[View], outputs: list[View]) -> None:
    """A message from the root to every other member; all of them in every member's program.

    A permute gives zeros to a member that receives nothing, so the sum is what a member received.
    """
    (out,) = outputs
    ranks, root = emitter.ranks(), emitter.root()
    nothing = build.constant(0, out.shape, out.dtype)
    values = [emitter.read(part) for part in inputs] or [nothing] * len(ranks)
    combine = build.or_ if out.dtype == "bool" else build.add
    received = [
        emitter.permute_within(value, root, at) for at, value in enumerate(values) if at != root
    ]
    if emitter.among.recording.rank == ranks[root]:
        received = [values[root]]
    emitter.write(out, build.reshape(functools.reduce(combine, received), out.shape))


def barrier(emitter: Emitter, *_: list[View]) -> None:
    """NCCL's process group implements a barrier as an all-reduce of one element."""
    emitter.all_reduce([build.constant(0, (1,), "float32")], "add")
