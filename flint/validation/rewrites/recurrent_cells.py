"""The ops that the CPU runs in place of a kernel for a step's cell of a recurrent layer.

``GRUCell`` and ``LSTMCell`` in aten/src/ATen/native/RNN.cpp; autograd derives them one by one.

    needed, optional = CELLS["_thnn_fused_gru_cell"]
    ops(needed, rows=4, hidden=64)      # how many of each name and shape
"""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from flint.validation.rewrites.cpu_substitutes import Key, key_of


class Op(NamedTuple):
    """A number of ops of a name on tensors (rows, parts x hidden), or (parts x hidden,)."""

    name: str
    times: int
    parts: int = 1
    flat: bool = False


def ops(table: tuple[Op, ...], rows: int, hidden: int) -> Counter[Key]:
    """How many ops a table has, by name and shape."""
    wanted: Counter[Key] = Counter()
    for name, times, parts, flat in table:
        wanted[key_of(name, (parts * hidden,) if flat else (rows, parts * hidden))] += times
    return wanted


def _backward(parts: int, *required: Op) -> tuple[tuple[Op, ...], tuple[Op, ...]]:
    """Ops that a cell's gradient needs, and optional ones: gradients of biases, and their sums."""
    gates = Op("sum", 2, parts), Op("add", 2, parts, flat=True), Op("cat", 2)
    return required, (*gates, Op("add", 4), Op("mul", 1))


_LSTM_BACKWARD = _backward(4, Op("mul", 5), Op("sigmoid_backward", 3), Op("tanh_backward", 2))
#: A kernel for a step's cell -> the ops that the CPU must run in its place, and those it may
#: (``GRUCell`` and ``LSTMCell`` in RNN.cpp; autograd derives them one by one).
CELLS: dict[str, tuple[tuple[Op, ...], tuple[Op, ...]]] = {
    "_thnn_fused_gru_cell": (
        (
            Op("add", 4), Op("sigmoid", 2), Op("mul", 2), Op("tanh", 1), Op("sub", 1),
        ),
        (),
    ),
    "_thnn_fused_lstm_cell": (
        (
            Op("add", 1, 4), Op("add", 1), Op("sigmoid", 3), Op("mul", 3), Op("tanh", 2),
        ),
        (),
    ),
    "_thnn_fused_gru_cell_backward": _backward(
        3, Op("mul", 3), Op("neg", 1), Op("sigmoid_backward", 2), Op("tanh_backward", 1)
    ),
    "_thnn_fused_lstm_cell_backward": _LSTM_BACKWARD,
    "_thnn_fused_lstm_cell_backward_impl": _LSTM_BACKWARD,
}  # fmt: skip
