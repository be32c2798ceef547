"""The ranks that are roots of collectives: they do something else than the others.

root_masks(recording)      # packed bits: the ranks that gather, in all translates of the group
"""

from __future__ import annotations

import numpy as np

from flint.frontends.torch.ranks.replica_groups import full_groups
from flint.frontends.torch.recording.collectives import collective_of
from flint.frontends.torch.recording.recording import Recording


def root_masks(recording: Recording) -> tuple[bytes, ...]:
    """Per process group and root: the roots of all translates of the group, as packed bits."""
    shape = tuple(size for _, size in recording.mesh) or (recording.world_size,)
    found = set()
    for op in recording.ops:
        collective = collective_of(op.name)
        if op.group >= 0 and collective is not None and collective.rooted:
            numbers = [item for item in op.args if type(item) is int]
            found.add((op.group, numbers[0] if numbers else 0))
    masks = []
    for group, root in sorted(found):
        ranks = full_groups(recording.groups[group].ranks, shape)[:, root]
        mask = np.zeros(recording.world_size, bool)
        mask[ranks[ranks >= 0]] = True
        masks.append(np.packbits(mask ^ mask[0]).tobytes())
    return tuple(masks)
