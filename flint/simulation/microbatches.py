"""Steps of more microbatches than were captured.

The idea: a pipeline's program has every microbatch one after another, and recording 512 of them
takes hours, although 3 per stage show everything.  A simulation can not only omit repeating parts
but also add them: once the run has reached a steady state, each further microbatch repeats the last
one. The number of microbatches in a period follows from its matrix products, all of which belong to
some microbatch; if it is not a whole number, or not the same in all programs, nothing is added.

    Microbatches.parse("24:512")        # captured with 24, asked about 512
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from flint.errors import FlintError, UsageError
from flint.graph.graph import Ints, NodeKind, WorkloadGraph
from flint.graph.work import Unit
from flint.mesh.ragged import row_of_entry
from flint.simulation.repeating import Together


@dataclass(frozen=True, slots=True)
class Microbatches:
    """Numbers of microbatches of a step.

    Attributes:
        captured: in the programs.
        wanted: to be simulated.
    """

    captured: int
    wanted: int

    @classmethod
    def parse(cls, text: str) -> Microbatches:
        """Parse "24:512".

        Raises:
            UsageError: other text, or fewer than were captured.
        """
        captured, _, wanted = text.partition(":")
        if not (captured.isdecimal() and wanted.isdecimal() and 0 < int(captured) <= int(wanted)):
            raise UsageError(
                f"--microbatches {text!r}: expected CAPTURED:SIMULATED, for example 24:512"
            )
        return cls(int(captured), int(wanted))

    def __str__(self) -> str:
        return f"{self.captured}:{self.wanted}"


def periods_more(
    programs: Sequence[tuple[WorkloadGraph, Ints]],
    together: Sequence[Together],
    asked: Microbatches,
) -> list[int]:
    """Number of periods that the slowest part of each of ``together`` gets.

    Raises:
        FlintError: the programs do not repeat microbatch by microbatch.
    """
    whole = [_products(graph, 0, len(graph)) for graph, _ in programs]
    shares = [_shares(programs, parts, whole, asked.captured) for parts in together]
    # One part has the forward and the backward pass of a microbatch, or two have one each.
    for chosen in [[index] for index in range(len(together))] + [list(range(len(together)))]:
        sums = [
            sum((shares[index].get(number, Fraction(0)) for index in chosen), Fraction(0))
            for number, products in enumerate(whole)
            if products
        ]
        if sums and sums[0] >= 1 and sums[0].denominator == 1 and len(set(sums)) == 1:
            periods, rest = divmod(asked.wanted - asked.captured, int(sums[0]))
            if rest:
                raise FlintError(
                    f"--microbatches {asked}: the programs repeat every {sums[0]} microbatches: "
                    f"simulate {asked.captured} plus a multiple of {sums[0]}"
                )
            return [periods if index in chosen else 0 for index in range(len(together))]
    raise FlintError(
        f"--microbatches {asked}: no part repeats in all programs with the same whole number of "
        f"the {asked.captured} microbatches: check that the capture has this number, and capture "
        "more than three times as many as there are pipeline stages"
    )


def _shares(
    programs: Sequence[tuple[WorkloadGraph, Ints]],
    parts: Together,
    whole: Sequence[int],
    captured: int,
) -> dict[int, Fraction]:
    """Program -> microbatches in a period of the slowest of its parts."""
    found = {}
    for part, rate in parts:
        graph, place = programs[part.program][0], part.place
        if part.loop:
            body = graph.loops[int(graph.detail[place.start])].body
            products = _products(body, 0, len(body))
        else:
            products = _products(graph, place.start, place.start + place.nodes)
        if products:
            found[part.program] = Fraction(captured * rate * products, whole[part.program])
    return found


def _products(graph: WorkloadGraph, start: int, end: int) -> int:
    """FLOPs of the matrix products of some nodes, with all iterations of loops."""
    owner = row_of_entry(graph.work_ptr)
    chosen = (graph.work_unit == Unit.MATMUL) & (owner >= start) & (owner < end)
    total: int = sum(graph.work_flops[chosen].tolist())
    for node in (np.flatnonzero(graph.kind[start:end] == NodeKind.LOOP) + start).tolist():
        loop = graph.loops[int(graph.detail[node])]
        total += loop.trip_count * _products(loop.body, 0, len(loop.body))
    return total
