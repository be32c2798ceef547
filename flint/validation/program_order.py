"""Comparing the programs of a sequence with those that a rank ran: their order and number.

The idea: a step calls the same programs each time, so the programs of a trace are those of the
capture, repeated; the trace may begin and end within a step.  Other programs in between count only
if they communicate or multiply: a step that makes constants outside its jits runs small programs
that a capture evaluates.  CPU devices may begin a program before another one on which it does not
depend.

    compare_order(workload, read_runs(path, first), report)
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from flint.host.readable import counted
from flint.observed.classes import OpClass
from flint.observed.program_runs import ProgramRun, ProgramRuns
from flint.validation.expected.programs import in_run, is_move
from flint.validation.report.report import Difference, Report
from flint.workload.programs import Call
from flint.workload.workload import Workload

#: The program that moves an array between processes; within one process none runs.
_MOVES = ("jit__identity_fn", "jit_device_put")
OTHER_ORDER = "independent programs that started in another order than they were called"
_WITHIN = "the trace begins or ends within a step"


@dataclass(frozen=True, slots=True)
class _Expected:
    """The calls of a step that are programs in a run.

    Attributes:
        calls: the calls, in order.
        names: names of their modules.
        types: name -> types of these modules' arguments and results.
        before: for each call, the numbers of those whose results it uses.
    """

    calls: tuple[Call, ...]
    names: tuple[str, ...]
    types: dict[str, set[str]]
    before: tuple[frozenset[int], ...]


def compare_order(workload: Workload, runs: ProgramRuns, report: Report) -> None:
    """Compare the order of the programs, and how often each is called, on all ranks of a trace.

    Args:
        workload: a workload of programs in sequence.
        runs: the programs that the ranks ran.
        report: results are added here.
    """
    own = [(program.ranks, _expected(program.calls)) for program in workload.programs]
    for rank, found in runs.by_rank.items():
        number = np.array([rank])
        [expected] = [calls for ranks, calls in own if ranks.contains(number)[0]] or [own[0][1]]
        ran = _told_apart(expected, found)
        mine = _within_steps(
            expected, ran, [place for place, run in enumerate(ran) if run.name in expected.names]
        )
        if not mine:
            continue  # its absence is reported program by program
        names = [ran[place].name for place in mine]
        first = _first(expected.names, names)
        if first is None:
            different = list(_wrong(expected, names, rank, runs.backend, report))
            for item in different:
                report.add(item)
            first = 0
        elif first or len(names) % len(expected.names):
            report.note(_WITHIN)
        for item in _others(expected, ran, mine, first, rank):
            report.add(item)


def _expected(calls: Sequence[Call]) -> _Expected:
    kept = [number for number, call in enumerate(calls) if not is_move(call)]
    place = {number: position for position, number in enumerate(kept)}
    before: list[frozenset[int]] = []
    direct: dict[int, set[int]] = {}
    for number, call in enumerate(calls):  # through calls that are not programs in a run
        makers = {item.program for item in call.operands if item.program >= 0}
        direct[number] = makers.union(*(direct[maker] for maker in makers))
    for number in kept:
        before.append(frozenset(place[item] for item in direct[number] if item in place))
    chosen = tuple(calls[number] for number in kept)
    programs = [in_run(call) for call in chosen]
    types: dict[str, set[str]] = defaultdict(set)
    for program in programs:
        types[program.name].add(program.types)
    return _Expected(chosen, tuple(item.name for item in programs), types, tuple(before))


def _told_apart(expected: _Expected, ran: Sequence[ProgramRun]) -> list[ProgramRun]:
    """The runs; programs of a captured name, but of other types than others have, are others."""
    known = {run.name for run in ran if run.types in expected.types.get(run.name, ())}
    return [
        run._replace(name=f"{run.name} of other types")
        if run.name in known and run.types not in expected.types[run.name]
        else run
        for run in ran
    ]


def _within_steps(expected: _Expected, ran: Sequence[ProgramRun], mine: list[int]) -> list[int]:
    """The places without light programs before the first heavy one that are of no step.

    What initialises a training also runs small programs, some of the same names and types.
    """
    names = [ran[place].name for place in mine]
    light = next((n for n, place in enumerate(mine) if ran[place].heavy), 0)
    fits = (n for n in range(light + 1) if _first(expected.names, names[n:]) is not None)
    return mine[next(fits, 0) :]


def _first(expected: Sequence[str], names: Sequence[str]) -> int | None:
    """Which call of a step the first program is, if the trace repeats that step."""
    size = len(expected)
    for first in range(size):
        if expected[first] == names[0] and len(names) >= size:
            repeated = (expected[(first + n) % size] for n in range(len(names)))
            if all(a == b for a, b in zip(repeated, names, strict=True)):
                return first
    return None


def _wrong(
    expected: _Expected, names: Sequence[str], rank: int, backend: str, report: Report
) -> Iterator[Difference]:
    """Differences from the capture: numbers of calls, else their order."""
    size = len(expected.names)
    asked, found = Counter(expected.names), Counter(names)
    steps = _steps(asked, found)
    uneven = [name for name in asked if found[name] != steps * asked[name]]
    for name in uneven:
        call = expected.calls[expected.names.index(name)]
        yield _difference(
            "not as often", rank, expected.names.index(name),
            f"program {name}: {counted(found[name], 'run')} in {counted(steps, 'step')}, captured "
            f"{asked[name]:,} per step", call,
        )  # fmt: skip
    if uneven:
        return
    for step in range(steps):
        ran = names[step * size : (step + 1) * size]
        if tuple(ran) == expected.names:
            continue
        if backend == "cpu" and _independent(expected, ran):
            report.note(OTHER_ORDER)
            continue
        place = next(n for n in range(size) if ran[n] != expected.names[n])
        yield _difference(
            "in another order", rank, place,
            f"program {expected.names[place]}, call {place + 1} of the step: {ran[place]} ran",
            expected.calls[place],
        )  # fmt: skip
        return


def _steps(asked: Counter[str], found: Counter[str]) -> int:
    """The number of steps for which most programs ran as often as captured; the smallest if several
    fit.
    """
    whole = Counter(
        found[name] // times
        for name, times in asked.items()
        if found[name] and not found[name] % times
    )
    return min(whole, key=lambda steps: (-whole[steps], steps), default=1)


def _independent(expected: _Expected, ran: Sequence[str]) -> bool:
    """Whether each program ran after those whose results it takes, the n-th of a name the n-th."""
    places: dict[str, list[int]] = {}
    for number, name in enumerate(expected.names):
        places.setdefault(name, []).append(number)
    if Counter(ran) != Counter(expected.names):
        return False
    done: set[int] = set()
    for name in ran:
        number = places[name].pop(0)
        if not expected.before[number] <= done:
            return False
        done.add(number)
    return True


def _others(
    expected: _Expected, ran: Sequence[ProgramRun], mine: Sequence[int], first: int, rank: int
) -> Iterator[Difference]:
    """Programs between the first and the last of a step that are not in the capture."""
    size = len(expected.names)
    seen: Counter[ProgramRun] = Counter()
    for at, (here, there) in enumerate(pairwise(mine)):
        if (first + at + 1) % size:  # else the next step begins there
            seen.update(ran[here + 1 : there])
    for run, times in seen.items():
        if run.name not in _MOVES:
            what = f"program {run.name}: {counted(times, 'run')} within steps"
            yield Difference(
                "not captured", OpClass.OTHER, rank, 0, what, run.name, counts=run.heavy
            )


def _difference(what: str, rank: int, position: int, op: str, call: Call) -> Difference:
    where = f"{call.file}:{call.line}" if call.file else ""
    return Difference(what, OpClass.OTHER, rank, position, op, where, counts=True)
