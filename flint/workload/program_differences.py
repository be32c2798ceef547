"""Comparing the programs that two workloads run in sequence.

The idea: programs with the same name are the same call of a step (the second call of ``gradient``
is ``gradient_2``); a program that only one side has is new or gone. A workload that is a single
program has it under its own name, so that a step that was split in two shows as such.

    program_differences(before, after)[0].name, ...[0].after
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from flint.workload.summary import Summary


@dataclass(frozen=True, slots=True)
class ProgramTotals:
    """One program of a sequence, over all ranks that run it.

    Attributes:
        place: position in the sequence, from 0.
        ranks: number of ranks that run it.
        nodes: kernels and communications, loops unrolled.
        flops: without transcendentals; not a number if a rank's are unknown.
        communications, operand_bytes: calls, and bytes of their operands.
    """

    place: int
    ranks: int
    nodes: int
    flops: float
    communications: int
    operand_bytes: int


@dataclass(frozen=True, slots=True)
class ProgramDifference:
    """A program on both sides; None if a side does not run it."""

    name: str
    before: ProgramTotals | None
    after: ProgramTotals | None


def program_differences(before: Summary, after: Summary) -> tuple[ProgramDifference, ...]:
    """Programs in the order in which they run; those that only ``before`` runs keep their position.

    Args:
        before, after: workloads at kernel granularity.

    Returns:
        Nothing if neither side runs programs in sequence.
    """
    if not any(program.calls for side in (before, after) for program in side.programs):
        return ()
    old, new = _totals(before), _totals(after)
    names = sorted({**old, **new}, key=lambda name: (new.get(name) or old[name]).place)
    return tuple(ProgramDifference(name, old.get(name), new.get(name)) for name in names)


def moved(rows: Sequence[ProgramDifference]) -> frozenset[str]:
    """Programs that both sides run, but in another position among these."""
    places = [
        (row.before.place, row.after.place, row.name) for row in rows if row.before and row.after
    ]
    before = [name for _, _, name in sorted(places)]
    after = [name for _, name in sorted((second, name) for _, second, name in places)]
    return frozenset(a for a, b in zip(before, after, strict=True) if a != b)


def _totals(side: Summary) -> dict[str, ProgramTotals]:
    found: dict[str, ProgramTotals] = {}
    for program in side.programs:
        ranks = program.rank_count
        rows: list[tuple[str, int, float, int, int]] = [
            (row.name, row.nodes, row.flops, row.communications, row.operand_bytes)
            for row in program.calls
        ] or [
            (
                program.name,
                program.nodes,
                program.flops,
                sum(row.count for row in program.collectives),
                program.communication_bytes,
            )
        ]
        for place, (name, nodes, flops, communications, operand_bytes) in enumerate(rows):
            known = found.get(name, ProgramTotals(place, 0, 0, 0, 0, 0))
            found[name] = ProgramTotals(
                place=known.place,
                ranks=known.ranks + ranks,
                nodes=known.nodes + ranks * nodes,
                flops=known.flops + ranks * flops,
                communications=known.communications + ranks * communications,
                operand_bytes=known.operand_bytes + ranks * operand_bytes,
            )
    return found
