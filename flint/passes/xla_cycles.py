"""Cost of arithmetic as XLA's GPU compiler counts it when it decides what to recompute.

The idea: XLA has measured how many clock cycles an op takes per element.  Functions of the special
units take ten to a hundred times as many as an addition, so that a tanh is written for its readers
where a product would be computed again.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from flint.graph.graph import WorkloadGraph
from flint.graph.tensor_types import DTYPES
from flint.graph.work import Unit
from flint.mesh.ragged import row_of_entry

#: Clock cycles of an operation in f32 on an H100, from XLA's profiles
#: (``hlo_op_profiles_data.h``): an addition; an exponential or a reciprocal root; other functions.
_CYCLES: Final = {Unit.VECTOR: 7, Unit.TRANSCENDENTAL: 79}
_CYCLES_OF: Final = {
    "log": 166, "cbrt": 178, "exponential_minus_one": 190, "log_plus_one": 229, "atan2": 431,
    "tanh": 467, "power": 510, "sine": 958, "cosine": 978,
}  # fmt: skip
#: Bytes that memory moves in a cycle of one operation: 3.35 TB/s by 66.9 TFLOP/s.
CYCLE_BYTES: Final = 0.05


def computing(graph: WorkloadGraph) -> NDArray[np.float64]:
    """Cost of each node's arithmetic, in bytes that memory moves in that time, shape [nodes].

    An operation on indices or masks takes a cycle.
    """
    cycles = np.zeros(len(_CYCLES) + 8)
    for unit, number in _CYCLES.items():
        cycles[unit] = number
    whole = np.array(["f" not in name for name in DTYPES])  # bf16, f8E4M3FN, complex<f32> ...
    owner = row_of_entry(graph.work_ptr)
    known = np.array([_CYCLES_OF.get(name, 0) for name in graph.tables.ops])[graph.op][owner]
    each = np.where(whole[graph.work_dtype], 1, np.maximum(cycles[graph.work_unit], known))
    return np.bincount(owner, graph.work_flops * each * CYCLE_BYTES, len(graph)).astype(np.float64)
