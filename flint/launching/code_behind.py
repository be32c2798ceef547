"""What a program's code does behind the loops that it is in.

The idea: each call on the stack stands at an instruction.  What can run after it, without the loops
around it, is the code behind; functions and classes of the program's own that this names belong to
it, however deep.  Nothing of it runs: names are looked up in the variables that there are.

    trainings_behind(sys._getframe(), [("backward", "step")])      # [0].place: "train.py:31"
"""

from __future__ import annotations

import dis
import itertools
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from types import CodeType, FrameType
from typing import Any

from flint.capturing.user_frames import STARTS, short_path
from flint.launching import named_code
from flint.launching.named_code import Search

#: Instructions after which the next one does not run.
_LEAVES = frozenset(
    ("JUMP_ABSOLUTE", "JUMP_BACKWARD", "JUMP_BACKWARD_NO_INTERRUPT", "JUMP_FORWARD",
     "RAISE_VARARGS", "RERAISE", "RETURN_CONST", "RETURN_VALUE")
)  # fmt: skip
_JUMPS = frozenset(dis.hasjrel) | frozenset(dis.hasjabs)
#: A loop's line, and what each of its rounds makes.
TRAINS_EACH_ROUND = (
    "each round of the loop at {} makes {}, as a training of its own does: the step is of the first"
)


@dataclass(frozen=True, slots=True, eq=False)
class Behind:
    """Code behind the loops of a call that trains.

    Attributes:
        frame: the call.
        end: the last instruction of its loops.
        place: the first line of the code that leads to a training.
    """

    frame: FrameType
    end: int
    place: str

    def is_reached(self) -> bool:
        """Whether the call has left its loops."""
        return self.frame.f_lasti > self.end


#: Functions that stand for a new process: their callers are in another one.
_processes: set[CodeType] = set()


def begins_process(code: CodeType) -> None:
    """Note the code of a function that calls what would run in a process of its own."""
    _processes.add(code)


#: Calls on the stack, by the numbers of their frames: the code of each, and its instruction.
Calls = dict[int, tuple[CodeType, int]]


def calls_of(frame: FrameType | None) -> Calls:
    """The calls of the program's own on the stack, innermost first."""
    return {id(one): (one.f_code, one.f_lasti) for one in _own_frames(frame)}


def loop_around(before: Calls, frame: FrameType | None) -> str:
    """The innermost loop in which the program is, and was before in the same call.

    Args:
        before: the calls at that time.
        frame: the innermost call now.

    Returns:
        The loop's first line; "" if there is none.
    """
    for one in _own_frames(frame):
        code, instruction = before.get(id(one), (None, -1))
        if code is not one.f_code:
            continue
        loops = [
            first
            for last, first in _backward(dis.get_instructions(code))
            if first <= instruction <= last and first <= one.f_lasti <= last
        ]
        if loops:
            return _place(code, max(loops))
    return ""


def trainings_behind(
    frame: FrameType | None, ways: Collection[Collection[str]], made: Calls | None = None
) -> tuple[Behind, ...]:
    """The calls of the program's own on the stack that have a training behind, innermost first.

    Args:
        frame: the innermost call.
        ways: methods and functions that a training calls, all of one of these.
        made: the calls when what trains was made.  What is behind a call that a loop has made since
            then is in the same round of this loop, and no other training.  None: not known.
    """
    frames = list(_own_frames(frame))
    # A function that a caller calls again, as for a second configuration, trains again.
    codes = [one.f_code for one in frames]
    rounds = 0 if made is None else _calls_of_a_round(frames, made)
    found = (
        _behind(one, frozenset(codes[at:]), ways) for at, one in enumerate(frames) if at >= rounds
    )
    return tuple(one for one in found if one is not None)


def owners_of(frame: FrameType | None, method: str) -> list[Any]:
    """The objects whose method of a name the calls of the program's own on the stack call.

    They may have called it already, or call it later in their code, or in functions that it names.
    Only what names and attributes lead to is found, not what a function is given.
    """
    search = Search()
    for one in _own_frames(frame):
        search.methods(dis.get_instructions(one.f_code), one.f_globals, one.f_locals)
    return search.owners.get(method, [])


def _calls_of_a_round(frames: list[FrameType], made: Calls) -> int:
    """The number of innermost calls that a loop has made, in which nothing was made before."""
    count = 0
    for at, one in enumerate(frames):
        code, instruction = made.get(id(one), (None, -1))
        before = instruction if code is one.f_code else -1
        for last, first in _backward(dis.get_instructions(one.f_code)):
            if first <= one.f_lasti <= last and not first <= before <= last:
                count = at
    return count


def _own_frames(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None and frame.f_code.co_filename != STARTS:
        if frame.f_code in _processes:
            return
        if named_code.is_own_file(frame.f_code.co_filename):
            yield frame
        frame = frame.f_back


def _behind(
    frame: FrameType, running: frozenset[CodeType], ways: Collection[Collection[str]]
) -> Behind | None:
    every = list(dis.get_instructions(frame.f_code))
    end = max([at for at, start in _backward(every) if start <= frame.f_lasti <= at], default=-1)
    now = max(one.offset for one in every if one.offset <= frame.f_lasti)  # it may be in a cache
    after = _reachable(every, now)
    last = max(end, frame.f_lasti)
    behind = [one for one in every if one.offset in after and one.offset > last]
    named, place, wanted = set(), "", set(itertools.chain(*ways))
    search = Search(running)
    for line in _by_line(behind):
        new = search.methods(line, frame.f_globals, frame.f_locals)
        if not place and new & wanted:
            place = _place(frame.f_code, line[0].offset)
        named |= new
    return Behind(frame, last, place) if any(named.issuperset(way) for way in ways) else None


def _backward(every: Iterable[dis.Instruction]) -> Iterator[tuple[int, int]]:
    """The last and the first instruction of each loop."""
    for one in every:
        if one.opcode in _JUMPS and one.argval <= one.offset:
            yield one.offset, one.argval


def _reachable(every: list[dis.Instruction], start: int) -> set[int]:
    """Instructions that can run after one, without errors."""
    places = {one.offset: at for at, one in enumerate(every)}
    waiting, seen = [start], set()
    while waiting:
        offset = waiting.pop()
        if offset in seen or offset not in places:
            continue
        seen.add(offset)
        one = every[places[offset]]
        if one.opcode in _JUMPS:
            waiting.append(one.argval)
        if one.opname not in _LEAVES and places[offset] + 1 < len(every):
            waiting.append(every[places[offset] + 1].offset)
    return seen


def _by_line(instructions: Iterable[dis.Instruction]) -> list[list[dis.Instruction]]:
    """Runs of instructions that begin where a line does."""
    lines: list[list[dis.Instruction]] = []
    for one in instructions:
        if not lines or one.starts_line:
            lines.append([])
        lines[-1].append(one)
    return lines


def _place(code: CodeType, instruction: int) -> str:
    """``file:line`` of an instruction."""
    lines = (line for start, end, line in code.co_lines() if start <= instruction < end)
    return f"{short_path(code.co_filename)}:{next(lines, None) or code.co_firstlineno}"
