"""Device meshes.

The idea: a mesh is a shape with names; a rank is a device's row-major number in it.  Everything
that is true of a mesh of 8 is computed the same way for a million ranks.

    >>> mesh = Mesh((64, 8), ("data", "model"))
    >>> mesh.size, mesh.coordinates(9)
    (512, (1, 1))
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from flint.errors import UsageError

#: An array with a number for each rank then takes 128 MiB.
MAX_RANKS: Final = 1 << 24
#: More axes than that many ranks can have, except axes of one device.
MAX_AXES = 64


@dataclass(frozen=True, slots=True)
class Mesh:
    """A logical device grid.

    Attributes:
        shape: devices per axis, slowest-varying first.
        axes: one name per axis; ``axis_0``, ``axis_1`` ... when not given.

    Raises:
        UsageError: an axis below 1, names that do not match the shape, a name used twice.
    """

    shape: tuple[int, ...]
    axes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.shape or any(size < 1 for size in self.shape):
            raise UsageError(f"a mesh needs axes of at least 1 device, got {self.shape}")
        if len(self.shape) > MAX_AXES:
            raise UsageError(f"a mesh with {len(self.shape):,} axes; the limit is {MAX_AXES}")
        if not self.axes:
            object.__setattr__(self, "axes", tuple(f"axis_{i}" for i in range(len(self.shape))))
        if len(self.axes) != len(self.shape):
            raise UsageError(
                f"mesh {self.shape} has {len(self.shape)} axes, but the names are {self.axes}"
            )
        if len(set(self.axes)) != len(self.axes) or not all(self.axes):
            raise UsageError(f"mesh axes need distinct names, got {self.axes}")
        if self.size > MAX_RANKS:
            raise UsageError(
                f"mesh {self.shape} has {self.size:,} devices; the limit is {MAX_RANKS:,}"
            )

    @property
    def size(self) -> int:
        """Number of devices."""
        return math.prod(self.shape)

    @property
    def strides(self) -> tuple[int, ...]:
        """Rank distance between neighbours along each axis."""
        return tuple(math.prod(self.shape[i + 1 :]) for i in range(len(self.shape)))

    def coordinates(self, rank: int) -> tuple[int, ...]:
        """Position of ``rank`` along each axis."""
        return tuple(
            rank // stride % size for size, stride in zip(self.shape, self.strides, strict=True)
        )

    def __str__(self) -> str:
        return " x ".join(
            f"{axis}={size}" for axis, size in zip(self.axes, self.shape, strict=True)
        )


def parse_mesh(text: str, axes: str | None = None) -> Mesh:
    """A mesh from the command line's ``64,8`` and ``data,model``.

    Raises:
        UsageError: not a list of positive integers, or names that do not match.
    """
    try:
        # A comma after the last size is allowed, as in Python; any other gap is a missing size.
        sizes = text.strip().removesuffix(",").replace("x", ",").split(",")
        shape = tuple(int(part) for part in sizes)
    except ValueError:
        raise UsageError(f"--mesh {text!r}: expected sizes such as 64,8") from None
    names = tuple(part.strip() for part in axes.split(",")) if axes else ()
    return Mesh(shape, names)
