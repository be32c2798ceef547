"""The placement of a program's arrays, as chosen by the compiler.

The idea: XLA's partitioner chooses the placement of results of a jitted function without
``out_shardings``.  A request for it partitions the program that made the array, with the real
placements of its operands: those are stated, or results of another program, and so on back to the
first one.  Operands of which only the shape is used (``jax.jit(optimizer.init)(params)``) are not
operands of the compiled program: without any other, its results are on one device, and may be
moved.

    Places(watcher, compile).of(Origin(3, 0))
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding

from flint.frontends.jax.host.calls import Called
from flint.frontends.jax.internals.jaxprs import constrained, is_placed, meshes, used
from flint.frontends.jax.internals.traced_calls import is_stated
from flint.passes.in_sequence import Origin


class Compiled(NamedTuple):
    """What XLA's partitioner makes of a call: its results' shardings, and an ``HloProto``."""

    results: Sequence[Any]
    module: bytes


#: What becomes of a call, by the mesh and the shardings of its operands.
Compile = Callable[[Called, Mesh, Sequence[Any]], Compiled]


class Placements(Protocol):
    """What XLA's partitioner makes of calls, and where it places arrays."""

    def of(self, origin: Origin) -> Any:
        """The sharding of an array."""

    def of_results(self, call: Called, given: Sequence[Any]) -> Sequence[Any]:
        """The shardings of a call's results, by those of its operands, None if they may move."""

    def module_of(self, call: Called, given: Sequence[Any]) -> bytes:
        """The module of a call after partitioning; as for its results."""


class Places:
    """Shardings of arrays.

    Args:
        calls: the program's calls so far.
        stated: shardings of arrays that were created with one.
        compiled: compiles a call.
    """

    def __init__(
        self, calls: Sequence[Called], stated: Mapping[Origin, Any], compiled: Compile
    ) -> None:
        self._calls, self._stated, self._compiled = calls, stated, compiled
        self._found: dict[int, Sequence[Any]] = {}
        self._known: dict[Any, Compiled] = {}

    def of(self, origin: Origin) -> Any:
        """The sharding of an array; on one device by default."""
        return self.committed(origin) or on_one_device()

    def committed(self, origin: Origin) -> Any:
        """The sharding of an array; None if it is on one device and may be moved."""
        if origin in self._stated or origin.program < 0:
            return self._stated.get(origin)
        for number in self._needed(origin.program):
            self._found[number] = self._results(number)
        return self._found[origin.program][origin.number]

    def _needed(self, last: int) -> list[int]:
        """Calls whose results' shardings are needed for those of a call, the earliest first."""
        open_, needed = [last], set()
        while open_:
            number = open_.pop()
            if number in self._found or number in needed:
                continue
            needed.add(number)
            open_ += [
                item.origin.program
                for item in self._calls[number].operands
                if item.origin is not None
                and item.origin.program >= 0
                and item.origin not in self._stated
            ]
        return sorted(needed)

    def _results(self, number: int) -> Sequence[Any]:
        call = self._calls[number]
        given = [
            self.committed(operand.origin) if is_used and operand.origin is not None else None
            for operand, is_used in zip(call.operands, used(call.parameters), strict=True)
        ]
        return self.of_results(call, given)

    def of_results(self, call: Called, given: Sequence[Any]) -> Sequence[Any]:
        """The shardings of a call's results; None for those on one device that may be moved.

        Args:
            call: the call.
            given: the shardings of its operands; None for those that may be moved.
        """
        stated = call.parameters["out_shardings"]
        if all(map(is_stated, stated)):
            return tuple(item if is_placed(item) else None for item in stated)
        mesh = mesh_of(call, given)
        if mesh is None:
            return (None,) * call.results
        if mesh.size == 1:
            return (on_all(mesh),) * call.results
        known = _typed(call, mesh, given) or constrained(call.parameters["jaxpr"], mesh)
        if known is not None:
            return known
        return self._compiled_for(call, mesh, given).results

    def module_of(self, call: Called, given: Sequence[Any]) -> bytes:
        """The module of a call after partitioning, an ``HloProto``; as for its results."""
        mesh = mesh_of(call, given) or Mesh(np.array(jax.devices()[:1]), ("device",))
        return self._compiled_for(call, mesh, given).module

    def _compiled_for(self, call: Called, mesh: Mesh, given: Sequence[Any]) -> Compiled:
        stated = call.parameters["out_shardings"]
        key = id(call.parameters["jaxpr"]), mesh, tuple(given), tuple(stated)
        if key not in self._known:
            self._known[key] = self._compiled(call, mesh, given)
        return self._known[key]


def on_all(mesh: Mesh) -> NamedSharding:
    """The sharding of an array that every device of a mesh has whole."""
    known: Any = jax.sharding  # untyped
    return NamedSharding(mesh, known.PartitionSpec())


def on_one_device() -> Any:
    """The sharding of an array that no one has placed."""
    return jax.sharding.SingleDeviceSharding(jax.devices()[0])


def _typed(call: Called, mesh: Mesh, given: Sequence[Any]) -> Sequence[Any] | None:
    """The placement of results on a mesh of explicit axes, which is part of their types.

    None if the compiler chooses it, or if the operands are placed otherwise than their types say.
    """
    made = call.parameters["jaxpr"].out_avals
    if not mesh.are_all_axes_explicit or not all(
        map(_has_mesh, call.parameters["jaxpr"].out_avals)
    ):
        return None
    for place, operand in zip(given, call.parameters["jaxpr"].in_avals, strict=True):
        if place is not None and not (
            _has_mesh(operand)
            and place.is_equivalent_to(NamedSharding(mesh, operand.sharding.spec), operand.ndim)
        ):
            return None
    return [NamedSharding(mesh, aval.sharding.spec) for aval in made]


def _has_mesh(aval: Any) -> bool:
    return getattr(aval, "sharding", None) is not None and not aval.sharding.mesh.empty


def mesh_of(call: Called, given: Sequence[Any]) -> Mesh | None:
    """The mesh that a call runs on, its own rather than its operands'; None for one device.

    Args:
        call: the call.
        given: shardings of its operands; None for those that may be moved.
    """
    parameters = call.parameters
    some = (*parameters["in_shardings"], *parameters["out_shardings"], *given)
    named = [mesh_of_sharding(item) for item in some if is_placed(item)]
    inside = (*meshes(parameters["jaxpr"]), parameters["ctx_mesh"])
    over = [item for item in inside if isinstance(item, Mesh) and item.size > 1]
    return next((mesh for mesh in (*named, *over) if mesh is not None), None)


def mesh_of_sharding(sharding: Any) -> Mesh | None:
    """The mesh of devices that a sharding is on; None if that is abstract."""
    if isinstance(sharding, NamedSharding):
        return sharding.mesh if isinstance(sharding.mesh, Mesh) else None
    if not is_single(sharding):
        return None
    return Mesh(np.array([*sharding.device_set]), ("device",))


def is_single(sharding: Any) -> bool:
    """Whether a sharding is of one device alone."""
    return isinstance(sharding, jax.sharding.SingleDeviceSharding)
