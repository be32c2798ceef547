"""Which branches the conditionals of an executed module took, by what ran of each branch.

The idea: every instruction of a branch runs once each time that the branch is taken, so that what
the profiler saw of a branch tells how often it was.  A branch without anything that a profiler sees
was taken in the remaining runs of the conditional itself.

    taken(program, {(0, 1): Counter({"conditional.1": 4, "tanh.2": 3})})     # times (3, 1)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from flint.converters.profilers.xplane.program import Program
from flint.observed.columns import Taken
from flint.observed.executions import executions


def taken(program: Program, ran: Mapping[tuple[int, int], Counter[str]]) -> Iterator[Taken]:
    """What each conditional chose; nothing where it cannot be known.

    Args:
        program: what was executed.
        ran: how often each instruction ran, by rank and step.
    """
    conditionals = [
        (one.name, [program.names_in(number) for number in one.called_computation_ids])
        for one in program.with_opcode("conditional")
    ]
    for (rank, step), counts in ran.items():
        for name, branches in conditionals:
            times = [executions(names, counts) for names in branches]
            silent = [n for n, count in enumerate(times) if not count]
            if counts[name] and sum(times) < counts[name]:
                if len(silent) != 1:
                    continue
                times[silent[0]] = counts[name] - sum(times)
            if sum(times):
                yield Taken(rank, step, name, tuple(times))


def in_branches(program: Program) -> dict[str, tuple[str, ...]]:
    """The instructions in the branches of each conditional, and in all that these call."""
    found: dict[str, tuple[str, ...]] = {}
    for one in program.with_opcode("conditional"):
        remaining, seen = list(one.called_computation_ids), set[int]()
        names: list[str] = []
        while remaining:
            number = remaining.pop()
            if number in seen or number not in program.computations:
                continue
            seen.add(number)
            for inner in program.computations[number].instructions:
                names.append(inner.name)
                remaining += inner.called_computation_ids
        found[one.name] = tuple(names)
    return found
