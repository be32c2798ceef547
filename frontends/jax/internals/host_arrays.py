"""Arrays that a step's host code holds.

The idea: an array here has a type and no value.  The recorder is notified of calls with it
(``host_evaluation.py``) and of reads of its value.
"""

from __future__ import annotations

import types
import weakref
from collections.abc import Iterator, Sequence
from typing import Any

import jax
from jax._src import array, core, dtypes, source_info_util
from jax._src.lax import lax
from jax._src.numpy import array_methods, indexing

from flint.frontends.jax.internals.array_values import ArrayValues
from flint.frontends.jax.internals.avals import aval_on, size_of
from flint.frontends.jax.internals.formats import format_of
from flint.frontends.jax.internals.host import Host
from flint.frontends.jax.internals.jaxprs import is_elsewhere

_core: Any = core  # untyped


#: All arrays of this kind that the program holds, by their ids.
_living: weakref.WeakValueDictionary[int, HostArray] = weakref.WeakValueDictionary()


class HostArray(ArrayValues):
    """An array without a value, which JAX accepts as an array.

    Attributes:
        host: the recorder.
        origin: where the array comes from.
        aval: JAX's type of it.
        known_sharding: the sharding that it was created with, None if the compiler chooses it.
        part_of: for a part, on one device or of this process: the array, and the part's position in
            it as slices; otherwise None.
    """

    # JAX's array classes of older versions already support weak references.
    # NumPy leaves operators to it, also those of NumPy's own arrays and numbers.
    __array_priority__ = 100
    __slots__ = (
        "aval", "host", "known_sharding", "origin", "part_of",
        *(() if jax.Array.__weakrefoffset__ else ("__weakref__",)),
    )  # fmt: skip

    def __init__(self, host: Host, origin: Any, aval: Any, sharding: Any = None) -> None:
        self.host, self.origin, self.known_sharding = host, origin, sharding
        self.part_of: tuple[HostArray, Any] | None = None
        self.aval = aval  # type: ignore[misc]  # a property of JAX's own arrays
        _living[id(self)] = self

    def __del__(self) -> None:
        if self.part_of is None:
            self.host.dropped(self)

    @property
    def source(self) -> Any:
        """Its origin for a program; None for a part, which no program over all devices takes."""
        return self.origin if self.part_of is None or self.part_of[0].shape == self.shape else None

    def place_on(self, sharding: Any) -> None:
        """Set the array's sharding; with explicit axes its type includes it, too."""
        self.known_sharding = sharding
        self.aval = aval_on(self.aval, self.shape, sharding)  # type: ignore[misc]

    def part(self, shape: Sequence[int], index: Any, sharding: Any) -> HostArray:
        """A part of the array.

        Args:
            shape: its shape.
            index: its position in the array: slices.
            sharding: its placement.
        """
        aval = self.aval.update(shape=tuple(shape), sharding=None)
        found = HostArray(self.host, self.origin, aval, sharding)
        found.part_of = self, index
        return found

    @property
    def shape(self) -> Any:
        """Size of each dim."""
        return self.aval.shape

    @property
    def dtype(self) -> Any:
        """Type of an element."""
        return self.aval.dtype

    @property
    def ndim(self) -> int:
        """The number of dims."""
        return len(self.aval.shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        return int(self.aval.size)

    @property
    def weak_type(self) -> bool:
        """Whether other operands decide the dtype of a result."""
        return bool(self.aval.weak_type)

    @property
    def sharding(self) -> Any:
        """The sharding, if known."""
        return self.known_sharding or self.host.sharding(self)

    @property
    def committed(self) -> bool:
        """Whether the array stays on the devices that it is on; on one it is by default."""
        found = self.known_sharding  # if it is not known, nobody has asked for it
        return found is None or is_elsewhere(found)

    _committed = committed

    @property
    def is_fully_addressable(self) -> bool:
        """Whether this process has all of it."""
        return bool(self.sharding.is_fully_addressable)

    @property
    def is_fully_replicated(self) -> bool:
        """Whether every device has all of it."""
        return bool(self.sharding.is_fully_replicated)

    @property
    def device(self) -> Any:
        """The device, or the sharding if there are several."""
        found = self.sharding
        return found if len(found.device_set) > 1 else next(iter(found.device_set))

    def devices(self) -> Any:
        """The devices that have parts of it."""
        return self.sharding.device_set

    @property
    def format(self) -> Any:
        """The sharding, and the order of dims in memory."""
        return format_of(self.sharding, self.ndim)

    @property
    def addressable_shards(self) -> list[Any]:
        """The parts that this process has, none of which has a value."""
        places = _reduced(self.sharding).addressable_devices_indices_map(self.shape)
        return [self._shard(device, index) for device, index in places.items()]

    @property
    def global_shards(self) -> list[Any]:
        """The parts on all devices; those of other processes have no data."""
        here = self.sharding.addressable_devices
        places = _reduced(self.sharding).devices_indices_map(self.shape)
        return [self._shard(device, index, device in here) for device, index in places.items()]

    def _shard(self, device: Any, index: Any, here: bool = True) -> Any:
        found = self.sharding
        place = jax.sharding.SingleDeviceSharding(device)
        data: Any = self.part(found.shard_shape(self.shape), index, place) if here else None
        return array.Shard(device, found, self.shape, data)

    def is_ready(self) -> bool:
        """Whether it is computed."""
        return True

    def on_device_size_in_bytes(self) -> int:
        """Bytes of its parts on all devices."""
        found = self.sharding
        part = self.aval.update(shape=found.shard_shape(self.shape), sharding=None)
        return size_of(part) * len(found.device_set)

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of unsized object")
        return int(self.shape[0])

    def __iter__(self) -> Iterator[Any]:
        if not self.shape:
            raise TypeError("iteration over a 0-d array")
        sharding = self.known_sharding
        if sharding is None or sharding.is_fully_replicated:
            return (self[index] for index in range(len(self)))
        # JAX reads the value, and puts its rows on one device.
        first = jax.sharding.SingleDeviceSharding(jax.devices()[0])
        return (self.part(self.shape[1:], index, first) for index in range(len(self)))

    def block_until_ready(self) -> HostArray:
        """Wait for the program that makes the array."""
        self.host.read(self, "wait")
        return self

    def copy_to_host_async(self) -> None:
        """Do nothing: a read of the value waits."""

    def addressable_data(self, index: int) -> Any:
        """The part of the array on one of this process's devices; of a number, the number."""
        return self.addressable_shards[index].data if self.shape else self

    def is_deleted(self) -> bool:
        """Whether the array was donated or deleted."""
        return self.host.is_deleted(self)

    def delete(self) -> None:
        """Release the array."""
        if self.part_of is None:
            self.host.deleted(self)


def _reduced(sharding: Any) -> Any:
    """The placement of parts, which for axes that are not reduced yet JAX does not compute."""
    spec: Any = getattr(sharding, "spec", None)
    left = getattr(spec, "unreduced", None)
    return sharding.update(spec=spec.update(unreduced=frozenset())) if left else sharding


class _IsPlaced(type):
    def __instancecheck__(cls, item: Any) -> bool:
        return isinstance(item, array.ArrayImpl) or (
            isinstance(item, HostArray) and hasattr(item, "sharding")
        )


class _Placed(metaclass=_IsPlaced):
    """JAX's own arrays, and ours with a known sharding."""


def _made_from_callback(*args: Any, **known: Any) -> Any:
    return array.make_array_from_callback(*args, **known)


def _as_jax_has_them() -> None:
    """Make JAX accept these arrays as its own: types, operators, methods."""
    _core.pytype_aval_mappings[HostArray] = lambda array: array.aval
    dtypes.canonicalize_value_handlers[HostArray] = lambda array: array
    methods: Any = array_methods  # untyped
    methods._set_array_base_attributes(HostArray, exclude={"item"})
    # How JAX indexes an array, and where it makes one like it, depends on whether its own arrays
    # lie on several devices.
    for module in (indexing, lax):
        places: Any = module
        places.array = types.SimpleNamespace(
            ArrayImpl=_Placed, make_array_from_callback=_made_from_callback
        )


_as_jax_has_them()


def living() -> list[HostArray]:
    """The arrays without values that the program holds, without their parts."""
    return [item for item in list(_living.values()) if item.part_of is None]


def path() -> str:
    """The name stack around the current call: scopes, and transformations such as ``jax.grad``'s.

    It is not in the names of ops in a jitted function, which begin with the function's own.
    """
    return str(source_info_util.current_name_stack())


def has_host_array(args: Sequence[Any]) -> bool:
    """Whether one of some operands has no value."""
    return any(isinstance(item, HostArray) for item in args)
