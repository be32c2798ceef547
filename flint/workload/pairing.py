"""Checking that the programs of a workload fit together.

The idea: every message sent must be received, and the members of a group must issue the same
collectives in the same order; else a rank waits forever. Within one program this follows from the
construction of groups and permutations; between programs it is compared, program by program, never
rank by rank, and without unrolling loops (``issue_words.py``).

    verify_pairing(workload)      # FlintError: programs main_0 and main_1 share communicator 3 ...
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from flint.errors import FlintError
from flint.graph.distinct import distinct
from flint.mesh.ranks import pattern
from flint.workload.issue_words import Issued, issued

if TYPE_CHECKING:
    from flint.workload.workload import Workload


def verify_pairing(workload: Workload) -> None:
    """Check collectives and point-to-point exchanges over all programs.

    Raises:
        FlintError: two programs would wait for each other; names the reason.
    """
    sequences = issued([program.graph for program in workload.programs])
    once = pattern([program.ranks for program in workload.programs])
    owner = np.zeros(len(once), dtype=np.int64)
    for number, program in enumerate(workload.programs):
        owner[program.ranks.contains(once)] = number
    if len(workload.programs) > 1:
        _verify_groups(workload, sequences, owner)
    _verify_exchanges(workload, sequences, owner)


def _verify_groups(workload: Workload, sequences: list[Issued], owner: NDArray[np.int64]) -> None:
    ranks = np.arange(workload.mesh.size, dtype=np.int64)
    for communicator in workload.communicators:
        if communicator.groups is None:
            continue
        group = communicator.groups.number(ranks)
        pairs = np.unique(np.stack([group, owner[ranks % len(owner)]])[:, group >= 0], axis=1)
        for number in distinct(pairs[0]).tolist():
            members = pairs[1][pairs[0] == number].tolist()
            words = [sequences[member].on(communicator.id) for member in members]
            for other, found in zip(members[1:], words[1:], strict=True):
                if found != words[0]:
                    raise FlintError(
                        f"programs {workload.programs[members[0]].name} and "
                        f"{workload.programs[other].name} share communicator {communicator.id} "
                        f"but issue {words[0].length} and {found.length} communications on it, or "
                        "issue them in another order: their ranks would wait for each other forever"
                    )


def _verify_exchanges(
    workload: Workload, sequences: list[Issued], owner: NDArray[np.int64]
) -> None:
    """Check that each program receives the messages of a permutation that the other one sends."""
    for exchange in {item for sequence in sequences for item in sequence.exchanges}:
        permutation = exchange[0]
        sources = np.flatnonzero(permutation.target >= 0)
        both = np.stack([sources, permutation.target[sources]])
        pairs = owner[both % len(owner)]
        for pair in distinct(pairs[0] * len(sequences) + pairs[1]).tolist():
            source, target = divmod(pair, len(sequences))
            sent = sequences[source].sent(exchange)
            received = sequences[target].received(exchange)
            if sent != received:
                raise FlintError(
                    f"program {workload.programs[source].name} sends {sent.length} messages "
                    f"({sent.bytes} bytes) of a permutation, but {workload.programs[target].name} "
                    f"receives {received.length} ({received.bytes} bytes): a rank would wait "
                    "forever"
                )
