"""Replay: which parts of a recorded step keep their measured time, and which are modelled.

The idea: a recorded kernel begins when everything that it waits for has ended, whatever else runs,
and its order on its stream is an edge.  So it takes no slot, and is not slowed down further than in
the run.  A collective with measured time takes as long as that of its fastest member: that member
arrived last, so it did not wait.

    replay = replay_of(workload, communication=None, host="measured", modelled=False)
    replay.measured_communication
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import numpy as np
from numpy.typing import NDArray

from flint.errors import UsageError
from flint.execution.emission import Emission
from flint.execution.node_types import NodeType
from flint.graph.graph import Ints, NodeKind
from flint.graph.unrolling import Unrolled
from flint.graph.work import Unit
from flint.workload.workload import Workload

TICKS_PER_NANOSECOND: Final = 1000
#: The time of a communication that its rank did not record.
UNKNOWN: Final = -1


class Source(StrEnum):
    """Sources of times."""

    MEASURED = "measured"
    MODELLED = "modelled"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Replay:
    """What is replayed.

    Attributes:
        recorded: for each program, whether its kernels were recorded with their times.
        communication, host: the source of their times.
    """

    recorded: tuple[bool, ...]
    communication: Source
    host: Source

    @property
    def measured_communication(self) -> bool:
        """Whether communications keep their measured times."""
        return self.communication == Source.MEASURED

    @property
    def kernels(self) -> Source:
        """The source of the kernels' times."""
        return Source.MEASURED if any(self.recorded) else Source.MODELLED


#: Nothing is recorded.
NO_REPLAY: Final = Replay((), Source.MODELLED, Source.NONE)


def replay_of(
    workload: Workload, communication: str | None, host: str | None, *, modelled: bool
) -> Replay:
    """Which parts of a workload are replayed.

    Args:
        workload: the workload that runs.
        communication: "measured" or "modelled"; None: measured if it was, unless ``modelled`` or if
            some of it was measured among another number of ranks.
        host: "measured", "modelled" or "none"; None: measured if it was.
        modelled: whether an option was given that applies only to modelled communication.

    Raises:
        UsageError: other words, or measured times of a workload that has none.
    """
    recorded = tuple(program.timing is not None for program in workload.programs)
    for option, value, words in (
        ("communication", communication, (Source.MEASURED, Source.MODELLED)),
        ("host", host, tuple(Source)),
    ):
        if value is not None and value not in words:
            raise UsageError(f"{option} {value!r}: choose from {', '.join(words)}")
        if value is not None and not any(recorded) and value != words[-1]:
            raise UsageError(f"{option} {value!r}: the workload was not recorded with its times")
    if not any(recorded):
        return Replay(recorded, Source.MODELLED, Source.NONE)
    outdated = any((p.graph.work_unit == Unit.OUTDATED).any() for p in workload.programs)
    usual = Source.MODELLED if modelled or outdated else Source.MEASURED
    return Replay(
        recorded,
        Source(communication) if communication else usual,
        Source(host) if host else Source.MEASURED,
    )


@dataclass(frozen=True, eq=False, slots=True)
class Replayed:
    """The replayed nodes of an actor.

    Attributes:
        ticks: how long each takes; ``UNKNOWN`` for a communication that its rank did not record.
        delay: ticks after all dependencies have ended; None: no delays.
        free: nodes that take no slot; None: there are none.
    """

    ticks: Ints
    delay: Ints | None
    free: NDArray[np.bool_] | None


def replayed(
    replay: Replay,
    program: int,
    unrolled: Unrolled,
    emission: Emission,
    ticks: Ints,
    answered: NDArray[np.bool_],
) -> Replayed:
    """The nodes of an actor, with measured times in place of modelled ones.

    Args:
        replay: what is replayed.
        program: number of its program.
        unrolled, emission: its nodes.
        ticks: modelled ticks.
        answered: RECVs whose sender is not a recorded rank, shape [nodes].
    """
    recorded = program < len(replay.recorded) and replay.recorded[program]
    if not recorded and not replay.measured_communication:
        return Replayed(ticks, None, None)
    of_node = unrolled.template[emission.instance]
    spent = np.concatenate([graph.measured_by_node() for graph in unrolled.graphs])[of_node]
    late = np.concatenate([graph.delay_by_node() for graph in unrolled.graphs])[of_node]
    computes = emission.type == NodeType.COMP
    free = computes & (spent >= 0) & recorded
    if replay.measured_communication:
        free = free | ~computes
        unknown = (
            ticks if recorded else UNKNOWN
        )  # on a recorded rank: measured among another number of ranks
        taken = np.where(spent >= 0, spent * TICKS_PER_NANOSECOND, unknown)
        receives = emission.type == NodeType.RECV
        taken = np.where(receives & ~answered, 0, taken)
        # What a rank sends to itself is copied, in the time of the communication.
        copied = computes & (unrolled.kind[emission.instance] == NodeKind.COMMUNICATION)
        ticks = np.where(computes & ~(copied & (spent >= 0)), ticks, taken)
    delay = late * TICKS_PER_NANOSECOND if recorded else None
    return Replayed(ticks, delay, free)
