"""The streams of a rank's timeline: numbers, names, and which node is on which."""

from __future__ import annotations

from typing import Final

import numpy as np

from flint.graph.partners import partners
from flint.mesh.mesh import Mesh
from flint.mesh.ragged import Ints
from flint.simulation.recording import HOST_LANE, RankRecord

COMPUTE: Final = 1
#: Of the first communication stream; others follow.
COMMUNICATION: Final = 2
#: The host of a recorded step, and its compute streams after the first one.
HOST: Final = 0
FURTHER: Final = 1_000
#: The most partners in the name of a communication stream.
_MAX_PARTNERS: Final = 3


def streams(record: RankRecord, mesh: Mesh) -> dict[int, str]:
    """Number and name of each of a rank's streams."""
    talks = record.communicates
    slots = record.slot[talks]
    kernels = set(record.slot[record.computes].tolist())
    further = {FURTHER + slot: f"compute {slot + 1}" for slot in sorted(kernels) if slot > 0} | (
        {HOST: "host"} if HOST_LANE in kernels else {}
    )
    if not slots.any():
        return {COMPUTE: "compute", COMMUNICATION: "communication"} | further
    detail = record.unrolled.detail[record.instance[talks]]
    table = record.graph.tables.communications
    among: dict[int, dict[str, None]] = {slot: {} for slot in range(int(slots.max()) + 1)}
    for slot, index in sorted(set(zip(slots.tolist(), detail.tolist(), strict=True))):
        among[slot][partners(table[index], mesh)] = None
    return (
        {COMPUTE: "compute"}
        | further
        | {
            COMMUNICATION + slot: f"communication over {_few(list(names))}"
            for slot, names in among.items()
            if names
        }
    )


def _few(names: list[str]) -> str:
    more = ", ..." if len(names) > _MAX_PARTNERS else ""
    return ", ".join(names[:_MAX_PARTNERS]) + more


def stream_of(record: RankRecord) -> Ints:
    """The number of the stream that each node is on, shape [nodes]."""
    slot = record.slot
    computing = np.where(slot > 0, FURTHER + slot, np.where(slot < 0, HOST, COMPUTE))
    return np.where(record.computes, computing, COMMUNICATION + slot)
