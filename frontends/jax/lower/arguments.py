"""A step's arguments as abstract values on the mesh that is captured for.

The idea: only shape, dtype, PartitionSpec and memory of an argument matter.  Real arrays on 8
devices, ShapeDtypeStructs on the mesh passed to ``setup`` and bare PartitionSpecs all become
ShapeDtypeStructs on one abstract mesh, so that one call captures any size.  Leaves that are not
arrays (such as activation functions in a module) are not arguments of the program and stay
unchanged.

    mesh = mesh_of(arguments, (2048, 16), axes=None)
    arguments = on_mesh(arguments, mesh)
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
from jax.sharding import AbstractMesh, NamedSharding, PartitionSpec, Sharding

from flint.capturing.request import Arguments
from flint.errors import UsageError
from flint.frontends.jax.internals.tracing import stated_sharding
from flint.frontends.jax.lower.own_meshes import of_devices

#: Memory other than the device's own in which an argument may be.
_HOST = "pinned_host"


def is_array(leaf: Any) -> bool:
    """Whether a leaf is an argument of the program: an array, abstract or real, or a number."""
    if isinstance(leaf, bool | int | float | complex | np.generic):
        return True
    return hasattr(leaf, "shape") and hasattr(leaf, "dtype")


def mesh_of(
    arguments: Any, shape: tuple[int, ...], axes: tuple[str, ...] | None, axis_types: Any = None
) -> AbstractMesh:
    """The mesh to capture for.

    Names and types (auto, explicit) of the axes come from the arguments' shardings if they are not
    given.

    Args:
        arguments: a pytree.
        shape: devices per axis.
        axes: names of the axes, if given.
        axis_types: ``jax.sharding.AxisType`` per axis, if given.

    Raises:
        UsageError: shardings that name other axes, or other numbers of axes, than the mesh has.
    """
    found = list(dict.fromkeys(_meshes(arguments)))
    named = {mesh.axis_names for mesh in found}
    if len(named) > 1:
        listed = " and ".join(str(tuple(map(str, names))) for names in sorted(named))
        raise UsageError(f"the arguments' shardings are on meshes with different axes: {listed}")
    if axes is None and named:
        [axes] = named
        if len(axes) != len(shape):
            raise UsageError(
                f"mesh {shape} has {len(shape)} axes; the arguments' shardings name "
                f"{len(axes)}: {', '.join(axes)}"
            )
    if axes is None:
        axes = tuple(f"axis_{number}" for number in range(len(shape)))
    for names in named:
        if not set(names) <= set(axes):
            raise UsageError(
                f"the arguments' shardings are on a mesh with the axes {', '.join(names)}, but the "
                f"capture is on one with {', '.join(axes)}"
            )
    if axis_types is None:
        types = dict(zip(found[0].axis_names, found[0].axis_types, strict=True)) if found else {}
        axis_types = tuple(types.get(name, jax.sharding.AxisType.Auto) for name in axes)
    elif isinstance(axis_types, jax.sharding.AxisType):
        axis_types = (axis_types,) * len(shape)
    mesh = AbstractMesh(shape, axes, axis_types=axis_types)
    if jax.sharding.AxisType.Explicit in axis_types and any(
        own.axis_sizes == shape and own == of_devices(mesh) for own in found
    ):
        return of_devices(mesh)  # the mesh is part of types: the step may name its own
    return mesh


def on_mesh(
    arguments: Arguments, mesh: AbstractMesh, parameters: tuple[str, ...] = ()
) -> Arguments:
    """The arguments as ShapeDtypeStructs with their PartitionSpecs on ``mesh``.

    Args:
        arguments: positional and keyword arguments.
        mesh: where they go.
        parameters: names of the positional ones, for messages.

    Raises:
        UsageError: a dim that its mesh axes do not divide, an axis that is not in the mesh, a spec
            with more entries than the array has dims; the text names the argument.
    """

    def moved(path: Any, leaf: Any) -> Any:
        if not hasattr(leaf, "shape") or not hasattr(leaf, "dtype"):
            return leaf
        sharding = stated_sharding(leaf)
        spec = sharding if isinstance(sharding, PartitionSpec) else None
        if isinstance(sharding, NamedSharding):
            spec = sharding.spec
        attributes: dict[str, Any] = {"weak_type": bool(getattr(leaf, "weak_type", False))}
        if spec is not None:
            check_spec(spec, leaf.shape, mesh, f"argument {name_of(path, parameters)}")
            kind = _HOST if getattr(sharding, "memory_kind", None) == _HOST else None
            attributes["sharding"] = NamedSharding(mesh, spec, memory_kind=kind)
        else:
            _refuse_other(sharding, name_of(path, parameters))
        abstract: Any = jax.ShapeDtypeStruct
        return abstract(leaf.shape, leaf.dtype, **attributes)

    placed: Arguments = jax.tree_util.tree_map_with_path(moved, arguments)
    return placed


def check_spec(spec: PartitionSpec, shape: tuple[int, ...], mesh: AbstractMesh, what: str) -> None:
    """Check that a spec fits an array and a mesh.

    Raises:
        UsageError: it does not fit; the text begins with ``what``.
    """
    if len(spec) > len(shape):
        raise UsageError(f"{what} has the shape {shape}, but its {spec} has {len(spec)} entries")
    sizes = dict(zip(mesh.axis_names, mesh.axis_sizes, strict=True))
    for dim, entry in enumerate(spec):
        if entry is None or entry is PartitionSpec.UNCONSTRAINED:
            continue
        names = entry if isinstance(entry, tuple) else (entry,)
        parts = 1
        for name in names:
            if name not in sizes:
                raise UsageError(
                    f"{what} is sharded over the mesh axis {name!r}; the mesh has "
                    f"{', '.join(map(str, sizes))}: name its axes (--axes)"
                )
            parts *= sizes[name]
        if shape[dim] % parts:
            raise UsageError(
                f"{what} has the shape {shape}: the mesh axis {'+'.join(map(str, names))} of "
                f"{parts} devices does not divide its dim {dim} of size {shape[dim]}"
            )


def name_of(path: Any, parameters: tuple[str, ...] = ()) -> str:
    """A leaf's path in ``(args, kwargs)`` as the user would write it: ``state['layers'].w``.

    Args:
        path: keys as of ``jax.tree_util``.
        parameters: names of the step's positional parameters.
    """
    keyword, first, *inner = path
    rest = jax.tree_util.keystr(tuple(inner))
    if keyword.idx == 1:
        return f"{first.key}{rest}"
    known = first.idx < len(parameters)
    return (parameters[first.idx] if known else str(first.idx)) + rest


def _meshes(arguments: Any) -> Iterator[AbstractMesh]:
    for leaf in jax.tree_util.tree_leaves(arguments):
        sharding = stated_sharding(leaf) if is_array(leaf) else None
        if isinstance(sharding, NamedSharding):
            yield sharding.mesh.abstract_mesh


def _refuse_other(sharding: Any, name: str) -> None:
    """Shardings that cannot be moved to another mesh, unless they mean one device."""
    if isinstance(sharding, Sharding) and len(sharding.device_set) > 1:
        raise UsageError(
            f"argument {name} has a {type(sharding).__name__}: give a NamedSharding or a "
            "PartitionSpec, which have a meaning on another mesh"
        )
