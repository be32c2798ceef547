"""Names of groups and permutations: the mesh's axes, if they run along axes.

The idea: a person thinks of "all-gather over data", not of 64 groups of 8 device ids.  Whole axes
are named and joined by ``+``, parts of an axis are written like Shardy's sub-axes (``model:(2)4``
is size 4 after a leading part of 2), and only other groups are counted.

    >>> mesh = Mesh((64, 8), ("data", "model"))
    >>> group_name(StridedGroups(512, ((64, 8),)), mesh)
    'data'
"""

from __future__ import annotations

import numpy as np

from flint.host.readable import counted
from flint.mesh.groups import Groups, StridedGroups
from flint.mesh.mesh import Mesh
from flint.mesh.permutation import Permutation, Shift


def group_name(groups: Groups, mesh: Mesh) -> str:
    """``data+model``, ``model:(2)4``, ``all ranks``, ``one rank`` or ``table of 3 groups``."""
    if groups.size == 1:
        return "one rank"
    if not isinstance(groups, StridedGroups):
        return f"table of {counted(groups.count, 'group')}"
    if groups.size == mesh.size:
        long = [axis for axis, size in zip(mesh.axes, mesh.shape, strict=True) if size > 1]
        return long[0] if len(long) == 1 else "all ranks"
    axes = axes_of(groups, mesh)
    if axes is None:
        parts = [_part(size, stride, mesh) for size, stride in groups.dims]
        return "+".join(parts)
    return "+".join(axes)


def permutation_name(permutation: Permutation, mesh: Mesh) -> str:
    """``model (+1, ring)``, ``data (+1, chain)``, ``pp 1 -> 2``, ``table of 3 pairs``."""
    if permutation.shift is None:
        return _one_step(permutation, mesh) or f"table of {counted(permutation.pairs, 'pair')}"
    shift = permutation.shift
    form = "ring" if shift.wraps else "chain"
    return f"{_along(shift, mesh)} ({shift.delta:+d}, {form})"


def _one_step(permutation: Permutation, mesh: Mesh) -> str | None:
    """From one place of an axis to another, for all places of the other axes: a pipeline's hop."""
    sources = np.flatnonzero(permutation.target >= 0)
    moves = np.unique(permutation.target[sources] - sources)
    for axis, size, stride in zip(mesh.axes, mesh.shape, mesh.strides, strict=True):
        if len(moves) != 1 or len(sources) * size != mesh.size:
            continue
        places = np.unique(sources // stride % size)
        move = int(moves[0])
        if len(places) == 1 and move % stride == 0 and 0 <= places[0] + move // stride < size:
            return f"{axis} {places[0]} -> {places[0] + move // stride}"
    return None


def _along(shift: Shift, mesh: Mesh) -> str:
    axes = axes_of(StridedGroups(mesh.size, ((shift.size, shift.stride),)), mesh)
    return "+".join(axes) if axes else _part(shift.size, shift.stride, mesh)


def _part(size: int, stride: int, mesh: Mesh) -> str:
    """The part of an axis that has ``size`` devices ``stride`` ranks apart."""
    for axis, length, step in zip(mesh.axes, mesh.shape, mesh.strides, strict=True):
        inside = step <= stride and stride * size <= step * length
        if inside and stride % step == 0 and step * length % (stride * size) == 0:
            before = step * length // (stride * size)
            return axis if size == length else f"{axis}:({before}){size}"
    return f"{size} ranks {stride} apart"


def axes_of(groups: Groups, mesh: Mesh) -> tuple[str, ...] | None:
    """The mesh axes that ``groups`` run along; None if they are not whole axes."""
    if not isinstance(groups, StridedGroups) or groups.world != mesh.size:
        return None
    spanned = _unit_pairs(groups.dims, mesh)
    return None if spanned is None else tuple(mesh.axes[i] for i in spanned)


def _unit_pairs(dims: tuple[tuple[int, int], ...], mesh: Mesh) -> list[int] | None:
    """Mesh axes that make up ``dims``, in member order; None if one is only part of an axis."""
    found: list[int] = []
    for size, stride in dims:
        inner: list[int] = []
        below = stride
        for axis in range(len(mesh.shape) - 1, -1, -1):
            if mesh.shape[axis] > 1 and mesh.strides[axis] == below and below < stride * size:
                inner.append(axis)
                below *= mesh.shape[axis]
        if below != stride * size:
            return None
        found.extend(reversed(inner))
    return found
