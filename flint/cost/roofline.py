"""Roofline: how long a node takes on an accelerator, for all nodes at once.

The idea: a kernel takes as long as the slowest of its units and its memory traffic, plus what
launching it costs.  Matrix, vector and function units work in parallel; the work of each is added
up over element types, each at its own peak rate:

    unit    = sum over dtypes of FLOPs / peak(unit, dtype)
    seconds = max(matmul, vector, transcendental, bytes / bandwidth) + launch overhead

The model is that of Williams, Waterman and Patterson, "Roofline: an insightful visual performance
model", CACM 52(4), 2009.  It is a lower bound: no kernel reaches the peaks.

    items = graph.work_flops / rate_table(accelerator)[graph.work_unit, graph.work_dtype]
    arithmetic = slowest_unit(graph, items)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from flint.cost.hardware import Accelerator, System
from flint.graph.graph import WorkloadGraph
from flint.graph.tensor_types import DTYPE_BITS, DTYPES, EXACT
from flint.graph.work import Unit
from flint.mesh.ragged import row_of_entry

Seconds = NDArray[np.float64]


def as_measured(graph: WorkloadGraph, seconds: Seconds) -> Seconds:
    """``seconds`` of each node, with measured times in place of modelled ones."""
    if not (graph.work_unit == Unit.MEASURED).any():
        return seconds
    measured = graph.measured_by_node()
    return np.where(measured >= 0, measured * 1e-9, seconds)


def slowest_unit(graph: WorkloadGraph, item_seconds: Seconds) -> Seconds:
    """Seconds of each node's busiest unit, shape [nodes].

    Args:
        graph: the nodes.
        item_seconds: seconds of each work item on its unit, shape [items].
    """
    owner = row_of_entry(graph.work_ptr)
    place = owner * len(Unit) + graph.work_unit
    busy = np.bincount(place, weights=item_seconds, minlength=len(graph) * len(Unit))
    slowest: Seconds = busy.reshape(len(graph), len(Unit)).max(axis=1, initial=0.0)
    return slowest


def copy_seconds(moved: NDArray[np.int64], system: System) -> Seconds:
    """Seconds of local copies that read and write ``moved`` bytes together."""
    accelerator = system.accelerator
    return moved / accelerator.memory_bandwidth + accelerator.launch_overhead


def rate_table(accelerator: Accelerator) -> Seconds:
    """Operations per second by unit and dtype code, shape [units, dtypes]."""
    table = np.empty((len(Unit), len(DTYPES)))
    for code, dtype in enumerate(DTYPES):
        for unit in (Unit.MATMUL, Unit.VECTOR):
            table[unit, code] = computed_as(accelerator, unit, dtype).rate
        table[Unit.TRANSCENDENTAL, code] = accelerator.transcendental
        table[Unit.MEASURED :, code] = np.inf  # no arithmetic
    return table


def type_efficiency(accelerator: Accelerator) -> Seconds:
    """Share of the attainable rate that products of each dtype code reach, shape [dtypes]."""
    names = (computed_as(accelerator, Unit.MATMUL, dtype).dtype for dtype in DTYPES)
    return np.array([accelerator.efficiency.get(name, 1.0) for name in names])


@dataclass(frozen=True, slots=True)
class Computed:
    """How operations on an element type are computed.

    Attributes:
        unit: what computes them.
        dtype: the type under which the description lists it.
        rate: operations per second.
    """

    unit: Unit
    dtype: str
    rate: float


def computed_as(accelerator: Accelerator, unit: Unit, dtype: str) -> Computed:
    """The unit and the listed type that compute operations on ``dtype``.

    A type that is not listed is computed in the next listed type that can represent its values: on
    a matrix unit, narrow floats in wider floats and narrow integers in wider integers or else in
    floats (bf16 and f16 represent eight bits exactly; sixteen are too many for f32, which matrix
    units round, as to TF32). Vector units do what matrix units cannot.  A product of complex
    numbers is four of their parts.

    Args:
        accelerator: the device.
        unit: ``MATMUL`` or ``VECTOR``.
        dtype: element type.
    """
    if unit == Unit.MATMUL and dtype == EXACT and _rounds(accelerator):
        return Computed(Unit.VECTOR, "f32", accelerator.vector["f32"])
    if unit == Unit.MATMUL:
        for name in (dtype, *_wider(dtype), *_FLOATS_FOR_INTEGERS.get(dtype, ())):
            if name in accelerator.matmul:
                rate = accelerator.matmul[name] / _products(dtype, name)
                return Computed(Unit.MATMUL, name, rate)
    rates = accelerator.vector
    name = next((name for name in (dtype, *_wider(dtype)) if name in rates), "f32")
    products = _products(dtype, name) if unit == Unit.MATMUL else 1
    return Computed(Unit.VECTOR, name, rates[name] / products)


def _rounds(accelerator: Accelerator) -> bool:
    """Whether matrix units have f32 only as TF32."""
    rates = accelerator.matmul
    return "tf32" in rates and rates.get("f32", rates["tf32"]) == rates["tf32"]


def _products(dtype: str, name: str) -> int:
    """How many multiplications and additions in the type ``name`` one in ``dtype`` is."""
    return 4 if dtype.startswith("complex") and name != dtype else 1


#: Floats of matrix units that represent all values of an integer type, the narrowest first.
_FLOATS_FOR_INTEGERS: Final = dict.fromkeys(
    ("i1", "i2", "i4", "i8", "ui2", "ui4", "ui8"), ("bf16", "f16", "f32")
)


#: Types for products with a scale per block without units for them: scales are multiplied in first.
#: Units for fewer than 8 bits have no other products.
_UNSCALED: Final = {"mxf8": ("bf16", "f16", "f32"), "mxf4": ("f4", "bf16", "f16", "f32")}


def family_of(dtype: str) -> str:
    """The name of narrow floats of any format in descriptions (``f8`` for ``f8E4M3FN``), else the
    type itself.
    """
    return dtype[:2] if dtype[2:3] == "E" else dtype


def _wider(dtype: str) -> tuple[str, ...]:
    if dtype in _UNSCALED:
        return _UNSCALED[dtype]
    if dtype.startswith("complex"):
        return ("f64",) if "f64" in dtype else ("f32",)
    family = family_of(dtype)
    if family != dtype:
        return (*dict.fromkeys((family, "f8")), "bf16", "f16", "f32")
    if dtype.startswith(("i", "ui")):
        bits = DTYPE_BITS[dtype]
        wider = tuple(f"i{width}" for width in (4, 8, 16, 32, 64) if width >= bits)
        return (*wider, "i32")
    return ("f32",) if dtype in ("bf16", "f16", EXACT) else ()
