"""The loop of a program that has no optimizer, from the sequence of ops that it ran.

The idea: ops of the device are noted by their name and the lines that led to them, and so are
outermost calls of models and ends of backward passes.  The ops of a loop occur in this sequence
several times in a row.  The longest such stretch that is not within one call of a model is the
program's loop; an op that occurs in it once per round marks the rounds, on other ranks and when the
program runs again.  If there is none, the mark is an op with those right before it.

    ops.noted(op); ...; ops.loop()       # Loop("5f1c", count=7, place="train.py:12")
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import sys
from array import array
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass
from types import CodeType, FrameType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flint.capturing.user_frames import is_silent, short_path
from flint.launching.program import StepChoice

#: The name of a step that is found in this way.
NAME = "loop"

#: Number of distances that are examined: those between equal ops that cover the most.
_DISTANCES = 64
#: How often the rarest op of a round may occur in it.
_RAREST = 4

#: Reads by the host are not work of the device: a loss may be printed every tenth time.
_READS = ("aten._local_scalar_dense", "aten.is_nonzero", "aten.equal")
#: Between the marks of a round.
_AND = "+"
#: Questions about a tensor (``prim.device``) belong to a round, but do not make one.
_QUESTIONS = "prim."

#: What is noted where a backward pass ends.
_BACKWARD = "backward"

_Lines = tuple[tuple[str, int], ...]
#: The number of a function's code and the instruction that runs, alternating.
_Calls = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Loop:
    """The loop of a program.

    Attributes:
        mark: the marks of the op that begins each round and of those before it, the last one first.
        count: whole rounds.
        place: the program's line that begins a round.
        is_whole: a round ends a backward pass, if the program runs any.  What repeats between two
            of them is a part of a training's round.
    """

    mark: str
    count: int
    place: str
    is_whole: bool


class Ops:
    """The ops that a program has run, in order."""

    def __init__(self, choice: StepChoice, begins: Callable[[], None]) -> None:
        """Note ops, or wait for the one with the step's mark, if that is known.

        Args:
            choice: the wanted step.
            begins: called before the op with the mark runs.
        """
        self._mark, self._begins = choice.mark.split(_AND) if choice.mark else [], begins
        self._before: deque[str] = deque(maxlen=len(self._mark))
        self._is_kept = choice.name == NAME
        self._numbers: dict[tuple[str, bool, _Lines], int] = {}
        self._known: dict[tuple[str, bool, _Calls], int] = {}
        self._marks: list[str] = []
        self._sequence = array("q")
        self.runs_backward = False
        self._is_over = False

    def over(self) -> None:
        """There are other steps: stop noting, unless the user wants this one."""
        if self._mark or self._is_kept:
            return
        self._is_over = True
        self._sequence = array("q")

    def op(self, op: Any, is_inside: bool) -> None:
        """An op of the device is about to run, inside a module or not."""
        name = str(op)
        if not name.startswith(_READS):
            self._note(name, is_inside)

    def called(self, module: Any) -> None:
        """A model is called, not from within another one."""
        self._note(type(module).__name__, False)

    def ran_backward(self) -> None:
        """A backward pass has ended."""
        self.runs_backward = True
        self._note(_BACKWARD, False)

    def _note(self, name: str, is_inside: bool) -> None:
        if self._is_over:
            return
        calls = _calls(sys._getframe(2))
        number = self._known.get((name, is_inside, calls))
        if number is None:
            key = name, is_inside, _lines(calls)
            number = self._numbers.setdefault(key, len(self._numbers))
            self._known[name, is_inside, calls] = number
            if number == len(self._marks):
                self._marks.append(_mark(key))
        if not self._mark:
            self._sequence.append(number)
            return
        self._before.appendleft(self._marks[number])
        if list(self._before) == self._mark:
            self._begins()

    def loop(self) -> Loop | None:
        """The loop that covers most of what has run, if any ran twice in a row."""
        sequence = np.array(self._sequence)
        keys = list(self._numbers)
        outside = np.array([not (of[1] or of[0].startswith(_QUESTIONS)) for of in keys], bool)
        found = _longest(sequence, outside)
        if found is None:
            return None
        start, period = found
        ops = sequence[start : start + period].tolist()
        stacks = [keys[number][2] for number in ops]
        level = _common(stacks)
        lines = [stack[level][1] if len(stack) > level else 0 for stack in stacks]
        # A round begins after its last line has ended.
        last = max(range(period), key=lambda at: (lines[at], at))
        order = [*range(last + 1, period), *range(last + 1)]
        often = Counter(ops)
        first = min(order, key=lambda at: often[ops[at]])
        place = stacks[first][: level + 1] or (("", 0),)
        begin = _unlike_others(ops, first)
        return Loop(
            mark=_AND.join(self._marks[number] for number in begin),
            count=_count(sequence, begin) - 1,
            place=f"{short_path(place[-1][0])}:{place[-1][1]}",
            is_whole=not self.runs_backward or any(keys[at][0] == _BACKWARD for at in ops),
        )


def _unlike_others(ops: list[int], at: int) -> list[int]:
    """An op of a round and those right before it, the last one first: as many as occur once."""
    for length in range(1, len(ops) + 1):
        every = [tuple(ops[one - back] for back in range(length)) for one in range(len(ops))]
        if every.count(every[at]) == 1:
            return list(every[at])
    return [ops[at]]  # which is the same several times


def _count(sequence: NDArray[np.int64], begin: list[int]) -> int:
    """How often an op is there with those before it."""
    size = len(sequence) - len(begin) + 1
    parts = (sequence[at : at + size] == number for at, number in enumerate(reversed(begin)))
    return int(np.logical_and.reduce(list(parts)).sum())


def _common(stacks: list[_Lines]) -> int:
    """The number of outermost lines that are the same in all."""
    first, last = min(stacks), max(stacks)
    same = (one == other for one, other in zip(first, last, strict=False))
    return sum(itertools.takewhile(bool, same))


def _calls(frame: FrameType | None) -> _Calls:
    """The running calls of the program and its libraries, from the innermost to the outermost.

    This is called at every op: lines are looked up only for calls that are new.
    """
    found: list[int] = []
    while frame is not None:
        code = frame.f_code
        number = _codes.get(id(code))
        if number is None:
            number = _number(code)
        if number >= 0:
            found += number, frame.f_lasti
        frame = frame.f_back
    return tuple(found)


def _number(code: CodeType) -> int:
    """A number for a function's code, which is kept; -1: no place to name."""
    number = -1 if is_silent(code.co_filename) else len(_kept)
    _kept.append(code)
    _codes[id(code)] = number
    return number


def _lines(calls: _Calls) -> _Lines:
    """Files and lines of calls, from the outermost to the innermost."""
    places = zip(calls[-2::-2], calls[-1::-2], strict=True)
    return tuple((_kept[number].co_filename, _line(number, at)) for number, at in places)


@functools.cache
def _line(number: int, at: int) -> int:
    """The line of an instruction; as ``frame.f_lineno`` says."""
    code = _kept[number]
    lines = (line for start, end, line in code.co_lines() if start <= at < end)
    return next(lines, None) or code.co_firstlineno


#: Functions' code that has been looked at, and its place in this list; -1 of what is silent.
_kept: list[CodeType] = []
_codes: dict[int, int] = {}


def _mark(key: tuple[str, bool, _Lines]) -> str:
    return hashlib.blake2b(repr(key).encode(), digest_size=8).hexdigest()


def _longest(sequence: NDArray[np.int64], outside: NDArray[np.bool_]) -> tuple[int, int] | None:
    """The start and the length of the longest stretch that repeats its beginning.

    Args:
        sequence: numbers of ops, shape [count].
        outside: of each number, whether it is outside of any model's call.
    """
    order = np.argsort(sequence, kind="stable")
    best, found = 0, None
    likely = (_likely(sequence, order, often) for often in range(1, _RAREST + 1))
    for period in sorted(set(itertools.chain.from_iterable(likely))):
        # Positions between which everything equals what comes one period later.
        breaks = np.flatnonzero(sequence[:-period] != sequence[period:])
        edges = np.concatenate(([-1], breaks, [len(sequence) - period]))
        at = int(np.argmax(np.diff(edges)))
        start, length = int(edges[at]) + 1, int(edges[at + 1] - edges[at]) - 1 + period
        is_loop = length >= 2 * period and outside[sequence[start : start + period]].any()
        if is_loop and length // period * period > best:
            best, found = length // period * period, (start, period)
    return found


def _likely(sequence: NDArray[np.int64], order: NDArray[np.int64], often: int) -> list[int]:
    """Distances of an op to one that is equal, of those behind it the one of that number.

    Args:
        sequence: numbers of ops, shape [count].
        order: their places, sorted by number.
        often: 1 for the next one.
    """
    same = sequence[order][often:] == sequence[order][:-often]
    distances, counts = np.unique((order[often:] - order[:-often])[same], return_counts=True)
    most = np.argsort(-distances * counts, kind="stable")[:_DISTANCES]
    likely: list[int] = distances[most].tolist()
    return likely
