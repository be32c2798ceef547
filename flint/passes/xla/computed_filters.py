"""Filters of convolutions that a program computes, which XLA computes in cuDNN's order of dims.

The idea: a filter that elementwise ops make of several values (modulated, standardised) is not
transposed behind them: they, and what is computed from them at the same places, have cuDNN's order
in memory, and what comes in is transposed.  The gradient of the filter has that order already:

    w -> times scale -> transpose -> y = conv(x, turned)       w -> transpose -> times scale -> conv
    dw = conv(x, dy) -> transpose -> times w -> sum            dw = conv(x, dy) -> times turned w

Ops on one value, transposes and reshapes stand between the convolution and these ops: the order is
followed through them.  What is broadcast into them is transposed before, once, if a transpose moves
it.  An op all of whose operands would be transposed comes before: its result is.  A filter that is
a parameter, cut out or converted, stays as ``flint.passes.xla.filters`` has it.

Source: ``layout_assignment.cc`` of openxla/xla (2026), and layouts of compiled programs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final, NamedTuple

from flint.graph.graph import SHAPE, Form, WorkloadGraph
from flint.graph.work import Role
from flint.passes.xla.filters import CONVOLUTION, of_gradient, order_of
from flint.passes.xla.images import FEATURES
from flint.passes.xla.orders import regrouped
from flint.passes.xla.regions import Region
from flint.passes.xla.transposes import TRANSPOSE
from flint.passes.xla.travelling import BROADCAST, Block

_REVERSE: Final = "reverse"
_Shape = tuple[int, ...]


class _Step(NamedTuple):
    """A value between a region and a convolution, which has the region's order in memory.

    Attributes:
        value: what one op makes of the region's values.
        shape, back: its dims, and their order in memory.
    """

    value: int
    shape: _Shape
    back: Form


class _Way(NamedTuple):
    """From a convolution to where an order of dims comes from.

    Attributes:
        end: the value at the far end, with its dims and their order in memory.
        steps: values of ops on one value before it, the nearest to the convolution first.
    """

    end: _Step
    steps: list[_Step]


class ComputedFilters(Block):
    """One block whose filters are computed in the order in which cuDNN reads them.

    Attributes:
        ways: of each region: operand entries of its filter, those of all convolutions that read it
            or its reverse, and the way between.
        ours: operand entries that read a value in its order in memory.
        gradients: ways from gradients of filters to regions, by the gradient.
    """

    def ordered(self) -> WorkloadGraph:
        """The block with transposes before what makes filters, not behind."""
        self.ways = list[tuple[list[int], set[int], _Way]]()
        self.ours, self.gradients = set[int](), dict[int, _Way]()
        regions, taken = list[Region](), set[int]()
        for (value, back), entries in self._filters().items():
            way = self._way(value, back)
            maker = self.maker[way.end.value] if way else -1
            if not way or maker < 0 or maker in taken or not self._along(maker, way.end.shape):
                continue
            region = Region(way.end.shape, _inverse(way.end.back))
            self._spread(region, way.end.value, taken)
            region.nodes = self._behind(region)
            if maker not in region.nodes:
                continue
            regions.append(region)
            taken |= {*region.nodes}
            inside = {*region.nodes}
            outer = [step for step in way.steps if self.maker[step.value] not in inside]
            last = [*way.steps, way.end][len(outer)]  # of the region
            nearest = (outer or [last])[0]
            self.ours |= {*entries}
            if outer:
                self.ours |= {*self._entries(self.maker[outer[-1].value])}
            convolutions = {*entries, *self._reversed(nearest)}
            self.ways.append((entries, convolutions, _Way(last, outer)))
        return self._moved(regions) if regions else self.graph

    def _entries(self, node: int) -> range:
        return range(*self.graph.operand_ptr[node : node + 2].tolist())

    def _filters(self) -> dict[tuple[int, Form], list[int]]:
        """Operand entries of convolutions, by the filter and the order that cuDNN wants."""
        found: dict[tuple[int, Form], list[int]] = {}
        for node, name in enumerate(self.names):
            form, entries = self.forms[node], self._entries(node)
            rank = _rank(form)
            if name != CONVOLUTION or rank < 3 or form[0] != rank - 1 or len(entries) != 2:
                continue
            value = int(self.graph.operand[entries[1]])
            if len(self.shape(value)) == rank:
                found.setdefault((value, order_of(rank, form[2], form[1])), []).append(entries[1])
        return found

    def _way(self, value: int, back: Form) -> _Way | None:
        """From a value back to the first one that several values make; None if an order cannot be
        followed, or moves nothing."""
        shape, steps = self.shape(value), list[_Step]()
        while (maker := self.maker[value]) >= 0 and self.free[maker]:
            operands = self.graph.operands_of(maker).tolist()
            form = self.forms[maker]
            if self.names[maker] == TRANSPOSE and len(form) == len(shape):
                back = tuple(form[dim] for dim in back)
                shape = tuple(shape[dim] for dim in _inverse(form))
            elif self._alone(maker) and value not in self.leaving:
                steps.append(_Step(value, shape, back))
            else:
                break
            [value] = operands
            back = regrouped(shape, back, self.shape(value))
            shape = self.shape(value)
            if not back:
                return None
        end = _Step(value, shape, back)
        return None if back == tuple(range(len(back))) else _Way(end, steps)

    def _alone(self, node: int) -> bool:
        """Whether a node is an elementwise op on one value."""
        return self.role[node] == Role.ELEMENTWISE and len(self._entries(node)) == 1

    def _behind(self, region: Region) -> list[int]:
        """The ops of a region without those all of whose operands come in and would be transposed:
        what they make is transposed instead (``MoveCopyToUsers``)."""
        nodes, inside = list[int](), set[int]()
        for node in sorted(region.nodes):
            values = self.graph.operands_of(node).tolist()
            if self.role[node] == Role.REDUCTION:
                chosen = values[0] in inside
            else:
                chosen = any(value in inside or self._spread_out(value) for value in values)
                inside |= {self.made(node)} if chosen else set()
            nodes += [node] * chosen
        return nodes

    def _spread_out(self, value: int) -> bool:
        """Whether a value is broadcast, or a gradient with an order of its own."""
        maker = self.maker[value]
        if maker < 0:
            return False
        return self.role[maker] == Role.GENERATE or self.names[maker] in (BROADCAST, TRANSPOSE)

    def _takes(self, entry: int, region: Region) -> bool:
        return entry in self.ours

    def _enters(self, entry: int, value: int, region: Region) -> None:
        back = regrouped(region.shape, region.back, self.shape(value))
        way = self._way(value, back) if back else None
        if way and self._is_gradient(way.end):
            self.gradients.setdefault(way.end.value, way)
            self.operand[entry] = way.steps[0].value if way.steps else way.end.value
            self.ours.add(entry)
        elif not self._broadcast(value, region):
            super()._enters(entry, value, region)

    def _is_gradient(self, end: _Step) -> bool:
        """Whether a value is the gradient of a filter that cuDNN writes in this order."""
        node = self.maker[end.value]
        if node < 0 or self.names[node] != CONVOLUTION:
            return False
        form, rank = self.forms[node], _rank(self.forms[node])
        if rank < 3 or form[0] != 0:
            return False
        shapes = [self.shape(value) for value in self.graph.operands_of(node).tolist()]
        same = len(end.shape) == rank and {*map(len, shapes)} == {rank}
        order = of_gradient(shapes, form, end.shape) if same else ()
        return same and (order or order_of(rank, rank - 1, rank - 2)) == end.back

    def _broadcast(self, value: int, region: Region) -> bool:
        """Whether a value is broadcast from one that is transposed; then it is."""
        node = self.maker[value]
        if node < 0 or self.names[node] != BROADCAST or self.shape(value) != region.shape:
            return False
        [source], dims = self.graph.operands_of(node).tolist(), self.forms[node]
        sizes = tuple(region.shape[dim] for dim in dims)
        if math.prod(sizes) != math.prod(self.shape(source)):
            return False
        order = tuple(dims.index(dim) for dim in region.back if dim in dims)
        large = [dim for dim in order if sizes[dim] > 1]
        inside = {*region.nodes}
        alone = all(self.consumer[each] in inside for each in self.users[value])
        if large == sorted(large) or not alone or value in self.leaving:
            return False
        form = order if sizes == self.shape(source) else (*order, SHAPE, *sizes)
        entry, made = self._entries(node)[0], self._type(source, tuple(sizes[d] for d in order))
        if entry not in self.ours and self._turned(entry, source, form, made):
            self.ours.add(entry)
            places = tuple(place for place, dim in enumerate(region.back) if dim in dims)
            self.op[node] = self._entry((BROADCAST, "", places))
            self.result_type[self.graph.result_ptr[node]] = self._type(value, region.memory)
        return True

    def _more(self) -> None:
        for entries, convolutions, way in self.ways:
            self._stored(way.steps, way.end.value)
            nearest = (way.steps or [way.end])[0].value
            self.operand[entries] = nearest
            # The type of a filter tells its places from its features.
            kind = self._type(nearest, self.shape(nearest))
            self.result_type[self.graph.result_ptr[self.maker[nearest]]] = kind
            for entry in convolutions:
                self._ordered(self.consumer[entry])
            self._released(way, self.ours)
        for way in self.gradients.values():
            end = way.end
            self._ordered(self.maker[end.value])
            self._stored(way.steps, end.value)
            self._released(way._replace(steps=[*way.steps, end]), self.ours)

    def _ordered(self, node: int) -> None:
        """A convolution's filter, or the gradient that it gives, has cuDNN's order."""
        self.op[node] = self._entry((CONVOLUTION, CONVOLUTION, self.forms[node]))

    def _stored(self, steps: list[_Step], before: int) -> None:
        """Let each op on one value read the one before; types stay those of the program, which
        tell the places of a filter from its features."""
        for step in reversed(steps):
            entry = self._entries(self.maker[step.value])[0]
            self.operand[entry], before = before, step.value
            self.ours.add(entry)

    def _reversed(self, step: _Step) -> Iterator[int]:
        """Convolutions' entries that read a filter in reverse, for the gradient of their input:
        cuDNN takes the filter as it is."""
        for entry in self.users[step.value]:
            node = self.consumer[entry]
            if self.names[node] != _REVERSE or len(step.shape) != len(self.shape(step.value)):
                continue
            users = self.users.get(self.made(node), [])
            if users and all(self.names[self.consumer[each]] == CONVOLUTION for each in users):
                self.ours.add(entry)
                yield from users

    def _released(self, way: _Way, ours: set[int]) -> None:
        """Give all other readers of values on a way the order of the program."""
        for step in way.steps:
            for entry in self.users.get(step.value, ()):
                user = self.consumer[entry]
                form, made = self.forms[user], self.made(user)
                if entry in ours:
                    continue
                turns = self.names[user] == TRANSPOSE and self.free[user]
                if turns and len(form) == len(self.shape(made)):
                    shape = tuple(self.shape(made)[dim] for dim in _inverse(form))
                    back = regrouped(step.shape, step.back, shape)
                    if back:
                        order = _inverse(back)
                        self.op[user] = self._entry((TRANSPOSE, "", tuple(order[d] for d in form)))
                        continue
                kind = self._type(step.value, step.shape)
                self._turned(entry, step.value, _inverse(step.back), kind)


def _rank(form: Form) -> int:
    return (len(form) - FEATURES) // 2 + 2


def _inverse(order: Form) -> Form:
    return tuple(order.index(dim) for dim in range(len(order)))
