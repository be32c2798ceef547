"""Which actors never meet: what one of them does says nothing about when another one does it.

The idea: actors that share a collective or exchange a message belong together, as do all actors of
one program, whose loops are shortened together; everything else runs on its own.

    parts = independent(everyone)       # [0, 0, 1]: the last actor is alone
"""

from __future__ import annotations

import numpy as np

from flint.execution.node_types import NodeType
from flint.graph.graph import Ints
from flint.simulation.actors import Actors


def independent(everyone: Actors) -> Ints:
    """The number of the independent part to which each actor belongs, shape [actors]."""
    programs = [info.program for info in everyone.info]
    root = list(range(max(programs, default=-1) + 1))

    def part(program: int) -> int:
        while root[program] != program:
            root[program] = root[root[program]]
            program = root[program]
        return program

    count = everyone.behaviours.count
    met: dict[int, int] = {}
    for actor, program in zip(everyone.columns, programs, strict=True):
        meetings = np.unique(actor.channel[actor.types == NodeType.COLL])
        others = [met.setdefault(meeting, program) for meeting in meetings.tolist()]
        exchanges = (actor.types == NodeType.SEND) | (actor.types == NodeType.RECV)
        # The last two digits of a message's number are its sender and its receiver.
        pairs = np.unique(actor.channel[exchanges] % count**2)
        partners = np.concatenate([pairs // count, pairs % count]).tolist()
        for other in {*others, *(programs[partner] for partner in partners)}:
            root[part(other)] = part(program)
    return np.array([part(program) for program in programs], np.int64)
