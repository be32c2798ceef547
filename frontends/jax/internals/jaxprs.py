"""Parts of traced programs: the part for one result, and whether a program is over several
devices.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any
from weakref import WeakKeyDictionary

import jax
import numpy as np
from jax._src import core
from jax._src.interpreters import partial_eval
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from flint.frontends.jax.internals.avals import inexact_bytes
from flint.frontends.jax.internals.platform_forms import equations
from flint.frontends.jax.internals.tracing import is_on_host
from flint.frontends.jax.kernels.loops import of_scan

#: The most operations of a program that is run for real for its values: a second's.
MOST_OPERATIONS = 1 << 27
_ROUNDS, _OP = 1000, 100
#: Jaxpr -> its structure; jit keeps one for each of its calls that are alike.
_STRUCTURES: WeakKeyDictionary[Any, int] = WeakKeyDictionary()


def needed_for(program: Any, number: int) -> tuple[Any, list[int]]:
    """The part of a closed jaxpr that makes one of its results, and the operands that it takes."""
    wanted = [place == number for place in range(len(program.out_avals))]
    part, used = partial_eval.dce_jaxpr(program.jaxpr, wanted)
    return part, [place for place, needed in enumerate(used) if needed]


def used(parameters: Mapping[str, Any]) -> list[bool]:
    """For each operand of the ``jit`` primitive: whether JAX passes it to the compiled program."""
    program = parameters["jaxpr"]
    if parameters["keep_unused"]:
        return [True] * len(program.in_avals)
    _, found = partial_eval.dce_jaxpr(program.jaxpr, [True] * len(program.out_avals))
    return list(found)


def operations(part: Any) -> int:
    """About how many operations a jaxpr computes, where a loop of unknown length has 1,000 rounds.

    Each op counts as 100 and the elements of its results.
    """
    total = 0
    for equation in part.eqns:
        inner = sum(map(operations, core.jaxprs_in_params(equation.params)))
        rounds = {"scan": equation.params.get("length", 1), "while": _ROUNDS}
        made = sum(math.prod(getattr(item.aval, "shape", ())) for item in equation.outvars)
        total += inner * rounds.get(equation.primitive.name, 1) + _OP + made
    return total


def structure(part: Any) -> int:
    """A hash of a jaxpr's ops and of the types of what they give, not of numbers in it."""
    found = _STRUCTURES.get(part)
    if found is None:
        found = _STRUCTURES[part] = hash(tuple(map(_op_of, part.eqns)))
    return found


def _op_of(equation: Any) -> tuple[Any, ...]:
    types = tuple(
        (getattr(item.aval, "shape", ()), str(getattr(item.aval, "dtype", "")))
        for item in equation.outvars
    )
    inner = tuple(map(structure, core.jaxprs_in_params(equation.params)))
    return equation.primitive.name, types, inner


def loop_carries(program: Any) -> int:
    """Bytes of the inexact values that the largest of a jaxpr's outermost loops carries; else 0."""
    most = 0
    for equation in program.eqns:
        known = equation.params
        if equation.primitive.name == "scan":
            first, count = of_scan(known)
            carried = known["jaxpr"].in_avals[first : first + count]
        elif equation.primitive.name == "while":
            carried = known["body_jaxpr"].in_avals[known["body_nconsts"] :]
        else:
            carried = []
            most = max([most, *map(loop_carries, core.jaxprs_in_params(known))])
        most = max(most, inexact_bytes(carried))
    return most


def is_backward(path: str) -> bool:
    """Whether the scopes and transformations around an op, as JAX writes them, are a gradient's."""
    return "transpose(" in path


def has_gradients(program: Any) -> bool:
    """Whether a closed jaxpr computes gradients in reverse mode."""
    stacks = {id(one.source_info.name_stack): one for one in equations(program.jaxpr)}
    return any(is_backward(str(one.source_info.name_stack)) for one in stacks.values())


def has_training_loop(program: Any) -> bool:
    """Whether one of a jaxpr's outermost loops computes gradients in each of its rounds.

    The backward half of a loop over layers is a gradient itself.
    """
    for equation in program.eqns:
        if equation.primitive.name not in ("scan", "while"):
            if any(map(has_training_loop, core.jaxprs_in_params(equation.params))):
                return True
        elif not is_backward(str(equation.source_info.name_stack)):
            body = equation.params.get("body_jaxpr") or equation.params["jaxpr"]
            if has_gradients(body):
                return True
    return False


def forwarded(program: Any) -> list[tuple[int, int]]:
    """Results of a closed jaxpr that are unchanged operands: numbers of both."""
    places = {id(variable): number for number, variable in enumerate(program.jaxpr.invars)}
    results = enumerate(map(id, program.jaxpr.outvars))
    return [(number, places[variable]) for number, variable in results if variable in places]


def constrained(program: Any, mesh: Mesh) -> list[NamedSharding] | None:
    """The placement of a closed jaxpr's results if all of them are constrained last, or scalars.

    Args:
        program: the closed jaxpr.
        mesh: that it runs on.

    Returns:
        None if the compiler chooses one of them.
    """
    sharding: Any = jax.sharding
    found: list[NamedSharding] = []
    for number, aval in enumerate(program.out_avals):
        spec = _last_constraint(program.jaxpr, number, mesh)
        if spec is None and aval.shape == () and isinstance(aval.dtype, np.dtype):  # not a key
            spec = sharding.PartitionSpec()
        if spec is None:
            return None
        found.append(NamedSharding(mesh, spec))
    return found


def _last_constraint(jaxpr: Any, number: int, mesh: Mesh) -> PartitionSpec | None:
    """The constraint of a result by the equation that makes it; None if there is none."""
    wanted = jaxpr.outvars[number]
    for one in jaxpr.eqns:
        if not any(result is wanted for result in one.outvars):
            continue
        if one.primitive.name in ("jit", "pjit"):
            place = next(n for n, result in enumerate(one.outvars) if result is wanted)
            return _last_constraint(one.params["jaxpr"].jaxpr, place, mesh)
        if one.primitive.name != "sharding_constraint" or one.params["unconstrained_dims"]:
            return None
        given = one.params["sharding"]
        known = isinstance(given, NamedSharding) and given.memory_kind in (None, "device")
        return given.spec if known and given.mesh in (mesh, mesh.abstract_mesh) else None
    return None


def meshes(program: Any) -> list[Any]:
    """Meshes of devices that ops inside of a closed jaxpr name, in order."""
    found: dict[Any, None] = {}
    for equation in equations(program.jaxpr):
        for value in equation.params.values():
            for item in value if isinstance(value, tuple | list) else (value,):
                mesh = item.mesh if isinstance(item, NamedSharding) else item
                if isinstance(mesh, Mesh) and not mesh.empty:
                    found[mesh] = None
    return list(found)


def is_over_devices(sharding: Any) -> bool:
    """Whether a sharding is over several devices, real or abstract."""
    if not isinstance(sharding, jax.sharding.Sharding):
        return False
    return bool(sharding.num_devices > 1)


def is_placed(sharding: Any) -> bool:
    """Whether a sharding that a program states says on which of several devices an array is."""
    if not isinstance(sharding, jax.sharding.Sharding) or is_on_host(sharding):
        return False
    return bool(sharding.num_devices > 1 or jax.device_count() > 1)


def is_elsewhere(sharding: Any) -> bool:
    """Whether a sharding is not that of an array that no one has placed: on the first device."""
    return is_over_devices(sharding) or (
        is_placed(sharding) and sharding.device_set != {jax.devices()[0]}
    )
