"""Do the programs of a workload fit together?

The idea: whatever one rank sends another must receive, and the members of a group must issue the
same collectives in the same order; else a rank waits for ever.  Within one program that is so by
construction of groups and permutations; between programs it is compared, program by program and
never rank by rank.

    verify_pairing(workload)      # FlintError: programs main_0 and main_1 share communicator 3 ...
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from flint.errors import FlintError
from flint.graph.communication import Communication
from flint.graph.distinct import distinct
from flint.graph.graph import NodeKind, WorkloadGraph

if TYPE_CHECKING:
    from flint.workload.workload import Workload


def verify_pairing(workload: Workload) -> None:
    """Check collectives and point-to-point exchanges over all programs.

    Raises:
        FlintError: two programs that would wait for each other, and over what.
    """
    sequences = [_sequence(program.graph) for program in workload.programs]
    owner = np.zeros(workload.mesh.size, dtype=np.int64)
    for number, program in enumerate(workload.programs):
        owner[program.ranks.array()] = number
    if len(workload.programs) > 1:
        _verify_groups(workload, sequences, owner)
    _verify_exchanges(workload, sequences, owner)


def _verify_groups(
    workload: Workload, sequences: list[list[Communication]], owner: NDArray[np.int64]
) -> None:
    ranks = np.arange(workload.mesh.size, dtype=np.int64)
    for communicator in workload.communicators:
        if communicator.groups is None:
            continue
        group = communicator.groups.number(ranks)
        pairs = np.unique(np.stack([group, owner])[:, group >= 0], axis=1)
        for number in distinct(pairs[0]).tolist():
            members = pairs[1][pairs[0] == number].tolist()
            if len(members) == 1:
                continue
            issued = [
                [
                    (c.kind, c.largest_bytes or c.bytes_in)
                    for c in sequences[m]
                    if c.communicator == communicator.id
                ]
                for m in members
            ]
            for other, found in zip(members[1:], issued[1:], strict=True):
                if found != issued[0]:
                    raise FlintError(
                        f"programs {workload.programs[members[0]].name} and "
                        f"{workload.programs[other].name} share communicator {communicator.id} "
                        f"but issue {len(issued[0])} and {len(found)} communications on it, or "
                        "issue them in another order: their ranks would wait for each other for "
                        "ever"
                    )


def _verify_exchanges(
    workload: Workload, sequences: list[list[Communication]], owner: NDArray[np.int64]
) -> None:
    """Every message of a permutation that one program sends, the other one receives."""
    sends: list[dict[Any, list[int]]] = [defaultdict(list) for _ in sequences]
    receives: list[dict[Any, list[int]]] = [defaultdict(list) for _ in sequences]
    for program, sequence in enumerate(sequences):
        for item in sequence:
            if item.kind in ("collective_permute", "send"):
                sends[program][item.permutation].append(item.bytes_in)
            if item.kind in ("collective_permute", "recv"):
                receives[program][item.permutation].append(item.bytes_out)
    peers = {peer for table in (*sends, *receives) for peer in table}
    for permutation in peers:
        sources = np.flatnonzero(permutation.target >= 0)
        pairs = np.stack([owner[sources], owner[permutation.target[sources]]])
        for source, target in np.unique(pairs, axis=1).T.tolist():
            sent, received = sends[source][permutation], receives[target][permutation]
            if sent != received:
                raise FlintError(
                    f"program {workload.programs[source].name} sends {len(sent)} messages "
                    f"({sum(sent)} bytes) of a permutation, but {workload.programs[target].name} "
                    f"receives {len(received)} ({sum(received)} bytes): a rank would wait for "
                    "ever"
                )


def _sequence(graph: WorkloadGraph) -> list[Communication]:
    """Every communication in issue order, loops unrolled."""
    items: list[Communication] = []
    for index in np.flatnonzero(graph.kind != NodeKind.COMPUTE).tolist():
        kind, detail = int(graph.kind[index]), int(graph.detail[index])
        if kind == NodeKind.COMMUNICATION:
            items.append(graph.tables.communications[detail])
        else:
            items += _sequence(graph.loops[detail].body) * graph.loops[detail].trip_count
    return items
