"""Products beside an exchange of their rows: what ``decompose`` takes apart.

The idea: tensor parallelism with split sequences gathers rows and multiplies them, or multiplies
and sums up rows that it scatters again.  Found are

    gather -> copies -> products        those that take the gathered rows as their own
    product -> elementwise -> scatter   the last product that the scattered rows come from; copies
                                        that only order the parts are left out

Gathers of weights and reductions of their gradients are of data parallelism and stay whole.

    found = Exchanged.of(graph, most=16)
    found.gathers                       # {node: products}
    found.scatters                      # {node: (product, what follows it)}
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from flint.graph.communication import Communication
from flint.graph.graph import EdgeKind, NodeKind, WorkloadGraph
from flint.graph.work import Role, Unit
from flint.mesh.groups import Groups
from flint.mesh.ragged import row_of_entry
from flint.observed.classes import OpClass, aten_class
from flint.passes.columns import lists
from flint.passes.what_if.defer import gradient_reductions
from flint.passes.what_if.gathers import weight_gathers

#: Roles, and classes of a framework's kernels, that compute each element from one place.
_ELEMENTWISE = (Role.ELEMENTWISE,)
#: Those that only place elements.
_MOVING = (Role.ALIAS, Role.GENERATE, Role.MOVEMENT)


@dataclass(frozen=True, slots=True)
class Gathered:
    """What follows a gather.

    Attributes:
        products: in issue order, each with the value of the rows that it takes.
        late: those of which an operand is not there yet when the gather is issued.
        copies: nodes that only order the rows.
    """

    products: dict[int, int]
    late: dict[int, int]
    copies: list[int]


@dataclass(frozen=True, slots=True)
class Exchanged:
    """What of a block is taken apart.

    Attributes:
        gathers: gather -> its products.
        scatters: scatter -> the product, and the nodes between the two, in issue order.
    """

    gathers: dict[int, Gathered] = field(default_factory=dict)
    scatters: dict[int, tuple[int, list[int]]] = field(default_factory=dict)

    @classmethod
    def of(cls, graph: WorkloadGraph, most: int, carried: int = 0) -> Exchanged:
        """What is found in a block; its bodies are blocks of their own.

        Args:
            graph: the block.
            most: the most ranks of a group.
            carried: carried values of the loop whose body it is.
        """
        find = _Search(graph)
        found = cls()
        whole = {*weight_gathers(graph, carried), *gradient_reductions(graph)}
        for node in np.flatnonzero(graph.kind == NodeKind.COMMUNICATION).tolist():
            item = graph.tables.communications[int(graph.detail[node])]
            if node in whole or not _is_even(item, most):
                continue
            if item.kind == "all_gather":
                after = find.after(node)
                if after.products or after.late:
                    found.gathers[node] = after
            elif item.kind == "reduce_scatter":
                made = find.before(node)
                if made is not None:
                    found.scatters[node] = made
        gathered = {
            product
            for after in found.gathers.values()
            for product in (*after.products, *after.late)
        }
        for node, (product, _) in list(found.scatters.items()):
            if product in gathered:  # it is in parts already, by other rows
                del found.scatters[node]
        return found


def moving(graph: WorkloadGraph) -> NDArray[np.bool_]:
    """Nodes that only place elements, shape [nodes]."""
    return _of(graph, _MOVING, OpClass.COPY)


def _of(graph: WorkloadGraph, roles: tuple[Role, ...], kind: OpClass) -> NDArray[np.bool_]:
    """Compute nodes of these roles, and a framework's kernels of this class."""
    named = np.array([aten_class(name) == kind for name in graph.tables.ops] or [False])
    found: NDArray[np.bool_] = np.isin(graph.role, roles)
    found |= (graph.role == Role.OPAQUE) & named[graph.op]
    found &= graph.kind == NodeKind.COMPUTE
    return found


@functools.lru_cache(maxsize=64)
def _of_equal_size(groups: Groups) -> bool:
    return bool((groups.table() >= 0).all())


def _is_even(item: Communication, most: int) -> bool:
    """Whether a collective exchanges one tensor in equal parts among a few ranks."""
    if item.groups is None or item.largest_bytes or not 1 < item.groups.size <= most:
        return False
    if not _of_equal_size(item.groups):
        return False
    if len(item.operand_bytes) != 1 or len(item.result_bytes) != 1 or not item.bytes_in:
        return False
    small, large = sorted((item.bytes_in, item.bytes_out))
    return small * item.groups.size == large


class _Search:
    """Reads a block's edges."""

    def __init__(self, graph: WorkloadGraph) -> None:
        self.graph = graph
        self.operands = lists(graph.operand_ptr, graph.operand)
        self.producer = graph.producer.tolist()
        self.awaited = lists(graph.order_ptr, graph.order_node)
        kinds = lists(graph.order_ptr, graph.order_kind.astype(np.int64))
        self.firm = [
            [node for node, kind in zip(*row, strict=True) if kind != EdgeKind.STREAM]
            for row in zip(self.awaited, kinds, strict=True)
        ]
        self.readers: list[set[int]] = [set() for _ in range(graph.values)]
        for node, values in enumerate(self.operands):
            for value in values:
                self.readers[value].add(node)
        self.outputs = set(graph.outputs.tolist())
        self.moving = moving(graph)
        self.elementwise = _of(graph, _ELEMENTWISE, OpClass.ELEMENTWISE)
        products = row_of_entry(graph.work_ptr)[
            (graph.work_unit == Unit.MATMUL) & (graph.work_gemm >= 0)
        ]
        self.products = set(products[graph.kind[products] == NodeKind.COMPUTE].tolist())

    def results(self, node: int) -> range:
        low, high = (self.graph.result_ptr[node : node + 2] + self.graph.inputs).tolist()
        return range(low, high)

    def after(self, gather: int) -> Gathered:
        """The products that take a gather's rows."""
        (value,) = self.results(gather)
        rows, ready, found = {value}, {gather}, Gathered({}, {}, [])
        elements = self.graph.type_of(value).elements
        for node in sorted(self._reached(value)):
            taken = [v for v in self.operands[node] if v in rows]
            own = self.results(node)
            if not taken or len(own) != 1:
                continue
            if self.moving[node]:
                if self.graph.type_of(own[0]).elements == elements and len(taken) == 1:
                    rows.add(own[0])
                    ready.add(node)
                    found.copies.append(node)
                continue
            others = [self.producer[v] for v in self.operands[node] if v not in rows]
            others += [other for other in self.firm[node] if other not in ready]
            if node not in self.products or len(taken) > 1:
                continue
            if rows_of(self.graph, node, taken[0]) is None:
                continue
            if max(others, default=-1) < gather:
                found.products[node] = taken[0]
                ready.add(node)
            else:
                found.late[node] = taken[0]
        return found

    def _reached(self, value: int) -> set[int]:
        """The readers of a value, and those of what only places its elements."""
        left: list[int] = [value]
        found: set[int] = set()
        while left:
            for node in self.readers[left.pop()] - found:
                found.add(node)
                if self.moving[node]:
                    left += self.results(node)
        return found

    def before(self, scatter: int) -> tuple[int, list[int]] | None:
        """The product that a scatter's rows come from, and what lies between."""
        taken, product = {scatter}, None
        members: list[int] = []
        left = {self.producer[self.operands[scatter][0]]}
        while left and product is None:
            node = max(left)
            left.discard(node)
            if node < 0:
                return None
            own = self.results(node)
            used = set().union(*(self.readers[value] for value in own))
            if not used <= taken or self.outputs & {*own} or self.graph.kind[node] != 0:
                if members and node not in self.products:
                    continue  # another operand, which is there
                return None
            if node in self.products:
                product = node
            elif self.moving[node] or self.elementwise[node]:
                members.append(node)
                left |= {self.producer[value] for value in self.operands[node]} - {-1}
            else:
                return None
            taken.add(node)
        if product is None or len(self.results(product)) != 1:
            return None
        between = set(range(product + 1, scatter)) - taken
        if any(taken & {*self.firm[node]} for node in between):
            return None
        return product, members[::-1]


def rows_of(graph: WorkloadGraph, product: int, value: int) -> int | None:
    """Which dim of a product (1: m, 2: n) has a value's rows; None if they are summed over."""
    kind = graph.type_of(value)
    item = int(graph.work_ptr[product])
    b, m, n, k = graph.tables.gemms[int(graph.work_gemm[item])]
    if not kind.shape or kind.shape[-1] != k or b != 1:
        return None
    rows = kind.elements // k
    return 1 if rows == m else 2 if rows == n else None


def rows_made(graph: WorkloadGraph, product: int, count: int) -> int:
    """Which dim of a product (1: m, 2: n) is split where its rows go to ``count`` ranks."""
    _, m, _, _ = graph.tables.gemms[int(graph.work_gemm[int(graph.work_ptr[product])])]
    return 2 if m % count else 1
