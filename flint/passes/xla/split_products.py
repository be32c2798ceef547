"""Products whose sums XLA's GPU compiler splits, so that few large tiles occupy all of a GPU.

The idea: a product with few tiles of 128 x 128 in its result and a long sum leaves most of a GPU
idle.  ``SplitkRewriter`` therefore sums up s parts separately, s a power of two up to 2,048: the
product writes s results of the accumulator's type, and another kernel adds them up and converts
the sum.  With t = s * batch * tiles on P processors, s is what costs least:

    product     the larger of  100 * FLOPs of a tile's part * max(1, t / P)  and  0.194 * bytes
    if s > 1    4.36e7 for the launch + 193 * bytes that the addition reads and writes

(weights of Hopper; a tile of a narrower result is smaller, and as many more run at a time.)  So a
gradient [512, 512] that is summed over 4,096 tokens has 8 parts, one of [2048, 512] has 2.  Sums of
fewer than 32 parts are loops in the kernel that reads the result, as if they were elementwise; more
parts are a reduction.

Parts are of equal length, a multiple of 16 bytes: where the sum is not so long, both operands are
written with zeros behind them first (1,000,000 terms in f32 as 64 parts of 15,628).

Source: ``splitk_rewriter.cc`` of openxla/xla (2026), and compiled programs.  Convolutions are not
split.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from flint.graph.graph import WORK_COLUMNS, Form, WorkloadGraph
from flint.graph.tensor_types import TensorType, tensor_type
from flint.graph.work import Role
from flint.mesh.ragged import pointer, row_of_entry
from flint.passes.columns import gathered, repeated
from flint.passes.xla.transposes import Pad, with_transposes

#: Name of the op that adds up the parts.
SUM: Final = "reduce"
_TILE: Final = 128
#: Processors of an H100, and XLA's weights for Hopper.
_PROCESSORS: Final = 132
_COMPUTE, _MEMORY, _ADDED, _LAUNCH = 100.0, 0.194136, 193.1384, 4.36e7
#: Bytes of which the length of a part is a multiple.
_ALIGNED: Final = 16
#: Parts that may be tried.
_PARTS: Final = tuple(1 << power for power in range(12))
#: Fewer parts than this are added up by a loop.
_LOOP: Final = 32
_ACCUMULATORS: Final = {"f64": "f64", "i8": "i32"}


def parts_of(
    sizes: tuple[int, int, int, int], bits: tuple[int, int, int], accumulator: int = 32
) -> int:
    """How many parts the sum of a product is split into.

    Args:
        sizes: batch, m, n and k.
        bits: of an element of the left and the right operand, before conversions, and the result.
        accumulator: bits of an element of a part.

    >>> parts_of((1, 512, 512, 4096), (16, 16, 16)), parts_of((1, 4096, 2048, 512), (16, 16, 16))
    (8, 1)
    """
    batch, m, n, k = sizes
    tile = min(m, _TILE) * min(n, _TILE)
    tiles = batch * -(-m // _TILE) * -(-n // _TILE)
    slots = _PROCESSORS * _TILE * _TILE / tile
    loaded = batch * k * (m * bits[0] + n * bits[1]) / 8
    made = batch * m * n / 8

    def cost(parts: int) -> float:
        computing = 2 * tile * -(-k // parts) * max(1.0, parts * tiles / slots) * _COMPUTE
        written = made * (accumulator * parts if parts > 1 else bits[2])
        product = max(computing, (loaded + written) * _MEMORY)
        return product + (parts > 1) * (_LAUNCH + (written + made * bits[2]) * _ADDED)

    return min(_PARTS, key=cost)


def split_products(graph: WorkloadGraph, types: dict[TensorType, int]) -> WorkloadGraph:
    """One block with a kernel behind each split product that adds up its parts.

    Args:
        graph: the block; its table of ops has ``SUM``.
        types: all types of the program, by number; those of parts are added.
    """
    graph = _padded(graph, types)
    found = _split(graph)
    if not found:
        return graph
    copies = np.ones(len(graph), dtype=np.int64)
    copies[list(found)] = 2
    copied, rows, last = repeated(graph, copies)
    product = last[list(found)] - 1
    addition = product + 1
    for node, (parts, kind) in zip(product.tolist(), found.values(), strict=True):
        result = graph.tables.types[copied.result_type[copied.result_ptr[node]]]
        whole = tensor_type((parts, *result.shape), kind)
        made = copied.result_ptr[node]
        copied.result_type[made] = types.setdefault(whole, len(types))
        copied.operand[copied.operand_ptr[node + 1]] = copied.inputs + made
        copied.bytes_written[node] = copied.bytes_read[node + 1] = whole.bytes
        copied.role[node + 1] = Role.ELEMENTWISE if parts < _LOOP else Role.REDUCTION
    copied.op[addition] = graph.tables.plain(SUM)
    adds = np.zeros(len(rows), dtype=bool)
    adds[addition] = True
    tables = replace(graph.tables, types=tuple(types))
    return _without_theirs(replace(copied, tables=tables), adds)


def _padded(graph: WorkloadGraph, types: dict[TensorType, int]) -> WorkloadGraph:
    """One block whose split sums have parts of equal length."""
    forms = [form for *_, form in graph.tables.entries()]
    uses = np.bincount(np.concatenate([graph.operand, graph.outputs]), minlength=graph.values)
    result_type = graph.result_type.copy()
    found: dict[int, Pad] = {}
    for node, (parts, _) in _split(graph).items():
        k = graph.tables.gemms[graph.work_gemm[graph.work_ptr[node]]][-1]
        form, half = forms[graph.op[node]], len(forms[graph.op[node]]) // 2
        for side, value in enumerate(graph.operands_of(node)[:2].tolist()):
            kind, maker = graph.type_of(value), int(graph.producer[value])
            step = max(8 * _ALIGNED // _width(kind), 1)
            whole = parts * step * -(-k // (parts * step))
            dims = form[half:] if side else form[:half]
            if whole == k or kind.elements % k:
                continue
            longer = _longer(kind, dims, k, whole)
            entry = int(graph.operand_ptr[node]) + side
            if maker >= 0 and graph.tables.ops[graph.op[maker]] == "transpose" and uses[value] == 1:
                # The product turns the matrix itself, behind the zeros.
                result_type[graph.result_ptr[maker]] = types.setdefault(longer, len(types))
                entry = int(graph.operand_ptr[maker])
                value = int(graph.operand[entry])
                longer = tensor_type(longer.shape[::-1], longer.dtype)
            made = types.setdefault(longer, len(types))
            if found.setdefault(value, Pad([], made)).made == made:
                found[value].entries.append(entry)
    tables = replace(graph.tables, types=tuple(types))
    return with_transposes(replace(graph, tables=tables, result_type=result_type), found)


def _longer(kind: TensorType, dims: Form, k: int, whole: int) -> TensorType:
    """A type with more elements in the dim that is summed up; in front if there are several."""
    shape: tuple[int, ...] = (whole, kind.elements // k)
    if len(dims) == 1 and dims[0] < len(kind.shape) and kind.shape[dims[0]] == k:
        shape = (*kind.shape[: dims[0]], whole, *kind.shape[dims[0] + 1 :])
    return tensor_type(shape, kind.dtype)


def _without_theirs(graph: WorkloadGraph, adds: NDArray[np.bool_]) -> WorkloadGraph:
    """``graph`` with additions that have one operand and leave the work to the product."""
    index = np.arange(len(graph.operand)) - graph.operand_ptr[graph.consumer]
    kept = ~adds[graph.consumer] | (index == 0)
    owner = row_of_entry(graph.work_ptr)
    items = np.flatnonzero(~adds[owner])
    return replace(
        graph,
        operand=graph.operand[kept],
        operand_ptr=pointer(np.bincount(graph.consumer[kept], minlength=len(graph))),
        **gathered(graph, WORK_COLUMNS, items),
        work_ptr=pointer(np.bincount(owner[items], minlength=len(graph))),
    )


def _split(graph: WorkloadGraph) -> dict[int, tuple[int, str]]:
    """Products that are split: how many parts, and their type."""
    types, sizes = graph.tables.types, graph.tables.gemms
    dots = np.array([name == "dot_general" for name in graph.tables.ops], dtype=bool)
    owner = row_of_entry(graph.work_ptr)
    chosen = (graph.work_gemm >= 0) & dots[graph.op][owner]
    chosen &= (graph.role == Role.CONTRACTION)[owner] & (np.diff(graph.result_ptr) == 1)[owner]
    found = {}
    for item in np.flatnonzero(chosen).tolist():
        node = int(owner[item])
        first = int(graph.operand_ptr[node])
        result = types[graph.result_type[graph.result_ptr[node]]]
        if graph.operand_ptr[node + 1] - first < 2 or not all(sizes[graph.work_gemm[item]]):
            continue
        kind = _ACCUMULATORS.get(
            graph.tables.types[graph.value_type[graph.operand[first]]].dtype, "f32"
        )
        left, right = (_bits(graph, int(value)) for value in graph.operand[first : first + 2])
        parts = parts_of(
            sizes[graph.work_gemm[item]],
            (left, right, _width(result)),
            _width(tensor_type((), kind)),
        )
        if parts > 1:
            found[node] = (parts, kind)
    return dict(sorted(found.items()))


def _bits(graph: WorkloadGraph, value: int) -> int:
    """Bits of an element of what a value is converted from."""
    while (maker := int(graph.producer[value])) >= 0:
        start, end = graph.operand_ptr[maker : maker + 2].tolist()
        if graph.role[maker] != Role.ELEMENTWISE or end - start != 1:
            break
        value = int(graph.operand[start])
    return _width(graph.tables.types[graph.value_type[value]])


def _width(kind: TensorType) -> int:
    return max(8 * kind.bytes // max(kind.elements, 1), 1)
