"""Decomposing: products and the exchange of their rows in parts, one beside the other.

The idea: among n ranks an all-gather of rows becomes n - 1 messages, each with another rank's rows,
and the products that take these rows are done in n parts: the first with the rank's own rows,
while the first message is on its way.  Where a product's rows are summed up and scattered, each of
its n parts is sent to its rank as soon as it is done, and the parts that arrive are added at the
end.  Messages and FLOPs are those of the whole; what is multiplied with the rows (weights) is read
once for each part.  Parts run beside each other on a few streams, so that only the last leaves
units idle ("greatly reducing quantization inefficiency", ``torch/distributed/_symmetric_memory``;
``_stream_compute`` in Transformer Engine's userbuffers): each has the sizes of n such products.
Copy engines send messages (``beside_copies``).

This is what asynchronous tensor parallelism in PyTorch, userbuffers in Transformer Engine and
collective matmuls in XLA do (Wang et al., "Overlap Communication with Dependent Computation via
Decomposition in Large Deep Learning Models", ASPLOS 2023).

    graph = decompose(graph, ranks=8)
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from flint.graph.building import GraphBuilder, TableBuilder
from flint.graph.communication import Communication
from flint.graph.graph import EdgeKind, NodeKind, WorkloadGraph, with_tables
from flint.graph.tensor_types import DTYPE_BITS, TensorType, tensor_type
from flint.graph.work import NO_WORK, Role, Unit, Work, WorkItem
from flint.mesh.groups import Groups
from flint.mesh.permutation import Permutation, permutation
from flint.passes.columns import lists, with_bodies
from flint.passes.copying import Edges, copy_node, order_of
from flint.passes.what_if.exchanged_products import Exchanged, Gathered, moving, rows_made, rows_of


def decompose(graph: WorkloadGraph, *, ranks: int) -> WorkloadGraph:
    """``graph`` with products and exchanges of their rows in parts.

    Args:
        graph: at any granularity; gathers of weights stay as they are.
        ranks: the most ranks of a group that is taken apart.
    """
    tables = TableBuilder(graph.tables)
    shifts: dict[Groups, list[Permutation]] = {}

    def block(graph: WorkloadGraph, carried: int) -> WorkloadGraph:
        graph = with_bodies(graph, lambda body, loop: block(body, loop.carried if loop else 0))
        found = Exchanged.of(graph, ranks, carried)
        return _Rebuilt(graph, tables, found, shifts).graph() if _any(found) else graph

    return with_tables(block(graph, 0), tables.finish())


def _any(found: Exchanged) -> bool:
    return bool(found.gathers or found.scatters)


def _shifted(groups: Groups) -> list[Permutation]:
    """Each rank sends to the one i places on in its group, for i from 1."""
    table = groups.table()
    size = table.shape[1]
    sends = [np.stack([table, np.roll(table, -i, axis=1)], -1).reshape(-1, 2) for i in range(size)]
    return [permutation(groups.world, pairs) for pairs in sends[1:]]


def _part(kind: TensorType, count: int) -> TensorType:
    return tensor_type((-(-kind.elements // count),), kind.dtype)


def _share(work: Work, count: int) -> Work:
    """An n-th of elementwise work."""
    items = tuple(item._replace(flops=item.flops // count) for item in work.items)
    return Work(items, work.read // count, work.written // count, work.aliased // count)


def _product_share(work: Work, dim: int, count: int) -> Work:
    """An n-th of a product's rows; its other operand is read whole.

    Args:
        work: of the whole.
        dim: which of (b, m, n, k) has the rows.
        count: n.
    """
    (first, *more) = work.items
    assert first.dims is not None
    b, m, n, k = first.dims
    other = min(b * (n if dim == 1 else m) * k * DTYPE_BITS[first.dtype] // 8, work.read)
    m, n = (-(-m // count), n) if dim == 1 else (m, -(-n // count))
    items = (
        WorkItem(first.unit, first.dtype, first.flops // count, (b * count, m, n, k)),
        *(item._replace(flops=item.flops // count) for item in more),
    )
    return Work(
        items, other + (work.read - other) // count, work.written // count, work.aliased // count
    )


class _Rebuilt:
    """A block that is built again with some of its nodes in parts."""

    def __init__(
        self, graph: WorkloadGraph, tables: TableBuilder, found: Exchanged,
        shifts: dict[Groups, list[Permutation]],
    ) -> None:  # fmt: skip
        self.old, self.found, self.shifts = graph, found, shifts
        self.moving = moving(graph)
        self.builder = GraphBuilder(tables)
        self.operands = lists(graph.operand_ptr, graph.operand)
        self.made = {i: self.builder.input(t) for i, t in enumerate(graph.input_type.tolist())}
        self.place: dict[int, int] = {}
        self.arrived: dict[int, tuple[int, list[int]]] = {}  # product -> value of rows, parts
        self.later = {p for p, _ in found.scatters.values()}
        self.later |= {node for _, tail in found.scatters.values() for node in tail}

    def graph(self) -> WorkloadGraph:
        for node in range(len(self.old)):
            if node in self.place or node in self.later:
                continue
            if node in self.found.gathers:
                self._gather(node, self.found.gathers[node])
            elif node in self.found.scatters:
                self._scatter(node, *self.found.scatters[node])
            elif node in self.arrived:
                self._products({node: self.arrived[node][0]}, self.arrived[node][1])
            else:
                taken = [self.made[value] for value in self.operands[node]]
                copy_node(self.builder, self.old, node, taken, self._order(node), self.made)
                self.place[node] = len(self.builder) - 1
        return self.builder.finish([self.made[value] for value in self.old.outputs.tolist()])

    def _order(self, node: int) -> Edges:
        """Order edges; those to nodes of the same stream that come later now are passed on."""
        left, found, seen = order_of(self.old, node), [], set()
        while left:
            before, kind = left.pop(0)
            if before in self.place:
                found.append((self.place[before], kind))
            elif before not in seen:
                seen.add(before)
                left += order_of(self.old, before)
        return list(dict.fromkeys(found))

    def _result(self, node: int) -> int:
        return int(self.old.result_ptr[node]) + self.old.inputs

    def _source(self, node: int) -> int:
        return int(self.old.source[node])

    def _add(
        self, node: int, operands: list[int], kind: TensorType, work: Work, order: Edges,
        role: int | None = None, op: int | None = None,
    ) -> int:  # fmt: skip
        """A part of a compute node; returns its value."""
        (value,) = self.builder.node(
            NodeKind.COMPUTE,
            int(self.old.op[node]) if op is None else op,
            operands,
            [self.builder.tables.type(kind)],
            role=int(self.old.role[node]) if role is None else role,
            work=work,
            source=self._source(node),
            ops_merged=0,
            order=order,
        )
        return value

    def _message(
        self, node: int, item: Communication, step: int, value: int, kind: TensorType, order: Edges
    ) -> int:
        """A message to the rank ``step`` places on."""
        assert item.groups is not None
        shifts = self.shifts.setdefault(item.groups, []) or _shifted(item.groups)
        self.shifts[item.groups] = shifts
        sent = replace(
            item, kind="collective_permute", reduction=None, groups=None,
            permutation=shifts[step - 1], operand_bytes=(kind.bytes,), result_bytes=(kind.bytes,),
            communicator=-1, origin=item.kind,
        )  # fmt: skip
        (value,) = self.builder.communication(
            sent, [value], [kind], self._source(node), order,
            Work((), kind.bytes, kind.bytes) if self.old[node].work != NO_WORK else NO_WORK,
        )  # fmt: skip
        return value

    def _gather(self, node: int, after: Gathered) -> None:
        item = self.old.tables.communications[int(self.old.detail[node])]
        assert item.groups is not None
        count, whole = item.groups.size, self._result(node)
        part = _part(self.old.type_of(whole), count)
        order = self._order(node)
        arrived = [self.made[self.operands[node][0]]]
        # What waits for it, waits for its rows.
        self.place |= dict.fromkeys((node, *after.copies), -1)
        own = arrived[0]
        sent = -1
        for step in range(1, count):
            before = [(sent, EdgeKind.STREAM)] if sent >= 0 else order
            arrived.append(self._message(node, item, step, own, part, before))
            sent = len(self.builder) - 1
        self._products(after.products, arrived)
        self.arrived |= {product: (rows, arrived) for product, rows in after.late.items()}
        self.made[whole] = self._joined(node, arrived)
        self.place[node] = len(self.builder) - 1
        for copy in after.copies:  # rows arrive where they belong
            self.made[self._result(copy)] = self._joined(copy, [self.made[whole]])
            self.place[copy] = len(self.builder) - 1

    def _products(self, products: dict[int, int], arrived: list[int]) -> None:
        """Products of rows, each with the value of its rows, in parts as these arrive."""
        count = len(arrived)
        parts: dict[int, list[int]] = {product: [] for product in products}
        works = {}
        for product, rows in products.items():
            dim = rows_of(self.old, product, rows)
            assert dim is not None
            works[product] = _product_share(self.old[product].work, dim, count)
        waiting = {product: [e for e in self._order(product) if e[0] >= 0] for product in products}
        for step in range(count):
            for product, rows in products.items():
                taken = [
                    arrived[step] if value == rows else self.made[value]
                    for value in self.operands[product]
                ]
                kind = _part(self.old.type_of(self._result(product)), count)
                edges = waiting[product] if not step else []
                parts[product].append(self._add(product, taken, kind, works[product], edges))
        for product in products:
            self.made[self._result(product)] = self._joined(product, parts[product])
            self.place[product] = len(self.builder) - 1

    def _joined(self, node: int, parts: list[int]) -> int:
        """Parts that lie side by side, as a node's result; it stands for the node's ops."""
        (value,) = self.builder.node(
            NodeKind.COMPUTE, self.builder.tables.op("concatenate"), parts,
            [int(self.old.value_type[self._result(node)])], role=Role.ALIAS,
            source=self._source(node), ops_merged=int(self.old.ops_merged[node]),
        )  # fmt: skip
        return value

    def _scatter(self, node: int, product: int, tail: list[int]) -> None:
        item = self.old.tables.communications[int(self.old.detail[node])]
        assert item.groups is not None
        count, result = item.groups.size, self._result(node)
        part = self.old.type_of(result)
        dim = rows_made(self.old, product, count)
        shared = _product_share(self.old[product].work, dim, count)
        edges, order = self._order(product), self._order(node)
        arrived, sent = [], -1
        for step in (*range(1, count), 0):  # the rank's own rows last
            values: dict[int, int] = {}
            for member in (product, *tail):
                taken = [values.get(v, self.made.get(v, -1)) for v in self.operands[member]]
                kind = _part(self.old.type_of(self._result(member)), count)
                if self.moving[member]:  # written where it belongs
                    inside = [values[v] for v in self.operands[member] if v in values]
                    value = (inside or taken)[0]
                else:
                    mine = shared if member == product else _share(self.old[member].work, count)
                    before = edges if member == product and step == 1 else []
                    value = self._add(member, taken, kind, mine, before)
                values[self._result(member)] = value
            value = values[self.operands[node][0]]
            if step:
                before = [(sent, EdgeKind.STREAM)] if sent >= 0 else order
                value = self._message(node, item, step, value, part, before)
                sent = len(self.builder) - 1
            arrived.append(value)
        adds = WorkItem(Unit.VECTOR, part.dtype, (count - 1) * part.elements)
        added = Work((adds,), count * part.bytes, part.bytes)
        op = self.builder.tables.op("reduce")
        self.made[result] = self._add(node, arrived, part, added, [], Role.REDUCTION, op)
        for member in (product, *tail, node):
            self.place[member] = len(self.builder) - 1
