"""JAX's functions for programs of several processes, with one process for all.

The idea: every process of a program does the same, so their messages contain what this one already
knows, and there is no waiting.  Arrays that a process makes from its own data are passed to the
given function for arrays.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import jax
import numpy as np
from jax._src import array, distributed, pmap
from jax._src.sharding_impls import local_to_global_shape

from flint.frontends.jax.internals.host_arrays import HostArray

#: Shape, sharding, callback, dtype -> an array.
FromCallback = Callable[[Any, Any, Any, Any], Any]
#: Shape, sharding, arrays, dtype -> an array.
FromSingle = Callable[[Any, Any, Any, Any], Any]
#: Sharding, this process's part, shape or None -> an array.
FromProcess = Callable[[Any, Any, Any], Any]


def replace_array_makers(from_callback: FromCallback, from_single: FromSingle) -> None:
    """Create arrays on the devices of several processes with given functions."""

    def make_array_from_callback(
        shape: Any, sharding: Any, data_callback: Any, dtype: Any = None
    ) -> Any:
        return from_callback(shape, _sharding(sharding), data_callback, dtype)

    def make_array_from_single_device_arrays(
        shape: Any, sharding: Any, arrays: Any, *, dtype: Any = None
    ) -> Any:
        return from_single(shape, _sharding(sharding), arrays, dtype)

    _replace((jax, array), make_array_from_callback)
    _replace((jax, array), make_array_from_single_device_arrays)


def first_index(shape: Sequence[int], sharding: Any) -> Any:
    """The part of an array on the first device of this process."""
    return next(iter(sharding.addressable_devices_indices_map(tuple(shape)).values()))


def replace_processes(processes: int, from_process: FromProcess) -> None:
    """One process represents that many, without a connection.

    Args:
        processes: number of processes.
        from_process: makes an array of which this process has a part.
    """
    state: Any = distributed.global_state

    def initialize(*_args: Any, **_known: Any) -> None:
        state.process_id, state.num_processes = 0, processes
        state.client = _Store()

    def shutdown(*_args: Any, **_known: Any) -> None:
        state.client = None

    if processes > 1:  # a program with several processes is connected, regardless of the way
        initialize()
    kind: Any = distributed.State
    kind.initialize = lambda self, *args, **known: initialize()
    kind.shutdown = lambda self: shutdown()
    _replace((distributed, jax.distributed), initialize)
    _replace((distributed, jax.distributed), shutdown)
    from jax.experimental import multihost_utils

    def process_allgather(in_tree: Any, tiled: bool = False) -> Any:
        def gathered(leaf: Any) -> Any:
            if isinstance(leaf, jax.Array) and not leaf.is_fully_addressable:
                return np.asarray(leaf)
            own = np.asarray(leaf)
            join = np.concatenate if tiled and own.ndim else np.stack
            return join([own] * processes)

        return jax.tree.map(gathered, in_tree)

    def broadcast_one_to_all(in_tree: Any, is_source: bool | None = None) -> Any:
        return jax.tree.map(np.asarray, in_tree)

    def sync_global_devices(name: str) -> None:
        """Nobody is waited for."""

    def assert_equal(in_tree: Any, fail_message: str = "") -> None:
        """They are."""

    def host_local_array_to_global_array(local_inputs: Any, global_mesh: Any, pspecs: Any) -> Any:
        def whole(spec: Any, leaf: Any) -> Any:
            if isinstance(leaf, HostArray) and leaf.part_of is not None:
                array, _ = leaf.part_of
                if own_part(array)[0] == leaf.shape:
                    return array
            return from_process(jax.sharding.NamedSharding(global_mesh, spec), leaf, None)

        return _by_spec(whole, pspecs, local_inputs)

    def global_array_to_host_local_array(global_inputs: Any, global_mesh: Any, pspecs: Any) -> Any:
        def own(spec: Any, leaf: Any) -> Any:
            place = jax.sharding.NamedSharding(global_mesh, spec)
            if not isinstance(leaf, HostArray) or leaf.is_fully_addressable:
                return leaf
            if not leaf.sharding.is_equivalent_to(place, leaf.ndim):
                leaf = jax.device_put(leaf, place)
            local = jax.sharding.NamedSharding(global_mesh.local_mesh, spec)
            return leaf.part(*own_part(leaf), local)

        return _by_spec(own, pspecs, global_inputs)

    for function in (
        process_allgather, broadcast_one_to_all, sync_global_devices, assert_equal,
        host_local_array_to_global_array, global_array_to_host_local_array,
    ):  # fmt: skip
        _replace((multihost_utils,), function)
    # In several processes a pmap takes and returns this process's parts; the module's own functions
    # for them since jax 0.9.
    if hasattr(pmap, "host_local_array_to_global_array"):
        mapped: Any = pmap
        mapped.host_local_array_to_global_array = lambda flat, cached, *_: [
            *host_local_array_to_global_array(tuple(flat), cached.mesh, cached.in_specs_flat)
        ]
        mapped.global_array_to_host_local_array = lambda out, cached, *_: (
            global_array_to_host_local_array(out, cached.mesh, cached.out_specs)
        )


def own_part(array: Any) -> tuple[tuple[int, ...], Any]:
    """The shape of the part of an array that this process has, and its position: slices."""
    places = array.sharding.addressable_devices_indices_map(array.shape).values()
    ends = [
        [item.indices(size)[:2] for item in dim]
        for size, dim in zip(array.shape, zip(*places, strict=True), strict=True)
    ]
    index = tuple(slice(min(a for a, _ in dim), max(b for _, b in dim)) for dim in ends)
    return tuple(item.stop - item.start for item in index), index


def _by_spec(convert: Callable[[Any, Any], Any], specs: Any, tree: Any) -> Any:
    """Convert each leaf of a tree with the spec of the tree's prefix that it belongs to."""
    whole = jax.tree.broadcast(
        specs, tree, is_leaf=lambda item: isinstance(item, jax.sharding.PartitionSpec)
    )
    return jax.tree.map(convert, whole, tree)


def whole_shape(sharding: Any, part: Sequence[int]) -> tuple[int, ...]:
    """Shape of an array of which every process has one of these parts."""
    found: Any = local_to_global_shape(sharding, tuple(part))
    return tuple(found)


class _Store:
    """The answers of the processes' key-value store when there is one process."""

    def __init__(self) -> None:
        self._values: dict[str, Any] = {}

    def key_value_set(self, key: str, value: Any, *_args: Any, **_known: Any) -> None:
        self._values[key] = value

    key_value_set_bytes = key_value_set

    def blocking_key_value_get(self, key: str, *_args: Any) -> Any:
        return self._values.get(key, "")

    def blocking_key_value_get_bytes(self, key: str, *_args: Any) -> Any:
        return self._values.get(key, b"")

    def key_value_try_get(self, key: str) -> Any:
        return self._values[key]

    def key_value_dir_get(self, prefix: str) -> list[tuple[str, Any]]:
        return [(key, value) for key, value in self._values.items() if key.startswith(prefix)]

    def key_value_delete(self, key: str) -> None:
        self._values.pop(key, None)

    def key_value_increment(self, key: str, by: int) -> int:
        self._values[key] = int(self._values.get(key, 0)) + by
        return int(self._values[key])

    def wait_at_barrier(self, *_args: Any, **_known: Any) -> None:
        """Nobody is waited for."""

    def get_live_nodes(self, nodes: Iterable[int]) -> Any:
        return nodes


def _sharding(given: Any) -> Any:
    """The sharding of a ``Format``, or of a bare sharding."""
    return getattr(given, "sharding", given)


def _replace(modules: Iterable[Any], function: Callable[..., Any]) -> None:
    """Replace functions of its name by a function, wherever a module has imported it."""
    name = function.__name__
    originals = {getattr(module, name) for module in modules if hasattr(module, name)}
    for module in [*modules, *sys.modules.values()]:
        if getattr(module, "__dict__", {}).get(name) in originals:
            setattr(module, name, function)
