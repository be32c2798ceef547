"""Transposes of a product's result that XLA's GPU compiler never makes: layouts that travel.

The idea: a batched product writes rows and columns of matrices.  Where a program reads its result
with dims in an order that no such product writes, XLA does not transpose it: the elementwise ops
and the reductions that follow take the order that is in memory (``LayoutAssignment`` spreads the
layout of the earliest product depth first), and what they meet is brought into it.  So a softmax
of grouped queries sums up a dim in the middle, which no kernel of whole rows does:

    scores [b, h, k, q, g] -> transpose [b, h, g, q, k] -> tanh, softmax over k -> product
    scores [b, h, k, q, g] -> tanh, softmax over the third dim -> transpose -> product

Here the transpose moves behind these ops: to other products, and to all that is not elementwise.  A
transpose there that undoes it goes, too.  Other values of their size are transposed where they
come in, behind ops on one value; results of reductions keep their order, for they are small.

A product writes batch, rows and columns in any order in which each of these groups of dims stays
together, in its order, and the batch is not last (``MatrixLayout::For``).  A transpose to such an
order is the product's own if nothing else reads the product and no reshape stands between, as it
does where several dims are the rows or the columns.  It stays where it is, as do transposes behind
which nothing is reduced.  What an earlier product reads already has an order.

Sources: ``layout_assignment.cc``, ``gpu/transforms/layout_assignment.cc``, ``matmul_utils.cc``,
``move_copy_to_users.cc`` of openxla/xla (2023 to 2026), and layouts of compiled programs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from flint.graph.graph import SHAPE, Form, NodeKind, WorkloadGraph
from flint.graph.tensor_types import TensorType, tensor_type
from flint.graph.work import Role
from flint.passes.xla.orders import COLUMNS, PRODUCT, ROWS, groups, reduced, writes
from flint.passes.xla.regions import Region, tables_with
from flint.passes.xla.transposes import TRANSPOSE, Entry, Transpose, with_transposes

_REDUCE, BROADCAST = "reduce", "broadcast_in_dim"


class Block:
    """One block, with what is known of its ops.

    Args:
        graph: the block.
        types, entries: all types and entries of the table of ops, by number; new ones are added.
    """

    def __init__(
        self, graph: WorkloadGraph, types: dict[TensorType, int], entries: dict[Entry, int]
    ) -> None:
        self.graph, self.types, self.entries = graph, types, entries
        known = list(graph.tables.entries())
        self.names = [known[op][0] for op in graph.op.tolist()]
        self.forms = [known[op][2] for op in graph.op.tolist()]
        self.maker: list[int] = graph.producer.tolist()
        self.leaving = set(graph.outputs.tolist())
        self.users: dict[int, list[int]] = {}  # value -> operand entries
        for entry, value in enumerate(graph.operand.tolist()):
            self.users.setdefault(value, []).append(entry)
        self.consumer: list[int] = graph.consumer.tolist()
        single = (np.diff(graph.result_ptr) == 1) & (np.diff(graph.order_ptr) == 0)
        single &= graph.kind == NodeKind.COMPUTE
        single[graph.order_node] = False
        self.free: list[bool] = single.tolist()
        self.role: list[int] = graph.role.tolist()

    def changed(self, claims: Mapping[int, Sequence[int]]) -> WorkloadGraph:
        """The block with its transposes moved.

        Args:
            claims: product -> nodes that have the order in which it reads them, unless an earlier
                product has given them another one.
        """
        regions, taken = [], set[int]()
        for node in range(len(self.graph)):
            taken |= {*claims.get(node, ())}
            if node not in taken and (region := self._region(node, taken)):
                regions.append(region)
                taken |= {node, *region.nodes}
        return self._moved(regions) if regions else self.graph

    def made(self, node: int) -> int:
        return self.graph.inputs + int(self.graph.result_ptr[node])

    def shape(self, value: int) -> tuple[int, ...]:
        return self.graph.type_of(value).shape

    def _region(self, node: int, taken: set[int]) -> Region | None:
        """What follows a transpose of a product, if its layout travels."""
        if self.names[node] != TRANSPOSE or not self.free[node]:
            return None
        [value] = self.graph.operands_of(node).tolist()
        order, shape = self.forms[node], self.shape(self.made(node))
        product = self.maker[value]
        if product < 0 or self.role[product] != Role.CONTRACTION or len(order) != len(shape):
            return None
        if self.names[product] != PRODUCT or self._writes(product, order, value):
            return None
        region = Region(shape, order, node)
        self._spread(region, self.made(node), taken)
        region.nodes = self._behind(region)
        return region if region.reduces and self.made(node) not in self.leaving else None

    def _writes(self, product: int, order: Form, value: int) -> bool:
        """Whether a product writes its result transposed, or it is not known."""
        kinds = groups(self.graph, product)
        if not kinds:
            return True
        merged = max(kinds.count(ROWS), kinds.count(COLUMNS)) > 1
        return (
            not merged and len(self.users[value]) == 1 and writes(kinds, order, self.shape(value))
        )

    def _spread(self, region: Region, value: int, taken: set[int]) -> None:
        """Add the ops that compute from a value, or that it is computed from, at its places."""
        ahead, seen = [value], {region.node}
        while ahead:
            value = ahead.pop()
            users = [self.consumer[entry] for entry in self.users.get(value, ())]
            for other in (*users, self.maker[value]):
                if other < 0 or other in seen or other in taken or not self.free[other]:
                    continue
                if other in users and self._sums(other, region.shape):
                    region.reduces = True
                elif self._along(other, region.shape):
                    operands = self.graph.operands_of(other).tolist()
                    ahead += [self.made(other), *filter(self._computed, operands)]
                else:
                    continue
                seen.add(other)
                region.nodes.append(other)

    def _computed(self, value: int) -> bool:
        return self.maker[value] >= 0 and self.role[self.maker[value]] == Role.ELEMENTWISE

    def _behind(self, region: Region) -> list[int]:
        """The ops of a region without those on one value that comes in: it is transposed after
        them (``MoveCopyToUsers``)."""
        nodes, inside = [], {self.made(region.node)} if region.node >= 0 else set[int]()
        for node in sorted(region.nodes):
            values = self.graph.operands_of(node).tolist()
            if len(values) > 1 or values[0] in inside:
                nodes.append(node)
                inside.add(self.made(node))
        return nodes

    def _along(self, node: int, shape: tuple[int, ...]) -> bool:
        """Whether an op computes each element of such a shape from those at its place."""
        made = self.made(node)
        alone = self.role[node] == Role.ELEMENTWISE and made not in self.leaving
        return alone and self.shape(made) == shape

    def _sums(self, node: int, shape: tuple[int, ...]) -> bool:
        """Whether an op reduces known dims of a value of this shape."""
        if self.names[node] != _REDUCE or self.role[node] != Role.REDUCTION:
            return False
        dims, whole = reduced(self.forms[node])
        operand = self.graph.operands_of(node).tolist()[0]
        return bool(dims) and self.shape(operand) == shape == whole

    def _moved(self, regions: list[Region]) -> WorkloadGraph:
        """The block with the transposes of these regions behind them."""
        graph = self.graph
        self.operand, self.op = graph.operand.copy(), graph.op.copy()
        self.result_type, self.outputs = graph.result_type.copy(), graph.outputs.copy()
        self.found: dict[int, Transpose] = {}
        for region in regions:
            made, source = -1, -1
            if region.node >= 0:
                made, [source] = self.made(region.node), graph.operands_of(region.node).tolist()
            kept = {
                self.made(node): node for node in region.nodes if self.role[node] != Role.REDUCTION
            }
            for node in region.nodes:
                first, end = graph.operand_ptr[node : node + 2].tolist()
                for entry in range(first, end):
                    value = int(graph.operand[entry])
                    if value == made:
                        self.operand[entry] = source
                    elif value not in kept and self._comes_in(value, region):
                        self._enters(entry, value, region)
                if self.role[node] == Role.REDUCTION:
                    dims, _ = reduced(self.forms[node])
                    places = sorted(region.order[dim] for dim in dims)
                    form = (*places, SHAPE, *region.memory)
                    self.op[node] = self._entry((_REDUCE, "", form))
            for value, node in kept.items():
                self.result_type[graph.result_ptr[node]] = self._type(value, region.memory)
                self._leaves(value, region)
        self._more()
        edited = replace(
            graph, operand=self.operand, op=self.op, result_type=self.result_type,
            outputs=self.outputs, role=np.array(self.role, dtype=graph.role.dtype),
            tables=tables_with(graph, self.types, self.entries),
        )  # fmt: skip
        return with_transposes(edited, self.found)

    def _comes_in(self, value: int, region: Region) -> bool:
        """Whether a value is read at its places, behind a reshape or not."""
        return math.prod(self.shape(value)) == math.prod(region.shape)

    def _enters(self, entry: int, value: int, region: Region) -> None:
        """A value that is read in the order in memory: transposed, if it is in memory at all."""
        maker = self.maker[value]
        if maker >= 0 and (self.role[maker] == Role.GENERATE or self.names[maker] == BROADCAST):
            return
        turns = maker >= 0 and self.names[maker] == TRANSPOSE and self.free[maker]
        before, same = self.forms[maker] if turns else (), tuple(range(len(region.back)))
        if len(before) == len(same) and tuple(before[dim] for dim in region.back) == same:
            self.operand[entry] = self.graph.operand[self.graph.operand_ptr[maker]]
            return
        order = region.back
        if self.shape(value) != region.shape:  # the reshape in between leaves no node
            order = (*order, SHAPE, *region.shape)
        self._turned(entry, value, order, self._type(value, region.memory))

    def _leaves(self, value: int, region: Region) -> None:
        """Readers of a value in memory that are not of its region."""
        inside = {*region.nodes}
        for entry in self.users.get(value, ()):
            user = self.consumer[entry]
            if user in inside or self._takes(entry, region):
                continue
            order = self.forms[user]
            if (
                self.names[user] == TRANSPOSE
                and self.free[user]
                and len(order) == len(region.order)
            ):
                both = tuple(region.order[dim] for dim in order)
                if both == tuple(range(len(both))):
                    self.operand[self.operand == self.made(user)] = value
                    self.outputs[self.outputs == self.made(user)] = value
                else:
                    self.op[user] = self._entry((TRANSPOSE, "", both))
                continue
            self._turned(entry, value, region.order, self._type(value, region.shape))
        if value in self.leaving:
            made = self._type(value, region.shape)
            turned = self.found.get(value, Transpose([], region.order, made))
            self.found[value] = turned._replace(leaves=True)

    def _more(self) -> None:
        """Changes beside the regions."""

    def _takes(self, entry: int, region: Region) -> bool:
        """Whether a reader takes a value as it is in memory."""
        return False

    def _turned(self, entry: int, value: int, order: Form, made: int) -> bool:
        """Let an entry read a value in another order; not if others read it in a third one."""
        turned = self.found.setdefault(value, Transpose([], order, made))
        if turned.order == order:
            turned.entries.append(entry)
            self._entry(turned.entry)
        return turned.order == order

    def _type(self, value: int, shape: tuple[int, ...]) -> int:
        """The number of the type of a value in a shape."""
        kind = tensor_type(shape, self.graph.type_of(value).dtype)
        return self.types.setdefault(kind, len(self.types))

    def _entry(self, entry: Entry) -> int:
        return self.entries.setdefault(entry, len(self.entries))
