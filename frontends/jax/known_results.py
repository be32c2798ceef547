"""The shardings of a program's results, on the meshes on which JAX names them.

The idea: a result's sharding is stated for its jit, or is its type's if all axes are explicit.  XLA
chooses any other, and JAX writes it along the axes of a mesh: of the result's type if it has one,
else the first mesh that the program's operands name, then what is inside of it, then its results,
then the one in context.  A step may use several meshes over the same devices, and where arrays have
axes of different meshes XLA partitions otherwise.

    known = known_of_results(prepared, call, shardings)    # (Mesh('data': 4), NamedSharding())
    placed(prepared, program, call, known)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from jax.sharding import AbstractMesh, Mesh, NamedSharding, PartitionSpec

from flint.errors import FlintError
from flint.frontends.jax.compiled import CompiledProgram
from flint.frontends.jax.host.calls import Called
from flint.frontends.jax.internals.jaxprs import meshes
from flint.frontends.jax.internals.placements import SplitAxisError, placements
from flint.frontends.jax.internals.traced_calls import is_stated
from flint.frontends.jax.lower.prepared import Prepared
from flint.workload.programs import Level

_SPLIT = (
    "has a result that XLA's partitioner shards over parts of a mesh's axis: a run stops here with "
    "'IndivisibleError: {}'; set the jit's out_shardings"
)
OF_PARTS_OF_AXES = (
    "results of programs whose sharding cannot be written as a PartitionSpec over the mesh, "
    "because it splits an axis: JAX stops some runs there with IndivisibleError; set the jit's "
    "out_shardings"
)
#: For each result its sharding, or the mesh on which that is named.
Known = tuple[AbstractMesh | Mesh | NamedSharding, ...]


def known_of_results(prepared: Prepared, call: Called, given: Sequence[Any]) -> Known:
    """For each result of a call its sharding, or the mesh on which JAX names it.

    Args:
        prepared: the step; a capture on an abstract mesh has no other.
        call: the call.
        given: shardings of its operands, None for those that may be moved.
    """
    parameters = call.parameters
    named = (mesh for mesh in _named(call, given) if _is_over(mesh, prepared))
    own: Mesh | AbstractMesh = next(named, prepared.mesh)  # JAX leaves it as XLA has written it
    results = zip(parameters["out_shardings"], parameters["jaxpr"].out_avals, strict=True)
    return tuple(
        _stated(sharding, prepared) or _typed(aval, prepared) or own for sharding, aval in results
    )


def placed(
    prepared: Prepared, program: CompiledProgram, call: Called, results: Known
) -> tuple[Any, ...]:
    """The shardings of a compiled call's results; None if the compiler does not state one.

    Args:
        prepared: the step.
        program: the call, compiled.
        call: the call.
        results: what is known of its results.

    Raises:
        FlintError: a run would stop after the call.
    """
    if prepared.request.level is Level.LOGICAL:  # no compiler has chosen anything
        return (None,) * len(results)
    try:
        stated = placements(program.saved[0], results)
    except SplitAxisError as error:
        raise FlintError(f"{call.place}: {call.name} {_SPLIT.format(error)}") from error
    if prepared.mesh.size > 1 and None in stated:
        program.module.warnings[
            "the compiler does not report how a program's results are sharded: the next program is "
            "compiled as if it could choose their sharding"
        ] = 1
    finer = sum(
        sharding is not None and sharding != item and sharding.mesh != item
        for sharding, item in zip(stated, results, strict=True)
    )
    if finer:
        program.module.warnings[OF_PARTS_OF_AXES] = finer
    return tuple(stated)


def _named(call: Called, given: Sequence[Any]) -> Iterator[Any]:
    """Meshes of devices that a call names, in the order in which JAX takes them."""
    parameters = call.parameters
    stated = zip(parameters["in_shardings"], given, strict=True)
    operands = [one if is_stated(one) else place for one, place in stated]
    yield from (item.mesh for item in operands if isinstance(item, NamedSharding))
    yield from meshes(parameters["jaxpr"])
    results = parameters["out_shardings"]
    yield from (item.mesh for item in results if isinstance(item, NamedSharding))
    yield parameters["ctx_mesh"]


def _stated(sharding: Any, prepared: Prepared) -> NamedSharding | Mesh | AbstractMesh | None:
    """A sharding that a jit was given for a result, or its mesh if XLA chooses a part of it."""
    if not isinstance(sharding, NamedSharding) or not _is_over(sharding.mesh, prepared):
        return None
    return sharding.mesh if PartitionSpec.UNCONSTRAINED in sharding.spec else sharding


def _typed(aval: Any, prepared: Prepared) -> NamedSharding | Mesh | AbstractMesh | None:
    """The sharding of a result's type, or its mesh if an axis is not explicit."""
    sharding = getattr(aval, "sharding", None)
    mesh, devices = getattr(sharding, "mesh", None), prepared.devices
    if sharding is None or mesh is None or mesh.empty or mesh.manual_axes:
        return None
    if devices is not None and mesh.size == devices.size:
        ranks = devices.devices.reshape(tuple(mesh.axis_sizes))
        mesh = Mesh(ranks, mesh.axis_names, axis_types=mesh.axis_types)
    if not _is_over(mesh, prepared):
        return None
    return NamedSharding(mesh, sharding.spec) if mesh.are_all_axes_explicit else mesh


def _is_over(mesh: Any, prepared: Prepared) -> bool:
    """Whether a mesh is the capture's, or another one over the devices of a program."""
    if prepared.devices is None:
        return bool(mesh == prepared.grid)
    return isinstance(mesh, Mesh) and mesh.size == prepared.devices.size
