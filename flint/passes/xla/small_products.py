"""Products with vectors, which XLA's GPU compiler computes as sums.

The idea: a product that has one operand without dims of its own is an elementwise product and a
sum, so that other kernels can compute what it reads and what follows (``AlgebraicSimplifier``).
Dims of size 1 do not count.  A product that contracts nothing is an elementwise product:

    y = W v            y = reduce (multiply W, broadcast v)
    y = u v^T          y = multiply (broadcast u), (broadcast v)

A matrix and a vector are large enough for a product if (m + n) k is ``SMALL`` or more, of any
batch; two vectors never are.  Terms are f32 where the operands are shorter.  Layouts are assigned
later, so that one may travel through the sums.

Sources: ``gpu/transforms/algebraic_simplifier.cc``, ``algebraic_simplifier.cc``,
``matmul_utils.cc`` of openxla/xla (2026).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final, NamedTuple

import numpy as np

from flint.graph.graph import SHAPE, Form, WorkloadGraph
from flint.graph.tensor_types import DTYPE_BITS, DTYPE_CODE, TensorType, tensor_type
from flint.graph.work import Role, Unit
from flint.passes.xla.split_dims import are_contracted
from flint.passes.xla.steps import Steps

#: From what (m + n) k on a matrix and a vector stay a product.
SMALL: Final = 10_000_000
BROADCAST, MULTIPLY, REDUCE = "broadcast_in_dim", "multiply", "reduce"
Entry = tuple[str, str, Form]


class _Small(NamedTuple):
    """A product that is computed as a sum.

    Attributes:
        whole: what is summed up.
        spread: the operands that are broadcast.
        sums: the parameters of the sum; None if there is none.
    """

    whole: TensorType
    spread: tuple[int, ...]
    sums: Form | None


def sums(graph: WorkloadGraph) -> list[Entry]:
    """The entries that a table of ops needs for what this pass adds."""
    found: dict[Entry, None] = {(name, "", ()): None for name in (BROADCAST, MULTIPLY, REDUCE)}
    for block, _ in graph.walk():
        found |= {(REDUCE, "", each.sums or ()): None for _, each in _found(block)}
    return list(found)


def summed_products(graph: WorkloadGraph, types: dict[TensorType, int]) -> WorkloadGraph:
    """One block whose products with vectors are sums.

    Args:
        graph: the block; its table of ops has the entries of ``sums``.
        types: all types of the program, by number; new ones are added.
    """
    found = dict(_found(graph))
    if not found:
        return graph
    numbers = {entry: number for number, entry in enumerate(graph.tables.entries())}
    copies = np.ones(len(graph), dtype=np.int64)
    for node, each in found.items():
        copies[node] = len(each.spread) + 1 + (each.sums is not None)
    steps = Steps(graph, copies, types)
    copied = steps.graph
    unit, dtype, gemm = copied.work_unit.copy(), copied.work_dtype.copy(), copied.work_gemm.copy()
    sizes = copied.value_bytes.tolist()

    def becomes(node: int, entry: Entry, kind: Role, values: list[int], result: TensorType) -> int:
        steps.op[node] = numbers.get(entry, numbers[entry[0], "", ()])
        steps.role[node], steps.operands[node] = kind, values
        steps.makes(node, result)
        steps.read[node] = sum(sizes[value] for value in values)
        value = steps.value(node)
        steps.written[node] = sizes[value] = result.bytes
        return value

    for node, each in found.items():
        end = int(steps.last[node])
        first = end - int(copies[node]) + 1
        result = graph.tables.types[graph.result_type[graph.result_ptr[node]]]
        factors = list(steps.operands[end])
        kinds = [copied.tables.types[copied.value_type[value]] for value in factors]
        for step, side in enumerate(each.spread, first):
            spread = tensor_type(each.whole.shape, kinds[side].dtype)
            factors[side] = becomes(
                step, (BROADCAST, "", ()), Role.MOVEMENT, [factors[side]], spread
            )
        product = first + len(each.spread)
        term = becomes(product, (MULTIPLY, "", ()), Role.ELEMENTWISE, factors, each.whole)
        if each.sums is not None:
            becomes(end, (REDUCE, "", each.sums), Role.REDUCTION, [term], result)
        steps.works[first:end] = False
        item = int(copied.work_ptr[end])
        unit[item], dtype[item], gemm[item] = Unit.VECTOR, DTYPE_CODE[each.whole.dtype], -1
    steps.graph = replace(copied, work_unit=unit, work_dtype=dtype, work_gemm=gemm)
    return steps.done()


def _found(graph: WorkloadGraph) -> Iterator[tuple[int, _Small]]:
    """Products of a block that are computed as sums, by node."""
    forms = [form for *_, form in graph.tables.entries()]
    chosen = np.array([name == "dot_general" for name in graph.tables.ops], dtype=bool)[graph.op]
    chosen &= (graph.role == Role.CONTRACTION) & (np.diff(graph.result_ptr) == 1)
    chosen &= (np.diff(graph.operand_ptr) == 2) & (np.diff(graph.work_ptr) == 1)
    for node in np.flatnonzero(chosen).tolist():
        number = int(graph.work_gemm[graph.work_ptr[node]])
        batch, m, n, k = graph.tables.gemms[number] if number >= 0 else (0, 0, 0, 0)
        if not batch * m * n * k or (m > 1 and n > 1 and k > 1):
            continue
        if max(m, n) > 1 and k > 1 and (m + n) * k >= SMALL:
            continue
        result = graph.tables.types[graph.result_type[graph.result_ptr[node]]]
        kinds = [graph.tables.types[graph.value_type[value]] for value in graph.operands_of(node)]
        largest = 0 if kinds[0].elements >= kinds[1].elements else 1
        short = DTYPE_BITS[result.dtype] < 32
        whole = result
        if k > 1:
            whole = tensor_type(kinds[largest].shape, "f32" if short else result.dtype)
        spread = tuple(side for side in (0, 1) if kinds[side].elements < whole.elements)
        form = forms[graph.op[node]]
        half = len(form) // 2
        dims = form[half:] if largest else form[:half]
        known = are_contracted(whole.shape, dims, k)
        form = (*dims, SHAPE, *whole.shape) if known else ()
        yield node, _Small(whole, spread, form if k > 1 else None)
