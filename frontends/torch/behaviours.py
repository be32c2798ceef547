"""Which ranks do the same: found by recording a few of them.

The idea: what a rank does depends on its place in the mesh along some axes (a pipeline's stages)
and not along others.  The first, the last and a rank in the middle are recorded; where they agree
all ranks run one program.  Where not, the axes along which something changes are found one by one,
every place along those is recorded, and ranks elsewhere are recorded to check the prediction.

    behaviours((4, 2, 8), sign)       # sign(ranks) -> rank -> signature; here 4 stages
    [Behaviour(0, mask of 16 ranks), Behaviour(16, ...), ...]
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from flint.errors import FlintError

#: More representatives than this are refused: each costs a recording.
MAX_REPRESENTATIVES = 256

#: Ranks -> what tells each of them apart; equal for ranks that do the same.
Sign = Callable[[Sequence[int]], dict[int, str]]


@dataclass(frozen=True, slots=True)
class Behaviour:
    """Ranks that do the same.

    Attributes:
        representative: the one that was recorded.
        ranks: mask over all ranks, shape [world].
    """

    representative: int
    ranks: NDArray[np.bool_]


def behaviours(shape: tuple[int, ...], sign: Sign) -> list[Behaviour]:
    """The distinct behaviours over a mesh.

    Args:
        shape: devices per mesh axis; rank is row-major.
        sign: records ranks; asked for several at once, and for each rank once.

    Raises:
        FlintError: too many distinct places, or a rank that breaks the pattern.
    """
    world = math.prod(shape)
    known: dict[int, str] = {}

    def signature(ranks: Sequence[int]) -> list[str]:
        new = [rank for rank in dict.fromkeys(ranks) if rank not in known]
        if new:
            known.update(sign(new))
        return [known[rank] for rank in ranks]

    witnesses = [0, world - 1, _rank(tuple(size // 2 for size in shape), shape)]
    if len(set(signature(witnesses))) == 1:
        return [Behaviour(0, np.ones(world, bool))]
    changing = _changing_axes(shape, signature)
    count = math.prod(shape[axis] for axis in changing)
    if count > MAX_REPRESENTATIVES:
        raise FlintError(
            f"ranks behave differently along mesh axes of {count:,} places together; at most "
            f"{MAX_REPRESENTATIVES} are recorded"
        )
    places = np.stack(np.unravel_index(np.arange(world), shape))
    corner = places.copy()
    for axis in range(len(shape)):
        if axis not in changing:
            corner[axis] = 0
    representative = np.ravel_multi_index(tuple(corner), shape)
    chosen = sorted(set(representative.tolist()))
    by_rank = dict(zip(chosen, signature(chosen), strict=True))
    others = _others(shape, changing)
    for rank, found in zip(others, signature(others), strict=True):
        if found != by_rank[int(representative[rank])]:
            raise FlintError(
                f"rank {rank:,} does something else than rank {int(representative[rank]):,}, "
                f"although both stand at the same place along the mesh axes {changing} along which "
                "ranks differ: its behaviour follows no pattern of mesh axes"
            )
    first: dict[str, int] = {}
    for rank in chosen:
        first.setdefault(by_rank[rank], rank)
    owner = np.array([first[by_rank[rank]] for rank in chosen])
    owners = owner[np.searchsorted(chosen, representative)]
    return [Behaviour(rank, owners == rank) for rank in sorted(first.values())]


def _changing_axes(
    shape: tuple[int, ...], signature: Callable[[Sequence[int]], list[str]]
) -> tuple[int, ...]:
    """Axes along which a signature changes, seen from the first and from the last rank."""
    probes: dict[int, list[int]] = {}
    for axis, size in enumerate(shape):
        for base in (tuple(0 for _ in shape), tuple(size - 1 for size in shape)):
            for place in {0, 1 % size, size // 2, size - 1}:
                at = (*base[:axis], place, *base[axis + 1 :])
                probes.setdefault(axis, []).append(_rank(at, shape))
    signature([rank for ranks in probes.values() for rank in ranks])  # all at once
    changing = []
    for axis, ranks in probes.items():
        half = len(ranks) // 2
        if len(set(signature(ranks[:half]))) > 1 or len(set(signature(ranks[half:]))) > 1:
            changing.append(axis)
    return tuple(changing)


def _others(shape: tuple[int, ...], changing: tuple[int, ...]) -> list[int]:
    """For the first and the last place along the changing axes, the far end of the other ones."""
    ends = []
    for end in (0, -1):
        at = tuple(
            (0 if end == 0 else size - 1) if axis in changing else size - 1
            for axis, size in enumerate(shape)
        )
        ends.append(_rank(at, shape))
    return ends


def _rank(at: tuple[int, ...], shape: tuple[int, ...]) -> int:
    return int(np.ravel_multi_index(at, shape))
