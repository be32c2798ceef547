"""Network dims: the mesh as network simulators see it.

The idea: consecutive ranks are dim 0, so the dims are the mesh's axes reversed.  Axes of size 1 are
left out, and because simulators take at most four dims, the innermost ones are merged beyond that.
A group of ranks that differ along whole dims is then a mask over dims and needs no table.

    >>> dims = network_dims(Mesh((64, 8), ("data", "model")))
    >>> dims.npus_count, dims.mask(StridedGroups(512, ((64, 8),)))
    ((8, 64), (False, True))
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from flint.mesh.groups import Groups, StridedGroups
from flint.mesh.mesh import Mesh

MAX_DIMS: Final = 4
"""Common simulators do not simulate more dims than this correctly."""


@dataclass(frozen=True, slots=True)
class NetworkDims:
    """The dims of a network, dim 0 (consecutive ranks) first.

    Attributes:
        npus_count: ranks along each dim.
        axes: mesh axes that make up each dim, slowest-varying first.
    """

    npus_count: tuple[int, ...]
    axes: tuple[tuple[str, ...], ...]

    @property
    def strides(self) -> tuple[int, ...]:
        """Rank distance between neighbours along each dim."""
        return tuple(math.prod(self.npus_count[:dim]) for dim in range(len(self.npus_count)))

    @property
    def world(self) -> int:
        """Number of ranks."""
        return math.prod(self.npus_count)

    def mask(self, groups: Groups) -> tuple[bool, ...] | None:
        """Which dims the members of ``groups`` differ along; None if they are not whole dims."""
        if not isinstance(groups, StridedGroups) or groups.world != self.world:
            return None
        found = [False] * len(self.npus_count)
        for size, stride in groups.dims:
            low, high = stride, stride * size
            for dim, (length, step) in enumerate(zip(self.npus_count, self.strides, strict=True)):
                if step == low < high:
                    found[dim] = True
                    low *= length
            if low != high:
                return None
        return tuple(found)


def network_dims(mesh: Mesh) -> NetworkDims:
    """The network dims of a mesh: reversed, without size-1 axes, at most ``MAX_DIMS``."""
    kept: list[tuple[int, tuple[str, ...]]] = [
        (size, (axis,))
        for size, axis in zip(reversed(mesh.shape), reversed(mesh.axes), strict=True)
        if size > 1
    ] or [(1, (mesh.axes[-1],))]
    inner, outer = kept[: -(MAX_DIMS - 1)], kept[-(MAX_DIMS - 1) :]
    if len(kept) > MAX_DIMS:
        names = tuple(axis for _, axes in reversed(inner) for axis in axes)
        kept = [(math.prod(size for size, _ in inner), names), *outer]
    return NetworkDims(tuple(size for size, _ in kept), tuple(axes for _, axes in kept))
