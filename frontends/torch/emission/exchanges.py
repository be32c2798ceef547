"""Emission of all-to-alls and messages, from one rank to another.

The idea: as many rows to each member are one all-to-all along a dim; other numbers of rows are
XLA's ragged one, whose offsets at the receivers are assumed.  A message is a permute of one pair.

    all_to_all_list(emitter, inputs, outputs)
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from flint.errors import FlintError
from flint.frontends.torch.emission.emitter import Emitter, flat, numbers, write_parts
from flint.frontends.torch.lowerings import operations as build
from flint.frontends.torch.lowerings.operations import Value
from flint.frontends.torch.recording.recording import Op, View


def all_to_all(emitter: Emitter, inputs: list[View], outputs: list[View]) -> None:
    """One tensor along dim 0, into another."""
    (source,), (out,) = inputs, outputs
    value = emitter.read(source)
    received, sent = _splits(emitter.op, source, out, emitter.size)
    if len(set(sent)) <= 1 and len(set(received)) <= 1:
        fits = source.shape and source.shape == out.shape and not source.shape[0] % emitter.size
        moved = emitter.all_to_all(value if fits else flat(value))
        emitter.write(out, build.reshape(moved, out.shape))
    else:
        emitter.write(out, _ragged(emitter, value, out, sent, received))


def _ragged(
    emitter: Emitter, value: Value, out: View, sent: Sequence[int], received: Sequence[int]
) -> Value:
    emitter.among.warnings["uneven all-to-all: offsets at the receivers assumed"] += 1
    return emitter.ragged_all_to_all(value, out, sent, received)


def _splits(op: Op, source: View, out: View, size: int) -> tuple[list[int], list[int]]:
    """Rows of dim 0 that an all-to-all of one tensor receives from and sends to each member.

    Args:
        op: ``c10d.alltoall_base_`` or a functional ``all_to_all_single``.
        source, out: its tensors.
        size: of its group.
    """
    given = op.args[3:5] if op.name.startswith("c10d.") else op.args[1:3]
    received, sent = (
        list(rows) if rows else [view.shape[0] // size if view.shape else 0] * size
        for view, rows in zip((out, source), given, strict=True)
    )
    return received, sent


def all_to_all_list(emitter: Emitter, inputs: list[View], outputs: list[View]) -> None:
    """A tensor to each member, and one from each."""
    sent = [math.prod(view.shape) for view in inputs]
    received = [math.prod(view.shape) for view in outputs]
    value = build.concatenate([flat(emitter.read(view)) for view in inputs], 0)
    if len(set(sent)) == 1 and sent == received:
        moved = emitter.all_to_all(value)
    else:
        whole = View(-1, 0, (sum(received),), (1,), outputs[0].dtype)
        moved = _ragged(emitter, value, whole, sent, received)
    write_parts(emitter, moved, outputs)


def shard_dim_all_to_all(emitter: Emitter, inputs: list[View], outputs: list[View]) -> None:
    """DTensor's change of the dim that is sharded."""
    gather_dim, shard_dim = numbers(emitter.op)[:2]
    (source,), (out,) = inputs, outputs
    rank = len(source.shape)
    value = emitter.all_to_all(emitter.read(source), shard_dim % rank, gather_dim % rank)
    emitter.write(out, build.reshape(value, out.shape))


def send(emitter: Emitter, inputs: list[View], _: list[View]) -> None:
    """A message from this rank."""
    for view in inputs:
        emitter.permute(emitter.read(view), emitter.among.recording.rank, _peer(emitter))


def receive(emitter: Emitter, _: list[View], outputs: list[View]) -> None:
    """A message to this rank."""
    for view in outputs:
        nothing = build.constant(0, view.shape, view.dtype)
        emitter.write(view, emitter.permute(nothing, _peer(emitter), emitter.among.recording.rank))


def _peer(emitter: Emitter) -> int:
    if emitter.op.peer < 0:
        raise FlintError("the recording does not name the rank at the other end")
    return emitter.op.peer
