"""The mesh of a program, from the meshes and groups that it makes.

The idea: a dim of a mesh, or a group whose ranks have equal distances, cuts the line of ranks into
blocks: a group of 4 at distance 2 cuts it into blocks of 2 and of 8.  Cuts that divide one another
form a grid, whatever their source: DeviceMesh, lists of ranks, or none (one axis).

    grid = Grid(512)
    grid.add(stride=8, size=64, name="dp")
    grid.axes()                             # (("dp", 64), ("axis0", 8))
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

#: The axis of a program that does not divide its ranks.
WHOLE = "world"


@dataclass(slots=True)
class Grid:
    """Cuts of a line of ranks.

    Attributes:
        world: number of ranks.
    """

    world: int
    _cuts: set[int] = field(default_factory=set)
    _names: dict[tuple[int, int], str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._cuts |= {1, self.world}

    def add(self, stride: int, size: int, name: str) -> bool:
        """Add the blocks of a group if they fit the existing ones; returns whether they do.

        Args:
            stride: distance of its ranks.
            size: number of them.
            name: what the program calls it, or "".
        """
        cuts = sorted(self._cuts | {stride, stride * size})
        if size < 2 or any(second % first for first, second in itertools.pairwise(cuts)):
            return False
        self._cuts = set(cuts)
        if name:
            self._names.setdefault((stride, size), name)
        return True

    def add_ranks(self, ranks: Sequence[int], name: str) -> bool:
        """The same for a list of ranks; ranks at unequal distances cut nothing."""
        steps = np.unique(np.diff(ranks)).tolist()
        return len(steps) == 1 and steps[0] > 0 and self.add(steps[0], len(ranks), name)

    def axes(self) -> tuple[tuple[str, int], ...]:
        """((axis, size), ...), the outermost first."""
        cuts = sorted(self._cuts)
        found: list[tuple[str, int]] = []
        taken: set[str] = set()
        for number, (stride, end) in enumerate(itertools.pairwise(cuts)):
            size = end // stride
            usual = WHOLE if len(cuts) == 2 else f"axis{number}"
            name = self._names.get((stride, size), usual)
            if name in taken:
                name = usual
            taken.add(name)
            found.append((name, size))
        return tuple(reversed(found)) or ((WHOLE, 1),)

    def add_mesh(self, ranks: NDArray[np.int64], names: Sequence[str]) -> None:
        """Every dim of a mesh.

        Args:
            ranks: of the mesh, one array dim per mesh dim.
            names: of the dims, or none.
        """
        for dim, _ in enumerate(ranks.shape):
            line = np.moveaxis(ranks, dim, -1).reshape(-1, ranks.shape[dim])[0]
            self.add_ranks(line.tolist(), names[dim] if names else "")
