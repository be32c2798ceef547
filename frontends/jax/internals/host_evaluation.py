"""A replacement of JAX's evaluation of a step's host code: calls are recorded and not run.

The idea: an op or a jitted function that is called with an array without a value
(``host_arrays.py``) is passed to the recorder, with the parameters with which JAX would have
compiled it; calls without such arrays are computed for real.  A ``shard_map`` outside of every jit
runs its body op by op, each a program over the mesh, also here; programs that are lowered and
compiled ahead of their calls are recorded when they are called (``compiled_ahead.py``).

    with recorded(host):
        function(HostArray(host, origin, aval, sharding), ...)
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from types import SimpleNamespace
from typing import Any

import jax
from jax._src import (
    checkify,
    core,
    debugging,
    dispatch,
    pjit,
    pmap,
    shard_map,
    sharding_impls,
    stages,
)
from jax._src.mesh import empty_abstract_mesh, get_concrete_mesh

from flint.frontends.jax.internals.avals import aval_of, is_inexact, is_signed, size_of
from flint.frontends.jax.internals.compiled_ahead import (
    lowered_again,
    lowered_ahead,
    meta_of_host_array,
)
from flint.frontends.jax.internals.formats import placement
from flint.frontends.jax.internals.host import Host
from flint.frontends.jax.internals.host_arrays import HostArray, has_host_array, living
from flint.frontends.jax.internals.jaxprs import MOST_OPERATIONS, operations
from flint.frontends.jax.internals.op_calls import called_op, is_loop, loop_program, moved
from flint.frontends.jax.internals.references import is_of_references, without_references
from flint.frontends.jax.internals.traced_calls import is_stated, named_as_mapped, source_of
from flint.frontends.jax.internals.tracing import is_folding, mesh_context

#: Ops that run on the host: a check reads values, and a debugging aid shardings.
_OF_HOST = frozenset((checkify.check_p, debugging.inspect_sharding_p))
#: Results of more bytes than this are not computed, even if all operands have values.
_MOST_BYTES = 1 << 20
#: The program that cuts an operand of a ``shard_map`` into parts, or joins parts to a result.
_CUTS = "shard_map"


@contextmanager
def recorded(host: Host) -> Iterator[None]:
    """Pass calls with a ``HostArray`` to ``host``."""
    replacements = _replacements(host)
    originals = [(owner, name, getattr(owner, name)) for owner, name, _ in replacements]
    for owner, name, replacement in replacements:
        setattr(owner, name, replacement)
    try:
        yield
    finally:
        for owner, name, original in originals:
            setattr(owner, name, original)


def _replacements(host: Host) -> list[tuple[Any, str, Any]]:
    """The replacements in JAX: a module or class, a name in it, and the new value."""
    evaluation: Any = core.EvalTrace
    modules: dict[str, Any] = {
        "dispatch": dispatch, "pjit": pjit, "shard_map": shard_map,
        "pmap": pmap, "sharding_impls": sharding_impls, "stages": stages,
    }  # fmt: skip
    evaluate, call = evaluation.process_primitive, modules["pjit"]._pjit_call_impl_python
    put = modules["dispatch"]._batched_device_put_impl
    mapped_op = shard_map.ShardMapTrace.process_primitive
    meta_of, lower = modules["pjit"].convert_to_metaty, stages.Traced.lower
    cuts = [(name, getattr(shard_map, name)) for name in ("_unmatch_spec", "_match_spec")]
    live: Any = jax.live_arrays
    use_devices = sharding_impls._internal_use_concrete_mesh
    mapped: list[tuple[str, str]] = []  # name and source of the function that a shard_map runs now

    def process(self: Any, primitive: Any, args: Any, params: Any, /) -> Any:
        if _apart.on or primitive in _OF_HOST:
            return evaluate(self, primitive, args, params)
        if primitive is not pjit.jit_p and is_of_references(primitive, args):
            return evaluate(self, primitive, args, params)
        if primitive is pjit.jit_p:
            return process_jit(args, params)
        if primitive is dispatch.device_put_p:
            return device_put(*args, **params)
        if is_loop(primitive):
            return process_jit(args, loop_program(primitive, args, params))
        given, known = _valued(host, args), None
        if not has_host_array(given) and not _is_large(primitive, given, params):
            found = _evaluated(lambda: evaluate(self, primitive, given, params))
            if found is not None and not _is_followed(args):
                return computed(found[0], primitive.multiple_results)
            if found is not None:
                known = found[0] if primitive.multiple_results else [found[0]]
        results = called_op(host, primitive, args, params, known)
        return results if primitive.multiple_results else results[0]

    def computed(found: Any, several: bool) -> Any:
        if is_folding() or not core.trace_state_clean():  # once, while something is traced
            return found
        host.computed()
        mesh = get_concrete_mesh()
        if mesh.size <= 1:
            return found
        placed = [_on_all(host, mesh, item) for item in (found if several else [found])]
        return placed if several else placed[0]

    def process_jit(args: Any, params: Any) -> Any:
        if _apart.on:
            return call(*args, **params)[0]
        one = without_references(args, params)
        return one.hold(called(one.args, one.params))

    def called(args: Any, params: Any) -> Any:
        given = _valued(host, args)
        program = params["jaxpr"]
        large = sum(map(size_of, program.out_avals)) > _MOST_BYTES or host.spans(program)
        unknown = has_host_array(given) or _is_placed(params)
        if not (unknown or large or operations(program.jaxpr) > MOST_OPERATIONS):
            alone = {**params, "ctx_mesh": empty_abstract_mesh}
            found = _evaluated(lambda: call(*given, **alone)[0])
            if found is not None:
                if host.keeps(source_of(params)) or _is_followed(args):
                    name = str(params["name"])
                    return host.call(name, params, args, source_of(params), known=found[0])
                return computed(found[0], True)
        name, source = mapped[-1] if mapped else (str(params["name"]), source_of(params))
        return host.call(name, params, args, source)

    def pjit_call(*args: Any, **params: Any) -> Any:
        return process_jit(args, params), None, None, []

    def device_put(*args: Any, **params: Any) -> Any:
        if _apart.on:
            return put(*args, **{"dst_avals": [None] * len(args), **params})
        params = {**params, "devices": [*map(placement, params["devices"])]}
        placed = [host.put(*item) for item in zip(args, params["devices"], strict=True)]
        if all(item is not None for item in placed):
            return placed
        if has_host_array(args) or any(map(_is_abstract, params["devices"])):
            return moved(host, args, params, placed)
        with mesh_context(None):
            return put(*args, **{"dst_avals": [None] * len(args), **params})

    def process_mapped(self: Any, primitive: Any, tracers: Any, params: Any, /) -> Any:
        jitted = primitive is pjit.jit_p
        name = (params["name"], source_of(params)) if jitted else (primitive.name, "")
        return within(name, mapped_op)(self, primitive, tracers, params)

    def within(name: tuple[str, str], function: Callable[..., Any]) -> Callable[..., Any]:
        def named(*args: Any, **known: Any) -> Any:
            mapped.append(name)
            try:
                return function(*args, **known)
            finally:
                mapped.pop()

        return named

    def meta(arg: Any) -> Any:
        return meta_of_host_array(arg) if isinstance(arg, HostArray) else meta_of(arg)

    def in_context(mesh: Any) -> AbstractContextManager[Any]:
        abstract = isinstance(mesh, jax.sharding.AbstractMesh)  # one that is in context already
        return contextlib.nullcontext() if abstract else use_devices(mesh)

    def lowered(traced: Any, **options: Any) -> Any:
        if _apart.on or "_private_parameters" in options:  # jax.export takes the text alone
            return lower(traced, **options)
        host.lowers()
        return lowered_ahead(traced, options, lower, host)

    def mapped_by_name(function: Any, **known: Any) -> Any:
        return modules["shard_map"].shard_map(named_as_mapped(function), **known)

    of_pmap = SimpleNamespace(make_args_info=stages.make_args_info, Lowered=lowered_again)

    def live_arrays(platform: str | None = None) -> list[Any]:
        return [*living(), *live(platform)]

    return [
        (evaluation, "process_primitive", process),
        (jax, "live_arrays", live_arrays),
        (modules["dispatch"], "_batched_device_put_impl", device_put),
        (modules["pjit"], "_pjit_call_impl_python", pjit_call),
        (modules["pjit"], "convert_to_metaty", meta),
        (modules["stages"].Traced, "lower", lowered),
        (modules["pmap"], "stages", of_pmap),
        *((owner, "shard_map", mapped_by_name) for owner in [pmap] if hasattr(owner, "shard_map")),
        (modules["shard_map"], "get_mesh_from_args", lambda args, mesh: mesh),
        *((modules["shard_map"], name, within((_CUTS, ""), function)) for name, function in cuts),
        (modules["shard_map"].ShardMapTrace, "process_primitive", process_mapped),
        (modules["sharding_impls"], "_internal_use_concrete_mesh", in_context),
    ]


class _Apart(threading.local):
    """Whether the current computation of a thread is ignored, or is part of one with values."""

    on = False
    inside = False


_apart = _Apart()


@contextmanager
def computing() -> Iterator[None]:
    """Within it, compute for real without notifying a host."""
    before, _apart.on = _apart.on, True
    try:
        with mesh_context(None):
            yield
    finally:
        _apart.on = before


def _on_all(host: Host, mesh: Any, value: Any) -> Any:
    """A computed array: with a mesh of devices in context, a run computes it on all of them.

    Keys and counters stay values of the host.  With explicit axes the mesh is part of a type.
    """
    known: Any = jax.sharding  # untyped
    place, aval = known.NamedSharding(mesh, known.PartitionSpec()), aval_of(value)
    typed = mesh.are_all_axes_explicit and aval.shape and is_signed(aval)
    found = host.put(value, place) if typed or is_inexact(aval) else None
    return value if found is None else found


def _valued(host: Host, args: Sequence[Any]) -> Sequence[Any]:
    """The real arrays, if all of the arrays without a value represent one."""
    found = [host.value(item) if isinstance(item, HostArray) else item for item in args]
    return args if any(item is None for item in found) else found


def _is_followed(args: Sequence[Any]) -> bool:
    """Whether a computation with values is recorded all the same.

    Small parameters that ops update outside of every jit, and small batches on several devices, are
    part of the step.  Keys, and single integers that count steps, are not.
    """
    return any(
        isinstance(item, HostArray)
        and (is_inexact(item.aval) or (_is_on_devices(item) and item.ndim > 0))
        for item in args
    )


def _is_on_devices(array: HostArray) -> bool:
    """Whether the host has put an array on several devices, or its type has their mesh."""
    return array.origin.program < 0 or not array.aval.sharding.mesh.empty


def _evaluated(compute: Callable[[], Any]) -> tuple[Any] | None:
    """A call with values, computed without a mesh; None if that is not possible (it needs one).

    Calls that JAX makes to compute an op are a part of it: if one is not possible, the op is not.
    """
    inside, _apart.inside = _apart.inside, True
    try:
        with mesh_context(None):
            return (compute(),)
    except Exception:  # it is recorded, and a user's mistake fails again then
        if inside:
            raise
        return None
    finally:
        _apart.inside = inside


def _is_large(primitive: Any, args: Sequence[Any], params: Mapping[str, Any]) -> bool:
    try:
        avals, _ = primitive.abstract_eval(*map(aval_of, args), **params)
    except Exception:  # its evaluation reports its errors
        return False
    made = avals if primitive.multiple_results else [avals]
    return sum(map(size_of, made)) > _MOST_BYTES


def _is_placed(params: Mapping[str, Any]) -> bool:
    return any(map(is_stated, (*params["in_shardings"], *params["out_shardings"])))


def _is_abstract(device: Any) -> bool:
    mesh = getattr(device, "mesh", None)
    return isinstance(mesh, jax.sharding.AbstractMesh) and not mesh.empty
