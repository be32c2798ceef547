"""Sequences of different lengths, one after another, and padded: nested tensors of jagged layout.

``offsets`` gives the row at which each sequence begins, and the end of the last one.
"""

from __future__ import annotations

from typing import Any

from flint.frontends.torch.lowerings import operations as op
from flint.frontends.torch.lowerings.bags import bags_of
from flint.frontends.torch.lowerings.calls import Call, Unsupported
from flint.frontends.torch.lowerings.operations import Value
from flint.frontends.torch.lowerings.table import lowers


@lowers("aten._jagged_to_padded_dense_forward")
def _padded(
    call: Call, values: Any, offsets: Any, max_lengths: Any, padding_value: float = 0.0
) -> Value:
    """Row i of sequence b at [b, i], and a number behind its last one."""
    begins, (sequences, length) = _only(call, offsets), call.shape[:2]
    places = (sequences, length)
    ends = op.broadcast(op.slice_dim(begins, 0, 1, sequences + 1), places, [0])
    row = op.broadcast(op.slice_dim(begins, 0, 0, sequences), places, [0])
    row = op.add(row, op.iota(places, 1))
    index = op.reshape(op.minimum(row, op.like(max(values.shape[0] - 1, 0), row)), (*places, 1))
    found = op.gather(values.value, index, [0])
    within = op.broadcast(op.compare("LT", row, ends), call.shape, [0, 1])
    return op.select(within, found, op.like(padding_value, found))


@lowers("aten._padded_dense_to_jagged_forward")
def _without_padding(call: Call, dense: Any, offsets: Any, total_L: Any = None) -> Value:
    """The rows of sequences, without those behind their ends."""
    begins, rows = _only(call, offsets), call.shape[0]
    sequence = bags_of(offsets[0], rows)
    place = op.subtract(op.iota((rows,), 0), op.take(begins, sequence))
    index = op.concatenate([op.reshape(item, (rows, 1)) for item in (sequence, place)], 1)
    return op.gather(dense.value, index, [0, 1])


def _only(call: Call, offsets: Any) -> Value:
    if len(offsets) != 1:
        raise Unsupported(f"{call.name} of several jagged dims")
    return op.convert(offsets[0].value, "int64")
