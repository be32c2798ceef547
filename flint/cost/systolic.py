"""Systolic arrays: SCALE-Sim's model of matrix products, as an estimator of kernels.

The idea: an array of R x C multiply-add cells holds one operand and streams the others through, so
a product is cut into folds that fill the array.  With S_r and S_c the dims along rows and columns
and T the dim that streams,

    dataflow            S_r  S_c  T     cycles of a fold
    output stationary   m    n    k     R + C + T - 2
    weight stationary   k    n    m     2 R + C + T - 2       R cycles to load the weights
    input stationary    k    m    n     2 R + C + T - 2       R cycles to load the inputs

    cycles = ceil(S_r / R) ceil(S_c / C) cycles of a fold - 1

which is what SCALE-Sim counts where memory is fast enough (Samajdar et al., "A Systematic
Methodology for Characterizing Scalability of DNN Accelerators using SCALE-Sim", ISPASS 2020).
Several arrays share the folds; if there are fewer folds than arrays, the streaming dim is cut.

A description may include an array's SRAMs and their interfaces to memory.  Each SRAM is a double
buffer: an operand that later folds use again and that is larger than half its SRAM is read again,
and the partial sums of folds over k are written each time. A product then takes as long as its
folds or as its busiest interface, whichever is longer; the first halves are filled before it
begins. Without SRAMs, memory is the device's, as for any kernel.

    seconds = systolic_seconds(graph, load_system("tpu-v4-pod"))
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from flint.cost.hardware import Accelerator, Scratchpads, System, SystolicArray
from flint.cost.kernels import seconds_with
from flint.cost.roofline import Seconds
from flint.errors import UsageError
from flint.graph.graph import WorkloadGraph
from flint.graph.tensor_types import DTYPE_BITS, DTYPES

Sizes = NDArray[np.float64]

#: Dataflow -> which of (b, m, n, k) are along rows and columns of the array, and which streams.
_MAPPING: Final = {"os": (1, 2, 3), "ws": (3, 2, 1), "is": (3, 1, 2)}


def systolic_seconds(graph: WorkloadGraph, system: System) -> Seconds:
    """Seconds per node: products on the system's array, the rest by the kernel model.

    Raises:
        UsageError: the system's accelerator describes no array.
    """
    accelerator = system.accelerator
    array = accelerator.systolic
    if array is None:
        raise UsageError(
            f"{accelerator.name} describes no systolic array: add a table [systolic] to its "
            "description (docs/simulation.md), or choose another estimator"
        )
    return seconds_with(graph, accelerator, _stretch)


def _stretch(
    graph: WorkloadGraph, sized: NDArray[np.bool_], rates: Seconds, accelerator: Accelerator
) -> Seconds:
    """How much longer than at the peak products take (see ``flint.cost.kernels.Products``)."""
    assert accelerator.systolic is not None
    widths = np.array([DTYPE_BITS[name] / 8 for name in DTYPES])
    sizes = np.array(graph.tables.gemms, np.float64).reshape(-1, 4)
    sizes = np.maximum(sizes[graph.work_gemm[sized]], 1.0)
    seconds = product_seconds(sizes, widths[graph.work_dtype[sized]], accelerator.systolic)
    stretch: Seconds = np.maximum(seconds * rates / (2 * sizes.prod(axis=1)), 1.0)
    return stretch


def product_seconds(sizes: Sizes, width: Sizes, array: SystolicArray) -> Seconds:
    """Seconds of products, shape [products].

    Args:
        sizes: (batch, m, n, k), shape [products, 4].
        width: bytes per element, shape [products].
        array: what computes them.
    """
    seconds: Seconds = compute_cycles(sizes, array) / array.clock
    if (memory := array.memory) is not None:
        ahead = np.array([memory.ifmap / 2, memory.filter / 2, memory.ofmap])
        traffic = traffic_elements(sizes, width, array, memory) * width[:, None]
        seconds = np.maximum(seconds, ((traffic - ahead) / memory.bandwidth).max(axis=1))
    return seconds


def compute_cycles(sizes: Sizes, array: SystolicArray) -> Sizes:
    """Cycles of products whose operands are always there, shape [products].

    For one array and a batch of one this is the number that SCALE-Sim reports; products of a batch
    run one after another.
    """
    batch = sizes[:, 0]
    rows, columns, streamed = (sizes[:, dim] for dim in _MAPPING[array.dataflow])
    folds = batch * np.ceil(rows / array.rows) * np.ceil(columns / array.columns)
    cuts = np.clip(array.arrays // folds, 1, streamed)
    waves = np.ceil(folds * cuts / array.arrays)
    load = 0 if array.dataflow == "os" else array.rows
    fold = load + array.rows + array.columns + np.ceil(streamed / cuts) - 2
    cycles: Sizes = waves * fold - np.ceil(batch / array.arrays)
    return cycles


def traffic_elements(
    sizes: Sizes, width: Sizes, array: SystolicArray, memory: Scratchpads
) -> Sizes:
    """Elements that pass between memory and the SRAMs of inputs, filters, outputs.

    Args:
        sizes: (batch, m, n, k), shape [products, 4].
        width: bytes per element, shape [products].
        array: what computes them.
        memory: its SRAMs.

    Returns:
        Shape [products, 3].
    """
    batch, m, n, k = sizes.T
    rows, columns, _ = (sizes[:, dim] for dim in _MAPPING[array.dataflow])
    down, along = np.ceil(rows / array.rows), np.ceil(columns / array.columns)

    def again(total: Sizes, in_use: Sizes, times: Sizes, sram: int) -> Sizes:
        return np.where(in_use * width <= sram / 2, total, total * times)

    inputs, filters, outputs = m * k, k * n, m * n
    if array.dataflow == "os":
        slices = k * np.minimum(columns, array.columns)
        inputs = again(inputs, inputs, along, memory.ifmap)
        filters = again(filters, slices, down, memory.filter)
    elif array.dataflow == "ws":
        inputs = again(inputs, inputs, along, memory.ifmap)
        outputs = outputs * down
    else:
        filters = again(filters, filters, along, memory.filter)
        outputs = outputs * down
    elements: Sizes = batch[:, None] * np.stack([inputs, filters, outputs], axis=1)
    return elements
