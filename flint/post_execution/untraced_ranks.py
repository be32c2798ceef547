"""Ranks without a trace: programs that only respond to traced ranks.

The idea: simulators need a trace of every rank.  A rank without one takes part in the exchanges of
traced ranks with it, in their common order, at once and without computing; ranks in the same groups
run the same program, so that a million of them are a few programs.

    answering(meetings, [0], Communications(8), warnings)[0].ranks
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from flint.graph.building import GraphBuilder, TableBuilder
from flint.graph.graph import WorkloadGraph
from flint.mesh.ranks import from_mask
from flint.post_execution.communications import Communications
from flint.post_execution.exchanges import Exchange
from flint.post_execution.meetings import Meetings
from flint.workload.programs import UNTRACED, Program


def answering(
    meetings: Meetings,
    traced: Sequence[int],
    described: Communications,
    warnings: dict[str, int],
) -> list[Program]:
    """Programs of the ranks without a trace; ranks in the same groups share one.

    Args:
        meetings: what the traced ranks exchange.
        traced: these ranks, ascending.
        described: the communications of the run.
        warnings: a note on the ranks without a trace is added here.
    """
    world = described.world
    missing = np.ones(world, bool)
    missing[list(traced)] = False
    if not missing.any():
        return []
    keys = [(item.message, item.group) for item in meetings.exchange]
    numbers = {key: number for number, key in enumerate(dict.fromkeys(keys))}
    meets: dict[int, list[int]] = defaultdict(list)
    for (_, group), number in numbers.items():
        for rank in group:
            if missing[rank]:
                meets[rank].append(number)
    alike: dict[tuple[int, ...], list[int]] = defaultdict(list)
    for rank in np.flatnonzero(missing).tolist():
        alike[tuple(meets.get(rank, ()))].append(rank)
    programs: list[Program] = []
    for signature, ranks in alike.items():
        wanted = set(signature)
        sequence = [
            meetings.exchange[meeting]
            for meeting in meetings.order
            if numbers[keys[meeting]] in wanted
        ]
        mask = np.zeros(world, bool)
        mask[ranks] = True
        name = UNTRACED if len(alike) == 1 else f"{UNTRACED}_{len(programs)}"
        graph = _answer(sequence, ranks[0], described)
        programs.append(Program(name, graph, from_mask(mask), ()))
    text = (
        f"no trace of {int(missing.sum()):,} of {world:,} ranks ({_first(missing)}): simulators "
        "need all ranks, so these only take part in the traced ranks' communications, without "
        f"delay and without computing; --ranks {','.join(map(str, traced[:8]))} writes only the "
        "traced ones"
    )
    warnings[text] = 1
    return programs


def _first(missing: NDArray[np.bool_]) -> str:
    ranks = np.flatnonzero(missing)
    return ", ".join(map(str, ranks[:4].tolist())) + (", ..." if len(ranks) > 4 else "")


def _answer(sequence: list[Exchange], rank: int, described: Communications) -> WorkloadGraph:
    builder = GraphBuilder(TableBuilder())
    for item in sequence:
        if item.message:
            item = replace(item, kind="send" if item.group[0] == rank else "recv")
        builder.communication(described.of(item), (), ())
    return builder.finish(())
