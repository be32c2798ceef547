"""Calls of jitted functions as JAX traces and lowers them: calls, donations, kept operands.

The idea: a recorded call has the parameters of JAX's ``jit`` primitive, from which JAX's own stages
are rebuilt when the program is lowered.

    traced_call(parameters, avals, shardings).lower(lowering_platforms=("cpu",))
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax
from jax._src import core, linear_util, pjit, pmap
from jax._src.named_sharding import UnspecifiedValue
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from flint.frontends.jax.internals.avals import size_of
from flint.frontends.jax.internals.jaxprs import structure
from flint.frontends.jax.internals.platform_forms import equations

#: What the function is called that ``jax.pmap`` jits, which calls the user's.
_JITTED_BY_PMAP = "_fun"


def traced_call(
    parameters: Mapping[str, Any], avals: Sequence[Any], shardings: Sequence[Any]
) -> Any:
    """A call as ``jax.jit(...).trace(...)`` gives it, to be lowered.

    Args:
        parameters: of the ``jit`` primitive.
        avals: types of the operands.
        shardings: of the operands; None if an operand may be moved.
    """
    metas = [
        pjit.create_meta_ty(aval, sharding, None, sharding is not None, False)
        for aval, sharding in zip(avals, shardings, strict=True)
    ]
    given = jax.tree.structure(((0,) * len(metas), {}))
    made = jax.tree.structure((0,) * len(parameters["jaxpr"].out_avals))
    stages: Any = jax.stages
    source = (source_of(parameters),) if jax.__version_info__ >= (0, 11) else ()
    named = {"name": _name_in_run(parameters)}
    return stages.Traced(metas, {**parameters, **named}, given, made, [], *source)


def jitted_sources(traced: Any) -> list[str]:
    """The top-level calls of a traced function: "function at file:line" of each jitted one."""
    called = _plain(traced).jaxpr.jaxpr.eqns
    return [source_of(one.params) for one in called if one.primitive is pjit.jit_p]


def named_as_mapped(function: Any) -> Any:
    """The function that ``jax.pmap`` jits, with the name of the user's function that it calls."""
    for cell in getattr(function, "__closure__", None) or ():
        if isinstance(cell.cell_contents, linear_util.WrappedFun):
            function.__name__ = cell.cell_contents.debug_info.func_name
    return function


def _name_in_run(parameters: Mapping[str, Any]) -> str:
    """What the module of a call is named after in a run: of a pmap, the function that JAX jits."""
    is_mapped = f" at {pmap.__file__}:" in source_of(parameters)
    return _JITTED_BY_PMAP if is_mapped else str(parameters["name"])


def told_apart(parameters: Mapping[str, Any]) -> tuple[Any, ...]:
    """What tells calls of one jitted function apart: where it says that arguments and results lie,
    and its ops, which follow from static arguments and closures; nothing for other ops."""
    # Since jax 0.11 a program is a Jaxpr, with itself as its ``jaxpr``.
    program = getattr(parameters.get("jaxpr"), "jaxpr", None)
    return (
        parameters.get("in_shardings"),
        parameters.get("out_shardings"),
        isinstance(program, core.Jaxpr) and structure(program),
    )


def source_of(parameters: Mapping[str, Any]) -> str:
    """Of the ``jit`` primitive: "function at file:line" of what was jitted."""
    return str(parameters["jaxpr"].jaxpr.debug_info.func_src_info or "?")


def options_of(traced: Any) -> dict[str, Any]:
    """The compiler options that a traced function's jit was given."""
    return dict(_plain(traced)._params["compiler_options_kvs"])


def donated_inside(traced: Any) -> list[int]:
    """Bytes of the whole arrays that jits inside of a traced function would donate."""
    return [
        size_of(value.aval)
        for one in equations(_plain(traced).jaxpr.jaxpr)
        if one.primitive is pjit.jit_p
        for value, donated in zip(one.invars, one.params["donated_invars"], strict=True)
        if donated
    ]


def place_typed_results(traced: Any) -> None:
    """State where results lie whose types say so: JAX does it for real devices only."""
    own = _plain(traced)
    stated, results = own._params["out_shardings"], own._params["jaxpr"].out_avals
    places = [
        place if is_stated(place) else _of_type(aval) or place
        for place, aval in zip(stated, results, strict=True)
    ]
    own._params = {**own._params, "out_shardings": tuple(places)}


def _of_type(aval: Any) -> NamedSharding | None:
    """The sharding of a type with explicit axes; other axes may have parts of its free dims."""
    sharding = getattr(aval, "sharding", None)
    mesh = getattr(sharding, "mesh", None)
    if sharding is None or mesh is None or AxisType.Explicit not in mesh.axis_types:
        return None
    spec, free = sharding.spec, PartitionSpec.UNCONSTRAINED
    if AxisType.Auto in mesh.axis_types:
        made: Any = PartitionSpec
        spec = made(*(free if entry is None else entry for entry in spec))
    return NamedSharding(mesh, spec)


def _plain(traced: Any) -> Any:
    """JAX's own object inside a library's wrapper (flax)."""
    while not isinstance(traced, jax.stages.Traced) and hasattr(traced, "traced"):
        traced = traced.traced
    return traced


def kept_operands(lowered: Any) -> tuple[int, tuple[int, ...]]:
    """The number of constants that a lowered program takes first, and the operands that follow."""
    arguments = lowered._lowering.compile_args
    constants = len(lowered._lowering.const_args)
    kept = sorted(arguments["kept_var_idx"])
    return constants, tuple(number - constants for number in kept if number >= constants)


def is_stated(sharding: Any) -> bool:
    """Whether a ``jit`` was given a sharding for an operand or a result."""
    return not isinstance(sharding, UnspecifiedValue)
