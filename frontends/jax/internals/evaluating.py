"""A traced program, computed for its values on this machine, without the mesh it was traced for.

The idea: what is computed here has small values, so that its placement does not matter.  Ops with
explicit axes name a mesh in their context, in their types and in parameters, none of which a
computation on one device can have: ops are evaluated one by one, without these.

    evaluated(closed.jaxpr, closed.consts, [3])             # [Array(4)]
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

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
