"""Products narrower than 16 bits, as training libraries run them, over a workload in bf16.

The idea: a recipe in f8 is the bf16 program with its linear products in f8 and additional casts. So
the same capture is timed with those products in the narrow type, and each also takes the time in
which its operands' casts move bytes.  Attention, and the head, stay unless the recipe says
otherwise.  Whatever is not in this page (f8 gathers, fewer bytes kept for the backward pass) stays
as in bf16.

    seconds = narrow(SCALINGS["tensorwise"], vocabulary=(128256,))(graph, system)

A value is cast once for every dim that products sum over: activations and weights for the forward
and for the backward pass, gradients for both products that they are in.  Products that share an
operand (queries, keys and values; gate and up) share its cast.  How many bytes that moves per
element follows from what the library's kernels do, not from times; first and again:

    tensorwise   read for the largest value, read again and written: 2 + 2 + 1; then 2 + 1
    rowwise      a row is read once, its largest value found and written on the chip: 2 + 1; along
                 the other dim largest values need a pass of their own: 2 + 2 + 1
    torchao      the same two as PyTorch's compiler makes them.  What sums along the other dim is
                 written transposed, by kernels at ``TURNING`` of the others' rate (a fast product
                 wants both operands with the sum in one piece).  Rowwise products of the backward
                 pass, without fast accumulation, are scaled by a kernel of their own: 2 + 2 for
                 each element of their results (``addmm_float8_unwrapped`` in its float8_ops.py).
                 Largest values along the other dim of at least ``WIDE`` columns for each
                 multiprocessor are found, and the values cast, by one kernel that goes down the
                 columns: 2 + 2 + 1 at ``DOWN`` of the rate
    eager        torchao's ``float8nocompile``, tensorwise: no compiler makes one of the casts that
                 products share.  Every product casts its operands: 2 for the largest value, then
                 2 + 1 by a kernel that writes another layout, at ``DOWN`` of the rate.  Such a
                 kernel writes both layouts of a gradient, 2 + 1 + 1, and of an input whose block
                 is not checkpointed; others are cast twice, first as they lie
    delayed      Transformer Engine writes the transpose in the same kernel: 2 + 1 + 1, at
                 ``TRANSPOSING`` of the bandwidth; then nothing
    frozen       delayed, of weights that are not trained: no product sums over tokens, nothing is
                 transposed (``columnwise=backward_needs_input`` in its ``module/linear.py``): 2 + 1
    delayed_xla  one kernel reads, finds the largest value and writes: 2 + 1; another transposes it,
                 as Hopper's products sum over what lies in one piece: 1 + 1
    static       XLA casts where the value is made and writes it beside: 1
    blocks       as rowwise, and a scale for every 32 (MXFP8, MXFP4) or 16 (NVFP4) elements; a block
                 lies in one row or column, so that both dims take one pass.  NVFP4's tensor has a
                 scale too, whose largest value takes a pass of its own (Transformer Engine): 2
    torchao nvfp4  Triton kernels that write both dims, of values turned by Hadamard's matrix,
                 rounded at random for gradients, in squares for weights (``nvfp4_linear.py`` at
                 cb76f29): bound by what they compute, not by what they move: ``HADAMARD``

Attention in f8 (Transformer Engine's ``fp8_dpa``) casts its operands, and the gradient of its
result: 2 + 2 + 1, with scales of earlier steps 2 + 1.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from flint.cost.classes import is_attention, named
from flint.cost.grouped import groups_of
from flint.cost.hardware import System
from flint.cost.kernels import Estimator, kernel_seconds
from flint.graph.graph import WorkloadGraph
from flint.graph.kinds import Phase
from flint.graph.tensor_types import DTYPE_CODE
from flint.graph.work import Unit
from flint.mesh.ragged import row_of_entry


@dataclass(frozen=True, slots=True)
class Scaling:
    """How a library multiplies narrow numbers.

    Attributes:
        dtype: of the products.
        first: bytes moved per element of a value that is cast.
        again: the same for each further dim that products sum over.
        gradients: of weights are narrow too.
        transposes: the kernel that casts writes the transpose too.
        rescaled: bytes moved per element of what the backward pass's products make.
        wide: in the place of ``again`` for a cast down ``WIDE`` columns for each multiprocessor or
            more; 0: as of others.
        gradient: as ``first``, of what the backward pass casts first; None: as ``first``.
        weight: the same of weights, which are what ``tokens`` are multiplied by.
        apart: every product casts its operands by itself; ``again`` is of what a forward product
            cast, and ``gradient`` has both layouts.
    """

    dtype: str
    first: float
    again: float
    gradients: bool = True
    transposes: bool = False
    rescaled: float = 0.0
    wide: float = 0.0
    gradient: float | None = None
    weight: float | None = None
    apart: bool = False


#: Maker -> share of the bandwidth that casts which write the transpose reach.  An H100 takes
#: 51.5 us for 16.8 M elements and 24.6 us for 9.4 M (NVIDIA/TransformerEngine, pull request 101),
#: an MI300X 54.7 us for 25.2 M and 39.5 us for 16.8 M (ROCm/TransformerEngine, pull request 89).
TRANSPOSING: Final = {"NVIDIA": 0.42, "AMD": 0.33}
#: Rate of Inductor's casts to f8 that write the transpose, over that of its other kernels beside
#: products in f8: 1.4 and 2.2 TB/s on an H100 (pytorch/pytorch, issue 133242).
TURNING: Final = 0.64
#: Columns for each multiprocessor from which Inductor reduces along them in one kernel
#: (``num_splits`` in PyTorch's ``_inductor/ir.py``), and the rate of such a kernel that writes the
#: transpose, over that of others: 0.6 to 0.7 and 2.0 to 2.2 TB/s on an H100, since it reads down
#: the columns (pytorch/pytorch, issue 149982).
WIDE: Final = 64
DOWN: Final = 0.31
#: Bytes that other kernels of a GB200 (5.92 TB/s) move while torchao's of NVFP4 cast an element:
#: of activations, gradients and weights.  What 2,048 x 28,672 take longer than 2,048 x 14,336
#: (its ``benchmarks/prototype/nvfp4_training/README.md`` at cb76f29): 14.3 us the largest values,
#: then 51.4 us rounding to nearest, 75.5 us at random; 108.5 us weights, 2 bytes for their largest.
HADAMARD: Final = tuple(
    us * 5.92e6 / (2048 * 14336) + more
    for us, more in ((14.3 + 51.4, 0.0), (14.3 + 75.5, 0.0), (108.5, 2.0))
)
#: ``float8nocompile``'s kernels that write another layout are taken to be as slow.  torchao's
#: benchmark of 16 rows and 4,096 x 4,096 in f32 (pull request 1497) takes 386 us: beside largest
#: values, the sum of gradients and 30 us of others, its two casts of the weight have 0.23 (an H100
#: of 700 W) or 0.39 (500 W) of the rate.
_EAGER: Final = Scaling(
    "f8E4M3FN", 2 + 4 / DOWN, 0, gradient=2 + 4 / DOWN, weight=2 + 3 / DOWN, apart=True
)
#: Rate of torchao's casts to MXFP8 that write the transpose, over that of others, 5.92 TB/s: on a
#: B200 939.5 M elements take 670.7 us (its ``prototype/moe_training/README.md``, dim 1).
DIM1: Final = 0.72
#: Name -> scaling.
SCALINGS: Final = {
    "tensorwise": Scaling("f8E4M3FN", 5, 3),
    "rowwise": Scaling("f8E4M3FN", 3, 5),
    "rowwise_gw_hp": Scaling("f8E4M3FN", 3, 5, gradients=False),
    "torchao tensorwise": Scaling("f8E4M3FN", 5, 3 / TURNING),
    "torchao rowwise": Scaling("f8E4M3FN", 3, 2 + 3 / TURNING, rescaled=4, wide=5 / DOWN),
    "torchao rowwise_gw_hp": Scaling("f8E4M3FN", 3, 2 + 3 / TURNING, gradients=False),
    "eager": replace(_EAGER, first=5, again=2 + 3 / DOWN),
    "eager, kept": _EAGER,
    "delayed": Scaling("f8E4M3FN", 4, 0, transposes=True),
    "delayed_frozen": Scaling("f8E4M3FN", 3, 3),
    "delayed_xla": Scaling("f8E4M3FN", 3, 2),
    "static": Scaling("f8E4M3FN", 1, 1),
    "mxfp8": Scaling("f8E4M3FN", 3 + 1 / 32, 3 + 1 / 32),
    "torchao mxfp8": Scaling("f8E4M3FN", 3 + 1 / 32, (3 + 1 / 32) / DIM1),
    "nvfp4": Scaling("f4E2M1FN", 4.5 + 1 / 16, 2.5 + 1 / 16),
    "torchao nvfp4": Scaling("f4E2M1FN", HADAMARD[0], 0, gradient=HADAMARD[1], weight=HADAMARD[2]),
    "mxfp4": Scaling("f4E2M1FN", 2.5 + 1 / 32, 2.5 + 1 / 32),
    "int8": Scaling("i8", 3, 3),
}


def narrow(
    scaling: Scaling,
    *,
    wide: Collection[int] = (),
    tokens: int = 0,
    grouped: bool | None = None,
    kept: bool = False,
    rows: int = 0,
    attention: bool = False,
    timed: Estimator = kernel_seconds,
) -> Estimator:
    """The estimator of kernels with their linear products in a narrow type.

    Args:
        scaling: how.
        wide: products with such a size stay: the vocabulary's.
        tokens: rows of a product, by which gradients of weights are known: they sum over them.
        grouped: only products of experts, or only others; None: both.
        kept: weights are kept in the narrow type: what ``tokens`` are multiplied by is not cast.
        rows: the same of the experts' products.
        attention: that is in f8, too; its operands and results are cast.
        timed: how kernels are timed.
    """

    def seconds(graph: WorkloadGraph, system: System) -> NDArray[np.float64]:
        items = _products(graph, scaling, set(wide), tokens)
        if grouped is not None:
            of_experts = np.isin(np.arange(len(items)), list(groups_of(graph)))
            items &= of_experts == grouped
        if not items.any():
            return timed(graph, system)
        dtypes = np.where(items, DTYPE_CODE[scaling.dtype], graph.work_dtype)
        attended = is_attention(graph) & attention
        scores = (graph.work_unit == Unit.MATMUL) & attended[row_of_entry(graph.work_ptr)]
        dtypes = np.where(scores, DTYPE_CODE["f8E4M3FN"], dtypes)
        found = timed(replace(graph, work_dtype=dtypes.astype(np.int8)), system)
        accelerator = system.accelerator
        share = accelerator.kernel.memory_efficiency
        if scaling.transposes:
            share = TRANSPOSING[accelerator.name.split()[0]]
        rate = accelerator.memory_bandwidth * share
        owner = row_of_entry(graph.work_ptr)[items]
        rows_of = {tokens, rows or tokens}
        columns = WIDE * accelerator.kernel.units
        cast = _cast(graph, scaling, items, rows_of if kept else (), rows_of, columns)
        found += np.bincount(owner, cast / rate, len(graph))
        whole = accelerator.memory_bandwidth * accelerator.kernel.memory_efficiency
        return found + _around(graph, attended) * (3 if scaling.transposes else 5) / whole

    return seconds


def _cast(
    graph: WorkloadGraph, scaling: Scaling, items: NDArray[np.bool_], tokens: Collection[int] = (),
    trained: Collection[int] = (), columns: float = math.inf,
) -> NDArray[np.float64]:  # fmt: skip
    """Bytes that casts of the products' operands move, shape [products].

    An operand is the value that has as many elements; where a kernel reads none, it is its own.
    What so many ``tokens`` are multiplied by, a weight, is there already; what ``trained`` are
    multiplied by is a weight, too.  A matrix of so many ``columns``, or more, is wide.
    """
    phases = [source.phase for source in graph.tables.sources]
    elements = [kind.elements for kind in graph.tables.types]
    owner = row_of_entry(graph.work_ptr)
    seen: dict[tuple[int, int], set[tuple[int, int]]] = {}
    found = []
    for item in np.flatnonzero(items).tolist():
        node = int(owner[item])
        b, m, n, k = graph.tables.gemms[int(graph.work_gemm[item])]
        b = max(1, min(b, round(float(graph.work_flops[item]) / (2 * m * n * k))))  # one of parts
        there = {int(v): elements[int(graph.value_type[v])] for v in graph.operands_of(node)}
        moved = 0.0
        for side, size in enumerate((b * m * k, b * k * n)):
            if side and m in tokens:
                continue
            value = next((v for v, count in there.items() if count == size), -1)
            there.pop(value, None)
            name = (value, 0) if value >= 0 else (~item, side)
            layouts = seen.setdefault(name, set())
            layout = (k, int(phases[int(graph.source[node])]))
            if scaling.apart:
                moved += _apart(scaling, layouts, layout[1], bool(side) and m in trained) * size
                layouts.add(layout)
            elif layout not in layouts:
                backward = layout[1] == Phase.BACKWARD
                weight = bool(side) and m in trained
                first = scaling.gradient if backward else None
                first = scaling.weight if weight else first
                first = scaling.first if first is None else first
                moved += (scaling.again if layouts else first) * size
                down = bool(layouts) if weight else backward and k in trained
                if scaling.wide and down and size >= columns * k:
                    moved += (scaling.wide - scaling.again) * size
                layouts.add(layout)
        if phases[int(graph.source[node])] == Phase.BACKWARD:
            moved += scaling.rescaled * b * m * n
        found.append(moved)
    return np.array(found)


def _apart(
    scaling: Scaling, layouts: Collection[tuple[int, int]], phase: int, weight: bool
) -> float:
    """Bytes for each element of an operand that its product casts by itself.

    Args:
        scaling: how.
        layouts: sizes that earlier products summed over, with their phases.
        phase: of the product.
        weight: the operand is one.
    """
    backward, earlier = phase == Phase.BACKWARD, {was for _, was in layouts}
    if backward and earlier:
        return 0.0 if earlier == {Phase.BACKWARD} else scaling.again
    found = scaling.weight if weight else scaling.gradient if backward else scaling.first
    return scaling.first if found is None else found


def _around(graph: WorkloadGraph, attended: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Elements that are cast for attention, shape [nodes]: its operands, or the gradient of its
    result, which is a backward pass's first operand; the others are in f8 since the forward pass.
    """
    elements = [kind.elements for kind in graph.tables.types]
    backward = named(graph, ("backward",))
    found = np.zeros(len(graph))
    for node in np.flatnonzero(attended).tolist():
        values = list(graph.operands_of(node))[: 1 if backward[node] else 3]
        found[node] = sum(elements[int(graph.value_type[value])] for value in values)
    return found


def _products(
    graph: WorkloadGraph, scaling: Scaling, wide: set[int], tokens: int
) -> NDArray[np.bool_]:
    """The work items that are linear products in the narrow type."""
    owner = row_of_entry(graph.work_ptr)
    items = (graph.work_unit == Unit.MATMUL) & (graph.work_gemm >= 0)
    items &= np.isin(graph.work_dtype, [DTYPE_CODE["bf16"]]) & ~is_attention(graph)[owner]
    stays = [
        bool(wide & set(sizes[1:])) or (not scaling.gradients and sizes[3] == tokens)
        for sizes in graph.tables.gemms
    ]
    found: NDArray[np.bool_] = items & ~np.array([*stays, True])[graph.work_gemm]
    return found
