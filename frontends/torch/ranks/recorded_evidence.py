"""Evidence of differences among ranks from a recording: roots of collectives, ends of messages.

recorded_evidence(recording)      # which ranks gather, in all translates of the group
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from flint.frontends.torch.evidence import Evidence, evidence_of
from flint.frontends.torch.ranks.replica_groups import full_groups
from flint.frontends.torch.recording.collectives import collective_of
from flint.frontends.torch.recording.recording import Recording


def recorded_evidence(recording: Recording) -> tuple[Evidence, ...]:
    """Roots, and stages that messages go between."""
    shape = tuple(size for _, size in recording.mesh) or (recording.world_size,)
    return (*_roots(recording, shape), *_stages(recording, shape))


def _roots(recording: Recording, shape: tuple[int, ...]) -> Iterator[Evidence]:
    """Per process group and root: the roots of all translates of the group."""
    found = set()
    for op in recording.ops:
        collective = collective_of(op.name)
        if op.group >= 0 and collective is not None and collective.rooted:
            numbers = [item for item in op.args if type(item) is int]
            found.add((op.group, numbers[0] if numbers else 0))
    for group, root in sorted(found):
        name = recording.groups[group].description or recording.groups[group].name
        ranks = full_groups(recording.groups[group].ranks, shape)[:, root]
        mask = np.zeros(recording.world_size, bool)
        mask[ranks[ranks >= 0]] = True
        if not mask.all():
            yield evidence_of(f"roots of {name}", mask)


def _stages(recording: Recording, shape: tuple[int, ...]) -> Iterator[Evidence]:
    """Places along the mesh axes that messages cross: a stage's peers are part of its behaviour."""
    peers = sorted({op.peer for op in recording.ops if op.peer >= 0})
    if not peers:
        return
    ends = np.stack(np.unravel_index(np.array([recording.rank, *peers]), shape))
    crossed = np.flatnonzero((ends != ends[:, :1]).any(1)).tolist()
    places = np.unravel_index(np.arange(recording.world_size), shape)
    for axis in crossed:
        yield evidence_of(f"stages along mesh axis {recording.mesh[axis][0]}", places[axis])
