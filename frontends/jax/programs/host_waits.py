"""Functions that the host calls only when it has read a value of other devices.

The idea: a program's host is one; after it has read a loss, what it calls anywhere begins later.
Devices that made the value are as far as that by then.  To the others, a message of the value's
size stands for the host, unless what they take next tells them anyway.

    told(modules, homes, moves, rank)[4]        # what the host reads after call 4
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jax.sharding import Mesh

from flint.capturing.messages import Piece, exchanges_of, message_graph
from flint.capturing.sequences import CalledModule, Moved
from flint.graph.communication import Communication
from flint.graph.graph import Ints
from flint.graph.tensor_types import TensorType
from flint.mesh.ranks import RankSet
from flint.passes.in_sequence import Origin
from flint.workload.programs import Call, ProgramInput


def device_ids(place: Any) -> tuple[int, ...]:
    """The ids of the devices of a mesh or sharding, in its order."""
    if isinstance(place, Mesh):
        return tuple(device.id for device in place.devices.flat)
    mesh = getattr(place, "mesh", None)
    return device_ids(mesh) if mesh is not None else tuple(d.id for d in place.device_set)


@dataclass(frozen=True, slots=True)
class Told:
    """A value that the host reads before it goes on elsewhere.

    Attributes:
        value: the value.
        type: its type on a rank that has it.
        name, file, line: what reads it.
        sources, targets: the ranks that have it, and those that wait for the host.
        exchanges: the messages.
    """

    value: Origin
    type: TensorType
    name: str
    file: str
    line: int
    sources: Ints
    targets: Ints
    exchanges: tuple[Communication, ...]

    def concerns(self, ranks: RankSet) -> bool:
        """Whether ranks take part, which all do if one does."""
        return bool(ranks.contains(np.concatenate([self.sources, self.targets])).any())

    def seen_by(self, ranks: RankSet) -> Moved:
        """The messages as ranks see them."""
        has = bool(ranks.contains(self.sources).any())
        return Moved(
            Call(
                name=self.name,
                inputs=(ProgramInput(self.type),) if has else (),
                operands=(self.value,) if has else (),
                outputs=0,
                file=self.file,
                line=self.line,
                jitted=False,
            ),
            message_graph(self.exchanges, ranks, self.type if has else None, None),
            awaited=not has,
        )


def told(
    modules: Sequence[CalledModule],
    homes: Sequence[Mesh],
    moves: Collection[tuple[int, Origin]],
    rank: Mapping[int, int],
) -> dict[int, list[Told]]:
    """By the number of a call, what the host reads after it before it goes on elsewhere.

    Args:
        modules: the calls.
        homes: the devices of each.
        moves: call and origin of each array that moves.
        rank: device id -> rank.
    """
    devices = [device_ids(home) for home in homes]
    found: dict[int, list[Told]] = {}
    for number, item in enumerate(modules):
        first = {devices[call]: call for call in reversed(range(number + 1, len(devices)))}
        for read in item.call.reads:
            program = read.value.program
            waiting = {
                id
                for home, call in first.items()
                if program >= 0 and not _waits(call, program, moves, devices)
                for id in {*home} - {*devices[program]}
            }
            if waiting:
                graph = modules[program].walked.graph
                kind = graph.type_of(int(graph.outputs[read.value.number]))
                own = np.array(sorted(rank[id] for id in devices[program]))
                others = np.array(sorted(rank[id] for id in waiting))
                pieces = [
                    Piece(int(own[place % len(own)]), int(other), kind.bytes)
                    for place, other in enumerate(others)
                ]
                exchanges = exchanges_of(pieces, world=len(rank), dtype=kind.dtype)
                name = f"{item.call.name}_read_{read.value.number}"
                one = Told(read.value, kind, name, read.file, read.line, own, others, exchanges)
                found.setdefault(number, []).append(one)
    return found


def _waits(
    call: int,
    program: int,
    moves: Collection[tuple[int, Origin]],
    devices: Sequence[tuple[int, ...]],
) -> bool:
    """Whether a call takes an array that other devices make after, or in, a program."""
    return any(
        number == call and origin.program >= program and devices[origin.program] == devices[program]
        for number, origin in moves
    )
