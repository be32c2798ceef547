"""Mutable arrays (``jax.Ref``) in a step's host code, as the arrays that they hold at each moment.

The idea: a compiled program does not know references.  For a call that is given some, JAX compiles
a function that takes the arrays that they hold and returns those that they hold afterwards, in the
same buffers and with the same shardings.

    call = without_references(args, params)         # of the ``jit`` primitive
    results = call.hold(host.call(name, call.params, call.args, source))

Private: ``pxla._discharge_refs`` and ``core.Ref``, as of jax 0.10.2.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from jax._src import core
from jax._src.interpreters import pxla
from jax._src.named_sharding import UNSPECIFIED

from flint.errors import FlintError
from flint.frontends.jax.internals.traced_calls import is_stated

_core: Any = core  # untyped
_pxla: Any = pxla


@dataclass(frozen=True, slots=True)
class Call:
    """A call without references.

    Attributes:
        args: its operands.
        params: of the ``jit`` primitive.
        held: for each result the reference that holds it from then on, or None.
    """

    args: Sequence[Any]
    params: Mapping[str, Any]
    held: Sequence[Any] = ()

    def hold(self, results: Sequence[Any]) -> list[Any]:
        """Change what the references hold; returns the call's other results."""
        if not self.held:
            return list(results)
        found = []
        for reference, result in zip(self.held, results, strict=True):
            if reference is None:
                found.append(result)
            else:
                reference._refs._buf = result
        return found


def is_of_references(primitive: Any, args: Sequence[Any]) -> bool:
    """Whether an op makes, reads, changes or ends a reference: JAX does so by calls of jits."""
    return getattr(primitive, "ref_primitive", False) or any(map(_is_reference, args))


def without_references(args: Sequence[Any], params: Mapping[str, Any]) -> Call:
    """A call of the ``jit`` primitive, and what it does to references.

    Raises:
        FlintError: where an array that a reference holds lies is not known.
    """
    consts = params["jaxpr"].consts
    if not any(map(_is_reference, (*args, *consts))):
        return Call(args, params)
    jaxpr, _, mutation = _pxla._discharge_refs(params["jaxpr"])
    every = (*args, *mutation.in_mut)
    more = len(mutation.in_mut)
    in_shardings = (*params["in_shardings"], *(UNSPECIFIED,) * more)
    in_layouts = (*params["in_layouts"], *(None,) * more)
    donated = (*params["donated_invars"], *(False,) * more)
    changed = [number for number in mutation.out_mut if number is not None]
    held = [None if number is None else every[number] for number in mutation.out_mut]
    changes: dict[str, Any] = {
        "jaxpr": jaxpr,
        "in_shardings": in_shardings,
        "in_layouts": in_layouts,
        "donated_invars": tuple(
            own or _is_reference(item) for own, item in zip(donated, every, strict=True)
        ),
        "out_shardings": (
            *params["out_shardings"],
            *(_place(in_shardings[number], every[number]) for number in changed),
        ),
        "out_layouts": (*params["out_layouts"], *(in_layouts[number] for number in changed)),
    }
    arrays = [item._refs._buf if _is_reference(item) else item for item in every]
    return Call(arrays, {**params, **changes}, held)


def _is_reference(value: Any) -> bool:
    return type(value) is _core.Ref


def _place(stated: Any, reference: Any) -> Any:
    """The sharding that a reference's array keeps; on one device nothing needs to be stated."""
    if is_stated(stated):
        return stated
    try:
        found = reference.sharding
    except AttributeError as error:
        raise FlintError(
            "a jax.Ref that the step itself makes of an argument or a result is not captured: "
            "flint run captures programs with them"
        ) from error
    return found if len(found.device_set) > 1 else UNSPECIFIED
