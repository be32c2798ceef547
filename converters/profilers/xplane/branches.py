"""Which branches the conditionals of an executed module took, by what ran of each branch.

The idea: every instruction of a branch runs once each time that the branch is taken, so that what
the profiler saw of a branch tells how often it was.  A branch without anything that a profiler sees
was taken in the remaining runs of the conditional itself.

    taken(module, {(0, 1): Counter({"conditional.1": 4, "tanh.2": 3})})     # times (3, 1)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from flint.hlo import hlo_pb2 as pb
from flint.observed.columns import Taken


def taken(
    module: pb.HloModuleProto, ran: Mapping[tuple[int, int], Counter[str]]
) -> Iterator[Taken]:
    """What each conditional chose; nothing of those of which it cannot be told.

    Args:
        module: what was executed.
        ran: how often each instruction ran, by rank and step.
    """
    inside = {item.id: [one.name for one in item.instructions] for item in module.computations}
    conditionals = [
        (one.name, [inside.get(number, []) for number in one.called_computation_ids])
        for item in module.computations
        for one in item.instructions
        if one.opcode == "conditional"
    ]
    for (rank, step), counts in ran.items():
        for name, branches in conditionals:
            times = [max((counts[one] for one in names), default=0) for names in branches]
            silent = [n for n, count in enumerate(times) if not count]
            if counts[name] and sum(times) < counts[name]:
                if len(silent) != 1:
                    continue
                times[silent[0]] = counts[name] - sum(times)
            if sum(times):
                yield Taken(rank, step, name, tuple(times))


def in_branches(module: pb.HloModuleProto) -> dict[str, tuple[str, ...]]:
    """The instructions in the branches of each conditional, and in all that these call."""
    computations = {item.id: item for item in module.computations}
    found: dict[str, tuple[str, ...]] = {}
    for item in module.computations:
        for one in item.instructions:
            if one.opcode != "conditional":
                continue
            left, seen = list(one.called_computation_ids), set[int]()
            names: list[str] = []
            while left:
                number = left.pop()
                if number in seen or number not in computations:
                    continue
                seen.add(number)
                for inner in computations[number].instructions:
                    names.append(inner.name)
                    left += inner.called_computation_ids
            found[one.name] = tuple(names)
    return found
