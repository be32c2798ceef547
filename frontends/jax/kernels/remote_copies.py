"""What a kernel sends to other devices: copies into their memory, over its grid and its loops.

The idea: a device's place on the mesh is known as its place in the grid is, so the walk over the
kernel's equations also finds where each copy goes.  Copies of one device to another become one
message of all their bytes; messages that go the same way on the mesh are one exchange.

    exchanges_of([copy], (("x", 8),))      # ({"bytes": 4096, "dtype": "f32", "by": [1], ...},)
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from flint.frontends.jax.kernels.arithmetic import element_type
from flint.frontends.jax.kernels.points import Points, Values

#: Axes of a mesh: name, size.
Axes = Sequence[tuple[str, int]]
#: More combinations of device, grid point and iteration at which copies differ are not listed.
_MOST = 1 << 22
#: Transformations of a reference that make it one of another GPU's, and what writes to all GPUs.
_PEERS = ("PeerMemRef", "MulticastRef")
_TO_ALL = "multimem_"


class UnknownTargetError(Exception):
    """Where a copy goes cannot be followed; the text gives the reason."""


@dataclass(frozen=True, slots=True)
class Copy:
    """A copy to other devices.

    Attributes:
        size: bytes of one.
        dtype: StableHLO's name of the element type.
        target: position on each axis of the mesh, at every point.
        at: the points; the last axes are the mesh's, then the grid's.
        inside: how many axes the grid has.
    """

    size: int
    dtype: str
    target: tuple[Values, ...]
    at: Points
    inside: int

    @property
    def total(self) -> int:
        """Bytes at all points together."""
        return self.size * self.at.total()


def copies_to_others(jaxpr: Any) -> Iterator[str]:
    """The names of equations that write to, or read from, other devices.

    Args:
        jaxpr: a kernel.
    """
    for one in getattr(jaxpr, "jaxpr", jaxpr).eqns:
        name, parameters = one.primitive.name, one.params
        trees = [str(value) for key, value in parameters.items() if "tree" in key]
        if name == "dma_start":
            if _parts(one, range(len(one.invars)))[-1] is not None:
                yield name
        elif name.startswith(_TO_ALL) or any(word in text for text in trees for word in _PEERS):
            yield name
        for value in parameters.values():
            for item in value if isinstance(value, list | tuple) else (value,):
                if hasattr(item, "eqns") or hasattr(item, "jaxpr"):
                    yield from copies_to_others(item)


def copy_of(one: Any, values: Sequence[Any], axes: Axes, at: Points, inside: int) -> Copy | None:
    """The copy that an equation starts; None if it stays on the device.

    Args:
        one: the equation, a ``dma_start``.
        values: of its operands at every point, None if unknown.
        axes: of the mesh.
        at: the points.
        inside: how many axes the grid has.

    Raises:
        UnknownTargetError: the target depends on data.
    """
    device = _parts(one, [_Known(item) for item in values])[-1]
    if device is None:
        return None
    source, *others = _parts(one, [item.aval for item in one.invars])
    indexed = others[0] if len(others) == 8 else ()  # before jax 0.10 the parts that are taken
    shape = indexed[-1].get_indexer_shape() if indexed else source.shape
    target = _target(device, one.params["device_id_type"].name, axes, at, inside)
    size = prod(shape) * source.dtype.itemsize
    return Copy(size, element_type(source), target, at, inside)


@dataclass(frozen=True, slots=True)
class _Known:
    """An operand's value, which may be None, as a leaf of a tree."""

    value: Any


def _parts(one: Any, values: Sequence[Any]) -> Any:
    """(source, target, semaphores, device) of a copy, of its flat operands."""
    return one.params["tree"].unflatten(values)


def _target(device: Any, kind: str, axes: Axes, at: Points, inside: int) -> tuple[Values, ...]:
    names = [name for name, _ in axes]
    own = [at.along(number - len(axes) - inside) for number in range(len(axes))]
    if isinstance(device, Mapping):
        for key, value in device.items():
            if key not in names:
                raise UnknownTargetError(f"a copy along {key}, which is no axis of the mesh")
            own[names.index(key)] = _value(value)
        return tuple(own)
    if kind == "LOGICAL":
        number = _value(device)
        strides = [prod(size for _, size in axes[place + 1 :]) for place in range(len(axes))]
        return tuple(
            number // stride % size for stride, (_, size) in zip(strides, axes, strict=True)
        )
    places = device if isinstance(device, list | tuple) else (device,)
    if len(places) != len(axes):
        raise UnknownTargetError("a copy to a device of another mesh")
    return tuple(map(_value, places))


def _value(item: Any) -> Values:
    found = item.value if isinstance(item, _Known) else np.asarray(item)
    if found is None:
        raise UnknownTargetError("a copy to a device that depends on data")
    return np.asarray(found)


def exchanges_of(copies: Sequence[Copy], axes: Axes) -> tuple[dict[str, Any], ...]:
    """What devices send, as messages that go the same way.

    Each has ``bytes`` and ``dtype``, ``by`` how many places on along each axis they go (the ends of
    an axis are joined), and ``from`` which devices, by their places; None for all.

    Args:
        copies: of ``copy_of``.
        axes: of the mesh.

    Raises:
        UnknownTargetError: the copies differ at too many points.
    """
    sizes = [size for _, size in axes]
    sent: dict[tuple[str, tuple[int, ...], tuple[int, ...]], int] = defaultdict(int)
    for copy in copies:
        for way, place, times in _messages(copy, sizes):
            sent[copy.dtype, way, place] += times * copy.size
    found: dict[tuple[str, tuple[int, ...], int], list[tuple[int, ...]]] = defaultdict(list)
    for (dtype, way, place), size in sent.items():
        found[dtype, way, size].append(place)
    return tuple(
        {"bytes": size, "dtype": dtype, "by": list(way), "from": [list(one) for one in places]}
        for (dtype, way, size), places in found.items()
    )


def _messages(
    copy: Copy, sizes: Sequence[int]
) -> Iterator[tuple[tuple[int, ...], tuple[int, ...], int]]:
    """(way, place, how often) of a copy; a place of -1 along an axis is every one."""
    shape, first = copy.at.shape, len(copy.at.shape) - copy.inside - len(sizes)
    ways = [
        _short((target - copy.at.along(first + axis - len(shape))) % size, len(shape))
        for axis, (target, size) in enumerate(zip(copy.target, sizes, strict=True))
    ]
    times = _short(copy.at.times, len(shape))
    short = np.broadcast_shapes(*(one.shape for one in ways), times.shape)
    if prod(short) > _MOST:
        raise UnknownTargetError("its copies differ at too many devices and iterations")
    repeated = prod(
        size
        for axis, (size, own) in enumerate(zip(shape, short, strict=True))
        if own == 1 and not first <= axis < first + len(sizes)
    )
    places = [
        np.arange(size).reshape(size, *(1,) * (len(shape) - axis - 1)) if own > 1 else np.array(-1)
        for axis, (size, own) in enumerate(zip(shape, short, strict=True))
        if first <= axis < first + len(sizes)
    ]
    flat = [np.broadcast_to(one, short).ravel() for one in (*ways, *places, times)]
    keys, inverse = np.unique(np.stack(flat[:-1]), axis=1, return_inverse=True)
    counts = np.bincount(inverse.ravel(), weights=flat[-1]).astype(np.int64) * repeated
    for key, count in zip(keys.T.tolist(), counts.tolist(), strict=True):
        way, place = tuple(key[: len(sizes)]), tuple(key[len(sizes) :])
        if count and any(way):  # a copy to the device itself sends nothing
            yield way, place, count


def _short(values: Values, dims: int) -> Values:
    """Values with extent 1 along each axis on which they are the same."""
    values = values.reshape((1,) * (dims - values.ndim) + values.shape)
    for axis in range(dims):
        one = values.take([0], axis) if values.shape[axis] > 1 else values
        if np.array_equal(np.broadcast_to(one, values.shape), values):
            values = one
    return values
