"""A traced program, computed for its values on this machine, without the mesh it was traced for.

The idea: what is computed here has small values, so that its placement does not matter.  Ops with
explicit axes name a mesh in their context, in their types and in parameters, none of which a
computation on one device can have: ops are evaluated one by one, without these.  The parts of a
``shard_map`` are computed at once, by ``vmap`` over its axes: JAX itself would compile each of its
ops anew in every call, and the mesh may have more devices than there are.

    evaluated(closed.jaxpr, closed.consts, [3])             # [Array(4)]
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import jax
from jax._src import core, pjit

#: Ops that only place arrays, and parameters that say where results lie.
_PLACING = frozenset(("reshard", "sharding_constraint", "mesh_cast"))
_PLACES = frozenset(("sharding", "out_sharding"))


def evaluated(program: Any, constants: Sequence[Any], operands: Sequence[Any]) -> list[Any]:
    """The results of a jaxpr.

    Args:
        program: the jaxpr.
        constants: its constants.
        operands: its operands.
    """
    known = dict(zip((*program.constvars, *program.invars), (*constants, *operands), strict=True))

    def value(item: Any) -> Any:
        return item.val if isinstance(item, core.Literal) else known[item]

    for one in program.eqns:
        found = _results(one, [value(item) for item in one.invars])
        known |= zip(one.outvars, found, strict=True)
    return [value(item) for item in program.outvars]


def _results(one: Any, given: Sequence[Any]) -> Sequence[Any]:
    """The results of an op or of a jitted function."""
    if one.primitive.name in _PLACING:
        return given
    if one.primitive is pjit.jit_p and _has_mesh(one):
        inner = one.params["jaxpr"]
        return evaluated(inner.jaxpr, inner.consts, given)
    if one.primitive.name == "shard_map":
        return _of_parts(one.params, given)
    if one.primitive.name == "pvary":
        return [_on_each(item, one.params["axes"]) for item in given]
    if one.primitive.name == "psum_invariant":  # jax 0.8 cannot map it
        summed: Any = jax.lax.psum
        return [summed(item, one.params["axes"]) for item in given]
    bound = one.primitive.get_bind_params(one.params)
    functions, parameters = bound if isinstance(bound, tuple) else ((), bound)  # of older versions
    free = {name: None if name in _PLACES else item for name, item in parameters.items()}
    found: Any = one.primitive.bind(*functions, *given, **free)
    return found if one.primitive.multiple_results else [found]


def _has_mesh(one: Any) -> bool:
    """Whether a jitted function was traced for a mesh."""
    places = (getattr(item.aval, "sharding", None) for item in one.outvars)
    return not one.params["ctx_mesh"].empty or any(
        place is not None and not place.mesh.empty for place in places
    )


def _of_parts(parameters: Any, given: Sequence[Any]) -> list[Any]:
    """The results of a ``shard_map``."""
    mesh, into = parameters["mesh"], parameters["in_specs"]
    mapped = parameters.get("newly_manual_axes") or parameters["manual_axes"]  # before jax 0.10
    axes = {axis: size for axis, size in mesh.shape.items() if axis in mapped}

    def body(*parts: Any) -> list[Any]:
        return evaluated(parameters["jaxpr"], (), parts)

    over: Any = body
    for axis in reversed(axes):
        cut = [0 if any(axis in names for names in _names(spec)) else None for spec in into]
        over = jax.vmap(over, cut, axis_name=axis, axis_size=axes[axis])
    parts = over(*(_cut(*item, axes) for item in zip(given, into, strict=True)))
    return [_joined(*item, axes) for item in zip(parts, parameters["out_specs"], strict=True)]


def _on_each(array: Any, axes: Sequence[str]) -> Any:
    """A copy of an array on each device along some axes, over which it can be reduced."""
    for axis in axes:
        array = jax.lax.select(jax.lax.axis_index(axis) < 0, array, array)
    return array


def _names(spec: Any) -> list[tuple[str, ...]]:
    """The mesh axes of each dim that a ``PartitionSpec`` has an entry for."""
    some = [() if names is None else names for names in spec]
    return [(names,) if isinstance(names, str) else tuple(names) for names in some]


def _cut(array: Any, spec: Any, axes: dict[str, int]) -> Any:
    """Parts of an operand: dims of the mesh axes that cut it, in the mesh's order, come first."""
    names = [*_names(spec), *[()] * array.ndim][: array.ndim]
    dims: list[tuple[str | None, int]] = []
    for size, cut in zip(array.shape, names, strict=True):
        dims += [(axis, axes[axis]) for axis in cut]
        dims.append((None, size // prod(axes[axis] for axis in cut)))
    where = {axis: place for place, (axis, _) in enumerate(dims)}
    own = [place for place, (axis, _) in enumerate(dims) if axis is None]
    order = [where[axis] for axis in axes if axis in where] + own
    return array.reshape([size for _, size in dims]).transpose(order)


def _joined(parts: Any, spec: Any, axes: dict[str, int]) -> Any:
    """A whole result; parts are alike along axes that the spec does not name."""
    names = [*_names(spec), *[()] * parts.ndim][: parts.ndim - len(axes)]
    kept = [axis for axis in axes if any(axis in cut for cut in names)]
    parts = parts[tuple(slice(None) if axis in kept else 0 for axis in axes)]
    order: list[int] = []
    for dim, cut in enumerate(names, len(kept)):
        order += [*(kept.index(axis) for axis in cut), dim]
    sizes = parts.shape[len(kept) :]
    whole = [
        size * prod(axes[axis] for axis in cut) for size, cut in zip(sizes, names, strict=True)
    ]
    return parts.transpose(order).reshape(whole)
