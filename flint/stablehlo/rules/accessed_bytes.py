"""Bytes that a kernel of several ops accesses.

The idea: a fusion computes in registers, so only data that crosses its boundary is memory traffic,
and only the part that is *accessed*: a parameter that is sliced inside is read slice by slice, and
a buffer that is updated in place is written only at the update and not read.  These are the
conventions of XLA's ``HloCostAnalysis`` (``HandleFusion``, ``FusionParameterReadBytes``), and tests
compare every kernel of compiled modules with it.  This analysis goes further than XLA's:

    access behind a bitcast, or of an update     XLA: the whole buffer     here: what is accessed
    operand of what only slices read             the whole operand         its part of it
    padded value that only slices read           the whole value           as much as they take
    slice that only slices read                  the whole slice           their parts of it
    gather and scatter in a loop fusion          the whole table           rows taken, updates
    places that a scatter replaces               read and written          written
    result of an update that is read on          nothing of the buffer     what is accessed
    several updates of one buffer                the last                  each
    update of a buffer made inside the fusion    the update                the whole result
    parameter that two broadcasts read           twice                     once

    fusion(stack, x, i) { ROOT dynamic_update_slice(p0, convert(p1), p2) }
    reads x and i, writes as much as the conversion of x; the rest of the stack is aliased
"""

from __future__ import annotations

from flint.stablehlo.read.records import Block, Module, Op
from flint.stablehlo.rules.elementwise import UNIT_OF
from flint.stablehlo.rules.library_calls import stated_bytes

#: A bitcast: an access of its result is an access of its operand.
VIEW = "reshape"
CONSTANT = "constant"

#: Constants of at most this many elements are part of a kernel's code, as in XLA.
IMMEDIATE_ELEMENTS = 8

#: Ops that read as much of their first operand as their result has; a gather at most all of it.
_TAKE = frozenset({"slice", "dynamic_slice", "gather"})

#: What takes a part of a value: the identities of an op and of those that take parts of its result.
_Taker = tuple[int, ...]

#: Ops whose regions use values that are not among their operands.
_CAPTURING = frozenset({"case", "if", "while"})

#: Ops that overwrite part of their first operand.
_UPDATES = frozenset({"dynamic_update_slice", "scatter"})


def accessed_bytes(module: Module, body: Block) -> tuple[int, int, int]:
    """(read, written, aliased) bytes of a kernel that updates in place where possible.

    Args:
        module: whose values they are.
        body: what the kernel does; its arguments are the kernel's operands.
    """
    if any(op.name in _CAPTURING for op in body.ops):
        return copied_bytes(module, body)
    accesses = _Accesses(module, body, {})
    read = sum(accesses.read(value) for value in body.args)
    written = aliased = 0
    for value in body.yields:
        whole = module.type_of(value).bytes
        part = min(whole, accesses.written(value))
        written, aliased = written + part, aliased + whole - part
    return read, written, aliased


def updated_arguments(module: Module, body: Block) -> dict[int, int]:
    """Results of a kernel that are arguments updated in place: result -> argument, by position."""
    accesses = _Accesses(module, body, {})
    found = {value: accesses.buffer(value) for value in body.yields}
    arguments = {value: number for number, value in enumerate(body.args)}
    return {
        number: arguments[buffer]
        for number, value in enumerate(body.yields)
        if (buffer := found[value]) in arguments
    }


def constant_bytes(module: Module, body: Block) -> int:
    """Bytes of a fusion's constants that are too large for the kernel's code."""
    types = [module.type_of(op.results[0]) for op in body.ops if op.name == CONSTANT]
    return sum(item.bytes for item in types if item.elements > IMMEDIATE_ELEMENTS)


def copied_bytes(module: Module, body: Block) -> tuple[int, int, int]:
    """(read, written, aliased) bytes of a kernel that writes its results elsewhere.

    A custom call that states how much of its results it writes leaves the rest as it was.
    """
    whole = sum(module.type_of(value).bytes for value in body.yields)
    accesses = _Accesses(module, body, {})
    written = sum(accesses.made(value) for value in body.yields)
    return sum(taken_bytes(module, body)), written, whole - written


def taken_bytes(module: Module, body: Block) -> tuple[int, ...]:
    """Bytes of each argument that a kernel reads if it writes its results elsewhere.

    Looked-up rows of a table, slices, and anything else in full.

    Args:
        module: whose values they are.
        body: what the kernel does; its arguments are the kernel's operands.
    """
    if any(op.name in _CAPTURING for op in body.ops):
        return tuple(module.type_of(value).bytes for value in body.args)
    accesses = _Accesses(module, body, {})
    return tuple(accesses.taken(value) for value in body.args)


class _Accesses:
    """What the ops of one fused computation access.

    ``known`` has the same for the computations inside, by identity, so that each is analysed once.
    """

    def __init__(self, module: Module, body: Block, known: dict[int, _Accesses]) -> None:
        self.module = module
        self.body = body
        self.known = known
        self._found: dict[int, tuple[dict[_Taker, int], bool]] = {}
        self.uses: dict[int, list[Op]] = {}
        self.makers: dict[int, Op] = {}
        for op in body.ops:
            for value in dict.fromkeys(op.operands):
                self.uses.setdefault(value, []).append(op)
            for value in op.results:
                self.makers[value] = op
        self._in_place: set[int] = set()  # ops that overwrite part of a buffer from outside
        for op in body.ops:
            if op.name in _UPDATES:
                maker = self._maker(op.operands[0])
                if maker is None or id(maker) in self._in_place:
                    self._in_place.add(id(op))

    def read(self, value: int) -> int:
        """Bytes of an argument that are read: slices as often as they are taken, the whole once."""
        parts, whole = self._read(value)
        return sum(parts.values()) + (self._bytes(value) if whole else 0)

    def taken(self, value: int) -> int:
        """Bytes of an argument that are read if nothing is updated in place."""
        return min(self._taken(value), self._bytes(value))

    def _taken(self, value: int) -> int:
        parts = self._bytes(value) if value in self.body.yields else 0
        for op in self.uses.get(value, ()):
            if op.name in _TAKE and value not in op.operands[1:]:
                parts += self.taken(op.results[0])
            elif op.name == VIEW:
                parts += self._taken(op.results[0])
            elif (stated := stated_bytes(op)) is not None:
                pairs = zip(op.operands, stated[0], strict=True)
                parts += sum(count for operand, count in pairs if operand == value)
            else:
                parts += self._bytes(value)
        return parts

    def made(self, value: int) -> int:
        """Bytes of a result that are written if nothing is updated in place."""
        maker = self.makers.get(value)
        stated = None if maker is None else stated_bytes(maker)
        if maker is None or stated is None:
            return self._bytes(value)
        return min(stated[1][maker.results.index(value)], self._bytes(value))

    def written(self, value: int) -> int:
        """Bytes of a result that are written; for an argument updated in place, those of the
        updates.
        """
        if not self._updated(value):
            return self._bytes(value)
        maker = self._maker(value)
        total = 0
        while maker is not None:
            total += self._bytes(_update(maker))
            maker = self._maker(maker.operands[0])
        return total

    def _read(self, value: int) -> tuple[dict[_Taker, int], bool]:
        """(bytes of the parts of a value that are read, by what takes them; whether it is read as a
        whole).
        """
        if not self._found:  # from the last op on: a long chain would be a deep recursion
            for op in reversed(self.body.ops):
                self._found |= {result: self._look(result) for result in op.results}
            self._found |= {argument: self._look(argument) for argument in self.body.args}
        return self._found[value]

    def _look(self, value: int) -> tuple[dict[_Taker, int], bool]:
        parts: dict[_Taker, int] = {}
        shares: dict[_Taker, int] = {}  # of what is computed element by element
        whole = False
        for op in self.uses.get(value, ()):
            first = op.operands[0] == value and op.operands.count(value) == 1
            more: dict[_Taker, int] = {}
            all_of_it = False
            if first and op.name in _TAKE:
                taken, all_of_it = self._read(op.results[0])
                size = min(self._bytes(op.results[0]), self._bytes(value))
                if all_of_it or sum(taken.values()) >= size:
                    more, all_of_it = {(id(op),): size}, False
                else:
                    more = {(id(op), *taker): part for taker, part in taken.items()}
            elif first and id(op) in self._in_place:
                more, all_of_it = self._read(op.results[0])
                if _combines(op):
                    more = more | {(id(op),): self._bytes(_update(op))}
            elif op.name == VIEW:
                more, all_of_it = self._read(op.results[0])
            elif self._alike(op, value):
                taken, all_of_it = self._read(op.results[0])
                shares |= {taker: self._part(op, value, size) for taker, size in taken.items()}
            elif first and op.name == "pad":  # a part of the result has at most as much of it
                taken, all_of_it = self._read(op.results[0])
                shares |= {taker: min(size, self._bytes(value)) for taker, size in taken.items()}
            elif op.name == "fusion" and op.regions:
                inner = self._inside(op.regions[0])
                for argument, operand in zip(op.regions[0].args, op.operands, strict=True):
                    if operand == value:
                        part, rest = inner._read(argument)
                        more, all_of_it = more | part, all_of_it or rest
            else:
                all_of_it = True
            for taker, size in more.items():
                parts[taker] = max(size, parts.get(taker, 0))
            whole = whole or all_of_it
        whole = whole or sum(shares.values()) >= self._bytes(value) > 0
        if not whole:
            parts |= shares
        # A result that is the argument itself is written from it; one that was updated is there.
        return parts, whole or (value in self.body.yields and not self._updated(value))

    def _alike(self, op: Op, value: int) -> bool:
        """Whether a part of an op's result is made from an equally large part of an operand."""
        if op.name == "reduce":
            return op.operands.count(value) == 1 and op.operands[0] == value
        same = self.module.type_of(value).elements == self.module.type_of(op.results[0]).elements
        return same and (op.name in UNIT_OF or op.name == "transpose")

    def _part(self, op: Op, value: int, size: int) -> int:
        return -(-size * self._bytes(value) // max(self._bytes(op.results[0]), 1))

    def _updated(self, value: int) -> bool:
        """Whether a value is a buffer from outside that was updated in place."""
        maker = self._maker(value)
        return maker is not None and id(maker) in self._in_place

    def buffer(self, value: int) -> int | None:
        """The value from outside whose buffer this one is, updated in place; None if none is."""
        if not self._updated(value):
            return None
        while (maker := self.makers.get(value)) is not None:
            value = maker.operands[0]
        return value

    def _inside(self, body: Block) -> _Accesses:
        found = self.known.get(id(body))
        if found is None:
            found = self.known[id(body)] = _Accesses(self.module, body, self.known)
        return found

    def _maker(self, value: int) -> Op | None:
        maker = self.makers.get(value)
        while maker is not None and maker.name == VIEW:
            maker = self.makers.get(maker.operands[0])
        return maker

    def _bytes(self, value: int) -> int:
        return self.module.type_of(value).bytes


def _update(op: Op) -> int:
    """The operand that an update writes; for a scatter, the last one."""
    return op.operands[1] if op.name == "dynamic_update_slice" else op.operands[-1]


def _combines(op: Op) -> bool:
    """Whether an update reads the old content where it writes: not if its region ignores it."""
    if op.name != "scatter" or not op.regions:
        return op.name == "scatter"
    region = op.regions[0]
    old = set(region.args[: len(region.args) // 2])
    used = {value for inner in region.ops for value in inner.operands} | set(region.yields)
    return not old.isdisjoint(used)
