"""Layouts that batched products want of what they read, which XLA spreads to where it is made.

The idea: a batched product reads its operands as batch, rows and columns of matrices, in any order
in which the dims of each stay together (``flint.passes.xla.orders``); XLA transposes one that is in
no such order (``DotDecomposer``).  Where elementwise ops make it, what they read is transposed, not
what they make (``LayoutAssignment`` spreads the wish of the earliest product upwards, until
something cannot follow, such as the reshape of another product's result):

    x [b, t, h, d] -> elu -> product over t               x transposed -> elu -> product
                         |-> sum over t                                     |-> sum

That matters where several kernels read what is made: each of them transposes.  Other products and
reductions read it as it is in memory if they can; else it is transposed back.  An update of a slice
has the order of what it updates, so that a cache is transposed, copied and updated, and transposed
back where it leaves the program; in a loop's body its order stays.  Products with
vectors are sums (``flint.passes.xla.small_products``), which read anything.  What is cut out of a
value has one order for all products that can read it, the first one's.  Where a reshape in front of
a product leaves no node, its dims are not known, unless it removes dims of size 1, and nothing is
transposed here.

Sources: ``dot_decomposer.cc``, ``layout_assignment.cc`` of openxla/xla (2023 to 2026), and layouts
of compiled programs.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from flint.graph.graph import Form, WorkloadGraph
from flint.graph.tensor_types import TensorType
from flint.graph.work import Role
from flint.passes.xla.merged_products import SLICE
from flint.passes.xla.orders import BATCH, COLUMNS, PRODUCT, ROWS, reads, writes
from flint.passes.xla.regions import Region
from flint.passes.xla.split_dims import contracted_dims
from flint.passes.xla.transposes import COPY, TRANSPOSE, Entry, Transpose
from flint.passes.xla.travelling import Block
from flint.passes.xla.updates import UPDATE


class _Again(NamedTuple):
    """A product's operand that is transposed otherwise than in the program.

    Attributes:
        entry: the operand entry.
        source: what the program transposes.
        order: the permutation of that.
        back: the permutation of the operand in the program.
    """

    entry: int
    source: int
    order: Form
    back: Form


class Wanted(Block):
    """One block whose values are in the orders that products want.

    Args:
        graph, types, entries: as of ``Block``.
        whole: whether the block is no loop's body, whose carried values keep their order.
    """

    def __init__(
        self,
        graph: WorkloadGraph,
        types: dict[TensorType, int],
        entries: dict[Entry, int],
        whole: bool,
    ) -> None:
        super().__init__(graph, types, entries)
        self.whole = whole

    def claims(self) -> dict[int, list[int]]:
        """Product -> nodes that make what it reads, in the order that it wants."""
        found, taken = dict[int, list[int]](), set[int]()
        self.inferred = self._inferred()
        for entry, back in self._wishes():
            if region := self._region_of(entry, back, taken):
                found.setdefault(self.consumer[entry], []).extend(region.nodes)
                taken |= {*region.nodes}
        return found

    def wished(self) -> WorkloadGraph:
        """The block with transposes of what products read, before what makes it."""
        regions, taken = [], set[int]()
        self.inferred = self._inferred()
        wishes = list(self._wishes())
        for entry, back in wishes:
            if region := self._region_of(entry, back, taken):
                regions.append(region)
                taken |= {*region.nodes}
        for node in taken:
            if self.names[node] == COPY:  # copies are made after everything is fused
                self.role[node] = Role.OPAQUE
        self.wishes = [wish for wish in wishes if self.maker[self._value(wish[0])] not in taken]
        self.again = [each for each in self._transposed() if self.maker[each.source] not in taken]
        return self._moved(regions) if wishes or self.again else self.graph

    def _value(self, entry: int) -> int:
        return int(self.graph.operand[entry])

    def _wishes(self) -> Iterator[tuple[int, Form]]:
        """Operand entries of products that want another order of dims, and the order."""
        for node in range(len(self.graph)):
            for side in range(2 if self.names[node] == PRODUCT else 0):
                kinds = self._kinds(node, side)
                entry = int(self.graph.operand_ptr[node]) + side
                value = self._value(entry)
                shape, same = self.shape(value), tuple(range(len(kinds)))
                inferred = self.inferred.get(value, same)
                if kinds and inferred != same and writes(kinds, inferred, shape):
                    yield entry, inferred
                elif kinds and not writes(kinds, same, shape):
                    yield entry, tuple(self._wanted(kinds, side))

    def _inferred(self) -> dict[int, Form]:
        """Values that XLA takes to be in another order of dims, the slowest first, before it
        assigns layouts: transposes move nothing, elementwise ops have the order of their first
        operand."""
        found: dict[int, Form] = {}
        for node in range(len(self.graph)):
            if not self.free[node]:
                continue
            values, made = self.graph.operands_of(node).tolist(), self.made(node)
            order, shape = self.forms[node], self.shape(made)
            if self.names[node] == TRANSPOSE and len(order) == len(shape):
                before = found.get(values[0], tuple(range(len(order))))
                found[made] = tuple(order.index(dim) for dim in before)
            elif self.role[node] == Role.ELEMENTWISE:
                first = next((each for each in values if self.shape(each) == shape), -1)
                if first in found:
                    found[made] = found[first]
        return found

    def _transposed(self) -> Iterator[_Again]:
        """Operand entries of products that are transposes, in another order than products want."""
        for node in range(len(self.graph)):
            for side in range(0 if self._canonical(node) else 2):
                entry = int(self.graph.operand_ptr[node]) + side
                value = self._value(entry)
                maker = self.maker[value]
                if maker < 0 or self.names[maker] != TRANSPOSE or not self.free[maker]:
                    continue
                order, shape, kinds = self.forms[maker], self.shape(value), self._kinds(node, side)
                if not kinds or len(order) != len(shape):
                    continue
                wanted = tuple(self._wanted(kinds, side))
                memory = tuple(np.argsort(order).tolist())
                wanted = memory if reads(kinds, memory, shape) else wanted
                if wanted == tuple(range(len(order))):
                    continue
                [source] = self.graph.operands_of(maker).tolist()
                yield _Again(entry, source, tuple(order[dim] for dim in wanted), wanted)

    def _canonical(self, node: int) -> bool:
        """Whether a node is no product whose operands XLA brings into an order of its own: all of
        the batch is in front, or can be for all that is known."""
        for side in range(2 if self.names[node] == PRODUCT else 0):
            kinds = self._kinds(node, side)
            if kinds and kinds != sorted(kinds, key=lambda kind: kind != BATCH):
                return False
            if kinds and len(kinds) > kinds.count(BATCH) + 2:
                return False
            if not kinds and not self._leads(node, side):
                return False
        return True

    def _leads(self, product: int, side: int) -> bool:
        """Whether some leading dims of an operand have as many elements as the batch."""
        number = int(self.graph.work_gemm[self.graph.work_ptr[product]])
        batch = self.graph.tables.gemms[number][0] if number >= 0 else 1
        shape = self.shape(int(self.graph.operands_of(product)[side]))
        return batch in itertools.accumulate(shape, operator.mul, initial=1)

    def _wanted(self, kinds: list[int], side: int) -> Iterator[int]:
        """Dims of an operand in the order of XLA's products."""
        wanted = (BATCH, ROWS, COLUMNS) if side == 0 else (BATCH, COLUMNS, ROWS)
        return (dim for kind in wanted for dim, each in enumerate(kinds) if each == kind)

    def _region_of(self, entry: int, back: Form, taken: set[int]) -> Region | None:
        """What makes an operand at its places; None if it is nothing that several kernels read."""
        value = self._value(entry)
        maker = self.maker[value]
        order = tuple(back.index(dim) for dim in range(len(back)))
        region = Region(self.shape(value), order)
        if maker < 0 or maker in taken or not self._along(maker, region.shape):
            return None
        self._spread(region, value, taken)
        region.nodes.sort()
        several = (self._readers(self.made(node)) > 1 for node in region.nodes)
        return region if any(several) else None

    def _readers(self, value: int) -> int:
        """Readers of a value; leaving the block counts as one."""
        return len(self.users.get(value, ())) + (value in self.leaving)

    def _along(self, node: int, shape: tuple[int, ...]) -> bool:
        """Also an update of a slice, which has the order of what it updates, in a whole program."""
        updates = self.whole and self.names[node] in (UPDATE[0], COPY)
        return (updates and self.shape(self.made(node)) == shape) or super()._along(node, shape)

    def _computed(self, value: int) -> bool:
        maker = self.maker[value]
        return super()._computed(value) or (maker >= 0 and self.names[maker] in (UPDATE[0], COPY))

    def _kinds(self, product: int, side: int) -> list[int]:
        """Of each dim of a batched product's operand: whether it is of the batch, kept (rows) or
        contracted (columns); none if that is not known."""
        graph = self.graph
        items = slice(*graph.work_ptr[product : product + 2].tolist())
        numbers = graph.work_gemm[items].tolist()
        operands = graph.operands_of(product).tolist()
        if self.role[product] != Role.CONTRACTION or len(numbers) != 1 or len(operands) != 2:
            return []
        batch, m, n, k = graph.tables.gemms[numbers[0]] if numbers[0] >= 0 else (1, 1, 1, 1)
        form, shape = self.forms[product], self.shape(operands[side])
        half = len(form) // 2
        dims = contracted_dims(shape, form[half:] if side else form[:half], k)
        if batch == 1 or min(m, n) == 1 or not dims:
            return []
        found = [COLUMNS if dim in dims else ROWS for dim in range(len(shape))]
        # The result begins with the dims of the batch.
        for size in self.shape(self.made(product)):
            if batch == 1:
                break
            kept = (dim for dim, each in enumerate(shape) if found[dim] == ROWS and each == size)
            place = next(kept, -1)
            if place < 0 or batch % size:
                return []
            found[place], batch = BATCH, batch // size
        return found if batch == 1 else []

    def _more(self) -> None:
        for entry, back in self.wishes:
            value = self._value(entry)
            made = self._type(value, tuple(self.shape(value)[dim] for dim in back))
            if self._turned(entry, value, back, made):
                self._reads(entry, back)
        for value, turned in self.found.items():
            if self.maker[value] >= 0 and self.names[self.maker[value]] == SLICE:
                self._shared(value, turned)
        for each in self.again:
            value = self._value(each.entry)
            if each.order == tuple(range(len(each.order))):
                self.operand[each.entry] = each.source
            else:
                shape = tuple(self.shape(value)[dim] for dim in each.back)
                if not self._turned(each.entry, each.source, each.order, self._type(value, shape)):
                    continue
            self._reads(each.entry, each.back)

    def _shared(self, value: int, turned: Transpose) -> None:
        """Let all products that can read what is cut out in the first one's order."""
        for entry in self.users[value]:
            if entry not in turned.entries and self._accepts(entry, turned.order):
                turned.entries.append(entry)

    def _takes(self, entry: int, region: Region) -> bool:
        return self._accepts(entry, region.back)

    def _accepts(self, entry: int, back: Form) -> bool:
        """Whether a product reads an operand in an order; it is noted."""
        product = self.consumer[entry]
        if self.names[product] != PRODUCT:
            return False
        kinds = self._kinds(product, entry - int(self.graph.operand_ptr[product]))
        if not kinds or not writes(kinds, back, self.shape(self._value(entry))):
            return False
        self._reads(entry, back)
        return True

    def _reads(self, entry: int, back: Form) -> None:
        """Note that a product's operand has its dims in another order: those that it contracts."""
        product = self.consumer[entry]
        form = list(self.entries)[self.op[product]][2]
        half, side = len(form) // 2, entry - int(self.graph.operand_ptr[product])
        sides = [form[:half], form[half:]]
        number = int(self.graph.work_gemm[self.graph.work_ptr[product]])
        k, shape = self.graph.tables.gemms[number][3], self.shape(self._value(entry))
        sides[side] = tuple(back.index(dim) for dim in contracted_dims(shape, sides[side], k))
        self.op[product] = self._entry((PRODUCT, "", (*sides[0], *sides[1])))
