"""Ops outside of every jit as programs: each is one, as in a run.

results = called_op(host, primitive, args, params, known=None)
parameters = loop_program(primitive, args, params)      # of the ``jit`` primitive, for a loop
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
from jax._src import dispatch, source_info_util

from flint.frontends.jax.internals.avals import aval_of
from flint.frontends.jax.internals.host import Host
from flint.frontends.jax.internals.tracing import not_folding

# The line of an op is the user's, not one of these.
source_info_util.register_exclusion(os.path.dirname(__file__) + os.sep)

#: Ops that are programs of a user's: what is inside is not JAX's.
_LOOPS = ("scan", "while")


def is_loop(primitive: Any) -> bool:
    """Whether an op runs a function of the user's again and again."""
    return primitive.name in _LOOPS


def loop_program(primitive: Any, args: Sequence[Any], params: Mapping[str, Any]) -> Any:
    """A loop as a jitted function is called: the parameters of the ``jit`` primitive."""
    return _traced(_bound(primitive, params), args, primitive.name)


def called_op(
    host: Host,
    primitive: Any,
    args: Sequence[Any],
    params: Mapping[str, Any],
    known: Sequence[Any] | None,
) -> list[Any]:
    """The results of an op that is recorded."""
    return _called_function(host, _bound(primitive, params), args, primitive.name, known)


def _bound(primitive: Any, params: Mapping[str, Any]) -> Callable[..., Any]:
    def op(*operands: Any) -> Any:
        return primitive.bind(*operands, **params)

    return op


def _called_function(
    host: Host,
    function: Callable[..., Any],
    args: Sequence[Any],
    name: str,
    known: Sequence[Any] | None,
    **settings: Any,
) -> list[Any]:
    parameters = _traced(function, args, name, **settings)
    return host.call(name, parameters, args, "", known=known)


def _traced(
    function: Callable[..., Any], args: Sequence[Any], name: str, **settings: Any
) -> dict[str, Any]:
    """The parameters of the ``jit`` primitive around some ops, whose line is the one that runs."""
    function.__name__ = name
    with not_folding():
        traced: Any = jax.jit(function, **settings).trace(*map(_abstract, args))
    program, here = traced._params["jaxpr"], source_info_util.current().traceback
    ops = [
        op.replace(source_info=op.source_info.replace(traceback=here)) for op in program.jaxpr.eqns
    ]
    return {**traced._params, "jaxpr": program.replace(jaxpr=program.jaxpr.replace(eqns=ops))}


def _abstract(value: Any) -> Any:
    aval = aval_of(value)
    abstract: Any = jax.ShapeDtypeStruct
    place = getattr(aval, "sharding", None)
    typed = place is not None and not place.mesh.empty and place.mesh._any_axis_explicit
    return abstract(
        aval.shape, aval.dtype, weak_type=aval.weak_type, sharding=place if typed else None
    )


def moved(
    host: Host, args: Sequence[Any], params: Mapping[str, Any], placed: Sequence[Any]
) -> list[Any]:
    """Arrays put on given devices; each that is moved is a separate program.

    Args:
        host: the recorder.
        args, params: of JAX's ``device_put``.
        placed: for each array, what the recorder has put there, else None.
    """
    results = []
    how = zip(args, params["devices"], params["copy_semantics"], placed, strict=True)
    for item, device, copy, own in how:
        if own is not None:
            results.append(own)
            continue
        if isinstance(device, jax.Device) and not _is_on(item, device):
            device = jax.sharding.SingleDeviceSharding(device)
        if isinstance(device, jax.sharding.Sharding):
            donated = 0 if copy == dispatch.ArrayCopySemantics.DONATE_INPUT else None
            settings = {"out_shardings": device, "donate_argnums": donated}
            same = lambda operand: operand  # noqa: E731  # it is given a name
            results += _called_function(host, same, [item], "device_put", None, **settings)
        else:  # None for its current place, or a device, of an array that is on a single one
            results.append(item)
    return results


def _is_on(item: Any, device: jax.Device) -> bool:
    """Whether an array is on one device only; one whose place is not known is on the first."""
    place = getattr(item, "sharding", None)
    return {device} == ({jax.devices()[0]} if place is None else place.device_set)
