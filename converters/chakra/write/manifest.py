"""The manifest: what was written, in numbers and symbolic rank sets."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flint.converters.chakra.astra_sim.forecast import Forecast
from flint.mesh.ranks import from_mask

#: Runs of ranks beyond this are counted, not listed.
_MAX_RUNS = 1000


@dataclass(frozen=True, slots=True)
class StructureSummary:
    """Ranks that run the same nodes.

    Attributes:
        program: index of the program.
        structure: number under which ``nodes.parquet`` lists the nodes.
        ranks: the ranks, as symbolic runs.
        rank_count: number of ranks.
        nodes: node type -> count.
        removed: why communications have no node on these ranks -> count.
        classes: encoded buffers.
        files: distinct files.
    """

    program: int
    structure: int
    ranks: dict[str, Any]
    rank_count: int
    nodes: dict[str, int]
    removed: dict[str, int]
    classes: int
    files: int


@dataclass(frozen=True, slots=True)
class Manifest:
    """The files that the ET writer has written.

    Attributes:
        bytes: bytes on disk of all files together (a file that many ranks share counts once).
        trace_bytes: bytes of the traces as a reader of all ranks sees them.
        files: traces, one per rank.
        distinct_files: number of traces with their own bytes.
        structures: ranks by what they run.
        groups: communicator groups in the comm-groups file.
        tags: message tags in use.
        system: the system that durations were computed for.
        order: how communications are chained.
        ordered_starts: compute nodes that wait only for the previous one of these, over all
            structures (see ``flint.converters.chakra.write.starts``).
        forecast: what ASTRA-sim will need; None if ranks are missing.
        sums: the traces' part of the folder's seal (see ``flint.workload.sealing``).
    """

    bytes: int
    trace_bytes: int
    files: int
    distinct_files: int
    structures: tuple[StructureSummary, ...]
    groups: int
    tags: int
    system: str
    order: str
    ordered_starts: int
    forecast: Forecast | None
    sums: dict[str, str]

    def to_json(self) -> dict[str, Any]:
        """Plain sequences, dicts, numbers and texts; without ``sums``."""
        document = asdict(self)
        del document["sums"]
        return document


def symbolic(ranks: NDArray[np.int64], world: int) -> dict[str, Any]:
    """``{"period", "runs"}`` of a rank set: ranks whose remainder lies in one of the runs."""
    mask = np.zeros(world, np.bool_)
    mask[ranks] = True
    found = from_mask(mask)
    content: dict[str, Any] = {"period": found.period}
    content["runs"] = [list(run) for run in found.runs[:_MAX_RUNS]]
    if len(found.runs) > _MAX_RUNS:
        content["more_runs"] = len(found.runs) - _MAX_RUNS
    return content
