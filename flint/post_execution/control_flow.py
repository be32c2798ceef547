"""How often a run went round its loops, and which branches it took, from what it executed.

The idea: where data decide, the program does not say it, but the profile has an event for each
execution of an instruction.  A loop's body ran as often as most of its instructions did; divided by
the executions of the computation around it, that is the loop's trip count.  Of a conditional's
branches, that one was taken whose instructions ran most often.  Both are written into the program,
where the reader finds them: as XLA writes trip counts that it knows, marked as observed (for the
conditions of such loops run), and as an attribute.

    state(proto, [run.names for run in times.runs])
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from flint.hlo import hlo_pb2 as pb
from flint.hlo.attributes import OBSERVED
from flint.observed.executions import executions
from flint.stablehlo.read.records import BRANCH

#: Instructions that run nothing.
_FREE = frozenset({"parameter", "constant", "tuple", "get-tuple-element", "bitcast"})


def state(proto: pb.HloModuleProto, ran: Sequence[Sequence[str]]) -> None:
    """Write trip counts and branches into a program; a loop's counts that differ are their maximum.

    Args:
        proto: the program, changed in place.
        ran: the executed instructions of each device, as often as each was executed.
    """
    computations = {item.id: item for item in proto.computations}
    counts = [Counter(names) for names in ran]
    for computation in proto.computations:
        entered = [
            1 if computation.id == proto.entry_computation_id else _ran(computation, count)
            for count in counts
        ]
        for instruction in computation.instructions:
            called = [computations.get(number) for number in instruction.called_computation_ids]
            if any(item is None for item in called):
                continue  # the reader reports it
            if instruction.opcode == "while" and b"known_trip_count" not in (
                instruction.backend_config
            ):
                _state_trips(instruction, called[0], counts, entered)
            elif instruction.opcode == "conditional":
                _state_branch(instruction, called, counts)


def _ran(computation: Any, count: Mapping[str, int]) -> int:
    return executions((item.name for item in computation.instructions), count)


def _state_trips(
    instruction: Any, body: Any, counts: Sequence[Mapping[str, int]], entered: Sequence[int]
) -> None:
    trips = [
        -(-_ran(body, count) // times)
        for count, times in zip(counts, entered, strict=True)
        if times
    ]
    if trips:
        config = {"known_trip_count": {"n": str(max(trips))}, OBSERVED: True}
        instruction.backend_config = json.dumps(config).encode()
        instruction.ClearField("backend_config_payload")


def _state_branch(
    instruction: Any, branches: Sequence[Any], counts: Sequence[Mapping[str, int]]
) -> None:
    """State the branch that ran most often; if none did, the only one that has nothing to run."""
    times = [sum(_ran(branch, count) for count in counts) for branch in branches]
    taken = times.index(max(times))
    if not times[taken]:
        empty = [all(item.opcode in _FREE for item in branch.instructions) for branch in branches]
        if sum(empty) != 1:
            return
        taken = empty.index(True)
    attributes = pb.FrontendAttributes.FromString(instruction.frontend_attributes)
    attributes.map[BRANCH] = str(taken)
    instruction.frontend_attributes = attributes.SerializeToString()
