"""Which products XLA's GPU compiler merges: pairs that share an operand, one after the other.

The idea: products are compared within the readers of one value, in issue order; a product that was
merged goes on as the first of its pair and takes further ones in.  See
``flint.passes.xla.merged_products`` for the conditions.

    groups(graph)    # [[Product(q), Product(k), Product(v)]]
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from flint.graph.graph import Form, NodeKind, WorkloadGraph
from flint.graph.work import Role
from flint.mesh.ragged import row_of_entry
from flint.passes.rematerialize import transparent_nodes

#: The most bytes of the operands and the result of a small product.
MAX_BYTES: Final = 64 << 20
#: The most nodes that are searched for a path between two products; beyond it there may be one.
_SEARCHED: Final = 4096


@dataclass(frozen=True, slots=True)
class Product:
    """A product as a reader of a value.

    Attributes:
        node: the node.
        side: position of the shared operand, 0 or 1.
        batch, shared, other, k: sizes; rows of the shared and of the other operand.
        free: dims of the shared operand that the result has.
        contracted: dims of the shared operand, before transposes, that are contracted; () if that
            is not known.
        turned: dims of both operands of a product of matrices, before transposes, that are
            contracted; () for the last of the left one and the first of the right one, as in XLA's
            form of any other product (``DotDecomposer``).
        as_written: whether these dims are so with transposes.
        kinds: types of the elements of the shared operand, the other one and the result.
        bytes: of the shared operand, the other one and the result.
    """

    node: int
    side: int
    batch: int
    shared: int
    other: int
    k: int
    free: tuple[int, ...]
    contracted: tuple[int, ...]
    turned: Form
    as_written: bool
    kinds: tuple[str, str, str]
    bytes: tuple[int, int, int]


def groups(graph: WorkloadGraph) -> list[list[Product]]:
    """Products of one block that become one, each group in issue order."""
    readers = _readers(graph)
    if not readers:
        return []
    paths = _Paths(graph)
    gone: set[int] = set()
    found: list[list[Product]] = []
    for dots in readers:
        left = [[dot] for dot in dots if dot.node not in gone]
        for place, group in enumerate(left):
            for other in left[place + 1 :]:
                if group and other and _alike(group[0], other[0]) and _small(group, other):
                    members = [each.node for each in (*group, *other)]
                    if len(set(members)) == len(members) and paths.join(members):
                        group += other
                        other.clear()
        merged = [group for group in left if len(group) > 1]
        found += merged
        gone.update(each.node for group in merged for each in group)
    return [sorted(group, key=lambda each: each.node) for group in found]


def _alike(one: Product, other: Product) -> bool:
    same = (one.batch, one.shared, one.k, one.free, one.contracted, one.kinds) == (
        other.batch, other.shared, other.k, other.free, other.contracted, other.kinds,
    )  # fmt: skip
    # Of a square matrix no size says which dim is contracted.
    same = same and (one.shared != one.k or bool(one.contracted))
    if one.side == other.side:
        same = same and one.turned == other.turned
    else:
        same = same and one.batch == 1 and one.as_written and other.as_written
    return same and one.node != other.node


def _small(*several: list[Product]) -> bool:
    """Whether one of some products, each merged as far as it is, is small."""
    return any(
        group[0].bytes[0] + sum(each.bytes[1] + each.bytes[2] for each in group) <= MAX_BYTES
        for group in several
    )


def _readers(graph: WorkloadGraph) -> list[list[Product]]:
    """The products that read each value, where they are several; in the order of the values."""
    types, sizes = graph.tables.types, graph.tables.gemms
    forms = [form for *_, form in graph.tables.entries()]
    dots = np.array([name == "dot_general" for name in graph.tables.ops], dtype=bool)[graph.op]
    owner = row_of_entry(graph.work_ptr)
    dots &= (graph.role == Role.CONTRACTION) & (np.bincount(owner, minlength=len(graph)) == 1)
    dots &= (np.diff(graph.operand_ptr) == 2) & (np.diff(graph.result_ptr) == 1)
    dots &= np.diff(graph.order_ptr) == 0
    dots[graph.order_node] = False
    found: dict[int, list[Product]] = {}
    spread = transparent_nodes(graph)
    for node in np.flatnonzero(dots).tolist():
        item = int(graph.work_ptr[node])
        if graph.work_gemm[item] < 0:
            continue
        batch, m, n, k = sizes[graph.work_gemm[item]]
        operands = graph.operands_of(node).tolist()
        result = types[graph.result_type[graph.result_ptr[node]]]
        if not batch * m * n * k:
            continue
        form = forms[graph.op[node]]
        sides = form[: len(form) // 2], form[len(form) // 2 :]
        rank = len(result.shape)
        matrices = len(form) == 2 and all(
            len(shape) == rank and math.prod(shape[:-2]) == batch
            for shape in (types[graph.value_type[value]].shape for value in operands)
        )
        bases = [_untransposed(graph, *each, forms) for each in zip(operands, sides, strict=True)]
        # XLA moves transposes behind arithmetic with constants.
        folded = tuple(
            dim
            for value, dims in bases
            for dim in _untransposed(graph, _behind(graph, value, spread), dims, forms)[1]
        )
        usual = rank - 1, rank - 2
        turned = folded if matrices and folded != usual else ()
        for side in (0, 1):
            mine, other = (types[graph.value_type[operands[at]]] for at in (side, 1 - side))
            rows = (m, n) if side == 0 else (n, m)
            free = _free(result.shape, side, batch, rows[0])
            if rows[1] == 1:
                continue  # a vector has no dim along which it could stand beside another
            base, dims = bases[side]
            found.setdefault(base, []).append(
                Product(
                    node, side, batch, *rows, k, free, dims, turned,
                    not matrices or form == usual,
                    (mine.dtype, other.dtype, result.dtype),
                    (mine.bytes, other.bytes, result.bytes),
                )
            )  # fmt: skip
    return [found[value] for value in sorted(found) if len(found[value]) > 1]


def _free(result: tuple[int, ...], side: int, batch: int, rows: int) -> tuple[int, ...]:
    """The dims of a result that are those of one operand: the first ones behind the batch, or the
    last.
    """
    if side:
        return _first(result[::-1], rows)[::-1]
    return _first(result[len(_first(result, batch)) if batch > 1 else 0 :], rows)


def _first(dims: tuple[int, ...], size: int) -> tuple[int, ...]:
    """As many dims from the first one on as have a size together."""
    found = 1
    for count, dim in enumerate(dims, 1):
        found *= dim
        if found >= size:
            return dims[:count]
    return dims


def _untransposed(
    graph: WorkloadGraph, value: int, dims: tuple[int, ...], forms: list[tuple[int, ...]]
) -> tuple[int, tuple[int, ...]]:
    """What a value is a transpose of, and some of its dims there, in order; () if not known."""
    maker = int(graph.producer[value])
    while maker >= 0 and graph.tables.ops[graph.op[maker]] == "transpose":
        order = forms[graph.op[maker]]
        dims = tuple(order[dim] for dim in dims) if order else ()
        value = int(graph.operand[graph.operand_ptr[maker]])
        maker = int(graph.producer[value])
    return value, tuple(sorted(dims))


def _behind(graph: WorkloadGraph, value: int, spread: NDArray[np.bool_]) -> int:
    """What a value is computed from, element by element, and from constants."""
    maker = int(graph.producer[value])
    while maker >= 0 and graph.role[maker] == Role.ELEMENTWISE:
        makers = graph.producer[graph.operands_of(maker)]
        tensors = graph.operands_of(maker)[(makers < 0) | ~spread[makers]].tolist()
        if len(tensors) != 1:
            break
        value = tensors[0]
        maker = int(graph.producer[value])
    return value


class _Paths:
    """What follows from the nodes of a block, with those joined that have been merged."""

    def __init__(self, graph: WorkloadGraph) -> None:
        self.after: dict[int, list[int]] = {}
        before = np.concatenate([graph.producer[graph.operand], graph.order_node])
        later = np.concatenate([graph.consumer, row_of_entry(graph.order_ptr)])
        for node, user in zip(before.tolist(), later.tolist(), strict=True):
            self.after.setdefault(node, []).append(user)
        self.ordered: list[bool] = (graph.kind != NodeKind.COMPUTE).tolist()
        self.places = np.flatnonzero(graph.kind != NodeKind.COMPUTE)
        self.members: dict[int, list[int]] = {}

    def join(self, nodes: list[int]) -> bool:
        """Join nodes unless a path leads from one to another, or communications would be issued in
        another order.
        """
        last, whole = max(nodes), set(nodes)
        bound = self._bound(last)
        seen, ahead = set(nodes), list(nodes)
        while ahead:
            for user in self.after.get(ahead.pop(), ()):
                for node in self.members.get(user, (user,)):
                    if node in whole:
                        return False
                    if node not in seen and node < bound:
                        seen.add(node)
                        ahead.append(node)
            if len(seen) > _SEARCHED:
                return False
        late = [node for node in seen if node < last and self.ordered[node]]
        if late:
            low, high = np.searchsorted(self.places, [min(late), last])
            if not seen.issuperset(self.places[low:high].tolist()):
                return False
        for node in nodes:
            self.members[node] = nodes
        return True

    def _bound(self, last: int) -> int:
        """The place behind which no path to a node comes back: joined nodes are one."""
        bound, before = last, -1
        while bound != before:
            before = bound
            for nodes in self.members.values():
                if min(nodes) < bound < max(nodes):
                    bound = max(nodes)
        return bound + 1
