"""Which answer to a condition makes a program's loop continue, or avoids an error.

The idea: a program that tests whether a value is true jumps by the answer, and its bytecode shows
where to.  The innermost loop around such a jump consists of the instructions that lead back to its
head; the answer that stays within it makes the loop continue.  Python compiles a loop's condition
twice, before the loop and at its end: both have the same place in the source.

    while loss > 1e-3:                  # staying(frame) while it is asked: True
        ...
        if difference < 1e-6:           # False
            break
    assert (boxes > 0).all()            # passing(frame) while it is asked: True
"""

from __future__ import annotations

import bisect
import dis
import functools
import itertools
from collections.abc import Callable
from types import CodeType, FrameType

#: Calls that may be between a test and the loop that its answer ends: ``if converged():``.
_DEEP = 4
#: Instructions that pass a value on to the next one.
_HANDED_ON = frozenset(("CACHE", "NOP", "COPY", "TO_BOOL", "EXTENDED_ARG", "PRECALL", "SWAP"))
_ENDS = frozenset(("RETURN_VALUE", "RETURN_CONST", "RAISE_VARARGS", "RERAISE"))


def staying(frame: FrameType | None) -> bool | None:
    """The answer to a frame's current test that makes a loop continue.

    None: no loop depends on it.
    """
    return _wanted(frame, _Code.stays)


def passing(frame: FrameType | None) -> bool | None:
    """The answer to a frame's current test with which the program raises no error.

    None: both answers may raise one, or neither always does.
    """
    return _wanted(frame, _Code.passes)


def _wanted(frame: FrameType | None, at_jump: Callable[[_Code, int], bool | None]) -> bool | None:
    """The answer to a frame's current test that is wanted at the jump that depends on it."""
    is_negated = False
    for _ in range(_DEEP):
        if frame is None:
            return None
        code = _code(frame.f_code)
        place = code.jump_after(frame.f_lasti)
        if place is None:
            return None
        at, is_turned = place
        is_negated ^= is_turned
        if at >= 0:
            answer = at_jump(code, at)
            return None if answer is None else answer != is_negated
        frame = frame.f_back  # the answer is returned
    return None


@functools.lru_cache(maxsize=256)
def _code(code: CodeType) -> _Code:
    return _Code(code)


class _Code:
    """A function's instructions, and the successors of each."""

    def __init__(self, code: CodeType) -> None:
        """Read a function's code."""
        self._all = [item for item in dis.get_instructions(code) if item.opname != "CACHE"]
        self._offsets = [item.offset for item in self._all]
        self._at = {offset: n for n, offset in enumerate(self._offsets)}
        self._next = [self._after(n) for n in range(len(self._all))]
        lasts: dict[int, list[int]] = {}
        for n, after in enumerate(self._next):
            for head in after:
                if head <= n:
                    lasts.setdefault(head, []).append(n)
        self._bodies = sorted((self._body(head, last) for head, last in lasts.items()), key=len)

    def jump_after(self, offset: int) -> tuple[int, bool] | None:
        """The jump that depends on the value of the instruction at an offset, or is that
        instruction.

        Returns:
            Its number, -1 if the value is returned, and whether it is negated before; None if the
            value is used in another way.
        """
        n = bisect.bisect_right(self._offsets, offset) - 1  # a call is at its cache while it runs
        is_turned = False
        if not self._jumps(n) and self._all[n].opname != "UNARY_NOT":
            n += 1
        while n < len(self._all):
            item = self._all[n]
            if self._jumps(n):
                if not self._keeps(n):
                    return n, is_turned
                n = self._at[item.argval]
                continue
            if item.opname == "UNARY_NOT":
                is_turned = not is_turned
            elif item.opname == "RETURN_VALUE":
                return -1, is_turned
            elif item.opname.startswith("STORE_"):
                n = self._read_after(n)
                if n < 0:
                    return None
            elif item.opname not in _HANDED_ON:
                return None
            n += 1
        return None

    def stays(self, jump: int) -> bool | None:
        """Whether a jump's loop continues if the tested value is true, or false."""
        where = self._place(jump)
        for body in self._bodies:
            for n in sorted(body):
                if self._jumps(n) and self._place(n) == where:
                    answers = {after in body: answer for after, answer in self._answers(n)}
                    if len(answers) == 2:
                        return answers[True]
        return None

    def passes(self, jump: int) -> bool | None:
        """For which value a jump does not lead to an error, if it does for the other one."""
        (one, answer), (other, _) = self._answers(jump)
        fails = self._fails(one)
        return None if fails == self._fails(other) else answer != fails

    def _fails(self, n: int) -> bool:
        """Whether all that may follow an instruction in a function ends in an error."""
        seen, left, raises = set[int](), [n], False
        while left:
            n = left.pop()
            if n in seen:
                continue
            seen.add(n)
            if not self._next[n]:
                raises = self._all[n].opname == "RAISE_VARARGS"
                if not raises:
                    return False
            left += self._next[n]
        return raises

    def _answers(self, n: int) -> list[tuple[int, bool]]:
        """Where a jump leads, and for which answer."""
        jumps_if = "TRUE" in self._all[n].opname
        return [(self._at[self._all[n].argval], jumps_if), (n + 1, not jumps_if)]

    def _place(self, jump: int) -> tuple[object, object]:
        """A jump's places in the source: that of its condition and its own."""
        return self._all[jump - 1].positions, self._all[jump].positions

    def _jumps(self, n: int) -> bool:
        name = self._all[n].opname
        return "JUMP" in name and ("TRUE" in name or "FALSE" in name)

    def _keeps(self, n: int) -> bool:
        """Whether a jump leaves the value that it tests: ``return good or excused``."""
        before = n - 1
        while before > 0 and self._all[before].opname in ("TO_BOOL", "EXTENDED_ARG"):
            before -= 1
        return "OR_POP" in self._all[n].opname or self._all[before].opname == "COPY"

    def _read_after(self, n: int) -> int:
        """Where a name that this instruction stores is read for a jump; -1: nowhere."""
        name, count = self._all[n].argval, len(self._all)
        for at in itertools.chain(range(n + 1, count - 1), range(n)):
            item, after = self._all[at], self._all[at + 1].opname
            is_asked = self._jumps(at + 1) or after in ("UNARY_NOT", "TO_BOOL")
            if is_asked and item.opname.startswith("LOAD_") and item.argval == name:
                return at
        return -1

    def _after(self, n: int) -> list[int]:
        item = self._all[n]
        found = []
        if item.opcode in dis.hasjrel or item.opcode in dis.hasjabs:
            found.append(self._at[item.argval])
        is_sure = item.opname.startswith("JUMP") and not self._jumps(n)
        if not is_sure and item.opname not in _ENDS and n + 1 < len(self._all):
            found.append(n + 1)
        return found

    def _body(self, head: int, lasts: list[int]) -> frozenset[int]:
        """Instructions of the loop whose head these lead back to."""
        before: dict[int, list[int]] = {}
        for n, after in enumerate(self._next):
            for follows in after:
                before.setdefault(follows, []).append(n)
        found, left = {head}, lasts[:]
        while left:
            n = left.pop()
            if n not in found:
                found.add(n)
                left += before.get(n, ())
        return frozenset(found)
