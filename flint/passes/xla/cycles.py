"""Cost of arithmetic as XLA's GPU compiler counts it when it decides what to fuse.

The idea: XLA has measured how many clock cycles an op takes per element.  Functions of the special
units take ten to a hundred times as many as an addition, so that a tanh is written for its readers
where a product would be computed again.  What was not measured takes three cycles.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from flint.graph.graph import Form, NodeKind, WorkloadGraph
from flint.graph.work import Role

_USUAL: Final = 3
#: Clock cycles of an op on an H100 by element type, from XLA's profiles
#: (``hlo_op_profiles_data.h``).  Functions of bf16 are computed in f32.
_F32: Final = {
    "add": 7, "subtract": 7, "multiply": 3, "divide": 19, "exponential": 79, "rsqrt": 75,
    "sqrt": 75, "log": 166, "cbrt": 178, "exponential_minus_one": 190, "log_plus_one": 229,
    "atan2": 431, "tanh": 467, "power": 510, "sine": 958, "cosine": 978,
    "logistic": 108, "erf": 250,
}  # fmt: skip
_F16: Final = {
    "add": 7, "subtract": 7, "multiply": 7, "divide": 43, "exponential": 102, "rsqrt": 95,
    "sqrt": 95, "log": 182, "cbrt": 201, "exponential_minus_one": 217, "log_plus_one": 245,
    "atan2": 451, "tanh": 502, "power": 526, "sine": 993, "cosine": 997,
}  # fmt: skip
_F64: Final = {
    "add": 15, "subtract": 15, "multiply": 15, "divide": 526, "exponential": 376, "rsqrt": 277,
    "sqrt": 332, "log": 815, "tanh": 431, "power": 2205,
}  # fmt: skip
_BF16: Final = {name: cycles for name, cycles in _F32.items() if cycles > 7}
_I32: Final = {"divide": 297, "remainder": 297, "power": 71}
_CYCLES: Final = {
    "f32": _F32, "f16": _F16, "f64": _F64, "bf16": _BF16, "i32": _I32,
    "ui32": {"divide": 122, "remainder": 122, "power": 71},
    "i64": {"multiply": 11, "divide": 685, "remainder": 685, "power": 253},
}  # fmt: skip
#: What a maximum and a minimum begin with: infinities, as the bits of an f64.
_INFINITE: Final = frozenset({(-(1 << 52),), (0x7FF << 52,)})
#: Cycles of a product by those of a quotient, in f32.
MULTIPLIED: Final = 3 / 19
#: Of a concatenation: a choice between operands; more if threads of a warp choose differently.
_CHOICE, _CHOICES, _WARP = 6, 400, 32


WINDOW: Final = "reduce_window"


def window_of(form: Form) -> int:
    """Elements of a window: the first third of its op's form."""
    return math.prod(form[: len(form) // 3])


def cycles_of(graph: WorkloadGraph) -> list[float]:
    """Cycles of each node's arithmetic on its whole result, or operand if it reduces [nodes]."""
    types = graph.tables.types
    entries = list(graph.tables.entries())
    found = [0.0] * len(graph)
    computes = (graph.kind == NodeKind.COMPUTE) & (np.diff(graph.result_ptr) > 0)
    for node in np.flatnonzero(computes).tolist():
        name, _, form = entries[graph.op[node]]
        made = types[graph.result_type[graph.result_ptr[node]]]
        operands = graph.operands_of(node).tolist()
        if name == WINDOW:
            each = _CYCLES.get(made.dtype, {}).get("add", _USUAL)
            found[node] = each * max(window_of(form) - 1, 0) * made.elements
        elif graph.role[node] == Role.REDUCTION or (name == "reduce" and operands):
            more = graph.type_of(operands[0]).elements - made.elements if operands else 0
            first = int(graph.producer[operands[-1]]) if operands else -1
            chooses = first >= 0 and entries[graph.op[first]][2] in _INFINITE
            cycles = _CYCLES.get(made.dtype, {}).get("add", _USUAL)
            found[node] = (_USUAL if chooses else cycles) * max(more, 0)
        elif graph.role[node] == Role.ELEMENTWISE:
            found[node] = _CYCLES.get(made.dtype, {}).get(name, _USUAL) * made.elements
        elif name == "concatenate" and operands:
            # A reshape that leaves no node may have given the operand another shape.
            dim = form[0] if form and form[0] < len(made.shape) else 0
            length = graph.type_of(operands[0]).elements * made.shape[dim] // made.elements
            split = dim > 0 and length % _WARP > 0
            found[node] = (_CHOICES if split else _CHOICE) * made.elements
    return found
