"""Device meshes.

The idea: a mesh is a shape with names; a rank is a device's row-major number in it.  Everything
that is true of a mesh of 8 is computed the same way for a million ranks.

    >>> mesh = Mesh((64, 8), ("data", "model"))
    >>> mesh.size, mesh.coordinates(9)
    (512, (1, 1))
"""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeAlias

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


class FrameworkMesh(Protocol):
    """A mesh of JAX, abstract or of devices."""

    @property
    def shape(self) -> Mapping[str, int]:
        """Devices per axis, by the axis' name."""


#: The forms in which a caller can state a mesh.
MeshLike: TypeAlias = Mesh | int | Sequence[int] | Mapping[str, int] | FrameworkMesh


def as_mesh(mesh: MeshLike, axes: Sequence[str] | None = None) -> Mesh:
    """The mesh that a caller states in any of its forms.

        >>> as_mesh({"data": 64, "model": 8}) == as_mesh((64, 8), ("data", "model"))
        True

    Args:
        mesh: sizes, names with sizes, a mesh, or one of JAX.
        axes: names of the axes; with names in ``mesh``, other ones for the same axes.

    Raises:
        UsageError: not positive integers, or names that do not match.
    """
    named = _with_names(mesh)
    if named is not None:
        axes, mesh = axes or tuple(named), tuple(named.values())
    try:
        stated: Any = (mesh,) if isinstance(mesh, int) else mesh  # of a caller: anything
        sizes = tuple(operator.index(size) for size in stated)
    except TypeError:
        message = f"mesh={mesh!r}: expected sizes such as (64, 8) or {{'data': 64, 'model': 8}}"
        raise UsageError(message) from None
    return Mesh(sizes, tuple(axes or ()))


def has_names(mesh: MeshLike) -> bool:
    """Whether a stated mesh names its axes."""
    return _with_names(mesh) is not None


def _with_names(mesh: MeshLike) -> Mapping[str, int] | None:
    if isinstance(mesh, Mesh):
        return dict(zip(mesh.axes, mesh.shape, strict=True))
    if isinstance(mesh, Mapping):
        return mesh
    shape = getattr(mesh, "shape", None)
    return shape if isinstance(shape, Mapping) else None


def parse_sizes(text: str, axes: Sequence[str] | None = None) -> tuple[int, ...] | dict[str, int]:
    """Sizes, or names with sizes, from the command line's ``64,8`` or ``data=64,model=8``.

    Args:
        text: the value of ``--mesh``.
        axes: names of the axes that ``--axes`` gives.

    Raises:
        UsageError: not a list of integers, names for some sizes only, a name used twice, or other
            names in ``axes``.
    """
    # A comma after the last size is allowed, as in Python; any other gap is a missing size.
    parts = [part.strip() for part in text.strip().removesuffix(",").split(",")]
    try:
        if "=" not in text:
            return tuple(int(size) for part in parts for size in part.split("x"))
        named = {name.strip(): int(size) for name, size in (part.split("=") for part in parts)}
    except ValueError:
        message = f"--mesh {text!r}: expected sizes such as 64,8 or data=64,model=8"
        raise UsageError(message) from None
    if len(named) != len(parts):
        raise UsageError(f"--mesh {text!r} names an axis twice")
    if axes and tuple(axes) != tuple(named):
        raise UsageError(f"--mesh {text!r} names the axes, and --axes {','.join(axes)} differs")
    return named


def parse_mesh(text: str, axes: str | None = None) -> Mesh:
    """A mesh from the command line's ``64,8`` and ``data,model``, or ``data=64,model=8``.

    Raises:
        UsageError: not a list of positive integers, or names that do not match.
    """
    names = tuple(part.strip() for part in axes.split(",")) if axes else ()
    return as_mesh(parse_sizes(text, names), names)
