"""How often the bodies of an executed module's loops ran, from the profile.

The idea: every instruction of a body runs once in each iteration.  If a profiler records nothing of
a body, the compiler's own count gives its runs per run of the loop.

    iterations(program, {(0, 1): Counter({"while.1": 2, "tanh.2": 8})})     # {(0, 1): (8,)}
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from google.protobuf.message import DecodeError

from flint.converters.profilers.xplane.program import Program
from flint.hlo.attributes import while_loop
from flint.hlo.context import Context
from flint.observed.columns import Iterated
from flint.observed.executions import executions


def iterations(
    program: Program, ran: Mapping[tuple[int, int], Counter[str]]
) -> tuple[Iterated, ...]:
    """How often each loop's body ran, by rank and step.

    Args:
        program: the executed program.
        ran: how often each instruction ran, by rank and step.
    """
    loops = [
        (one.name, program.names_in(number), _trips(one, program.context))
        for one in program.with_opcode("while")
        for number in one.called_computation_ids[:1]
    ]
    found = []
    for (rank, step), counts in ran.items():
        times = [
            executions(names, counts) or max(counts[name], 1) * trips
            for name, names, trips in loops
        ]
        found.append(Iterated(rank, step, tuple(filter(None, times))))
    return tuple(found)


def _trips(loop: Any, context: Context) -> int:
    """Iterations per run of a loop, as proved by the compiler; 0 if unknown."""
    try:
        found = while_loop(loop, context)
    except (ValueError, LookupError, DecodeError):
        return 0
    return int(found["trip_count"]) if found is not None else 0
