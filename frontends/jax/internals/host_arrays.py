"""Arrays that a step's host code holds, and the programs that it calls with them.

The idea: outside of ``jax.jit`` JAX runs every op at once, as a program of its own.  Here an array
has a type and no value; an op or a jitted function that is called with one is handed to whoever
records, with the parameters that JAX would have compiled it with, and gives arrays of the same
kind.  What needs none of them is computed for real.  It is JAX's evaluation that is replaced, so
``jax.grad``, ``functools.partial``, methods, wrappers and Python's control flow work as ever.

    with recorded(host):
        function(HostArray(host, origin, aval, sharding), ...)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

import jax
import numpy as np
from jax._src import core, dispatch, pjit, source_info_util
from jax._src.mesh import empty_abstract_mesh
from jax._src.named_sharding import UnspecifiedValue

from flint.frontends.jax.internals.platform_forms import equations
from flint.frontends.jax.internals.tracing import mesh_context

#: Results of more bytes than this are not computed, even where all operands have values.
_MOST_BYTES = 1 << 20

_impl: Any = pjit  # modules in which functions are replaced
_dispatch: Any = dispatch
_core: Any = core


class Host(Protocol):
    """Who records what host code does with arrays."""

    def call(
        self, name: str, parameters: Mapping[str, Any], operands: Sequence[Any], source: str
    ) -> list[Any]:
        """A program is called; its results.

        Args:
            name: of the function or op.
            parameters: of the ``jit`` primitive.
            operands: arrays of this kind and others.
            source: "function at file:line" of a jitted function, "" for an op.
        """

    def read(self, array: Any, kind: str) -> Any:
        """A value of an array is read; what it is taken to be.

        Args:
            array: whose.
            kind: "bool", "int", "float", "complex", "array", "text" or "wait".
        """

    def computed(self) -> None:
        """A program that needs none of these arrays has been run for real."""

    def dropped(self, array: Any) -> None:
        """Nobody holds an array any more."""


class HostArray(core.Tracer):  # type: ignore[type-arg]  # of JAX's own kinds of traces
    """An array without a value.

    Attributes:
        host: who records.
        origin: where the array comes from.
    """

    __slots__ = ("_known_sharding", "host", "origin")

    def __init__(self, host: Host, origin: Any, aval: Any, sharding: Any = None) -> None:
        super().__init__(core.eval_trace, aval)
        self.host, self.origin, self._known_sharding = host, origin, sharding

    def __del__(self) -> None:
        self.host.dropped(self)

    @property
    def sharding(self) -> Any:
        """The sharding, where it is known before anything is compiled."""
        if self._known_sharding is None:
            raise AttributeError("the sharding is not known before the program is compiled")
        return self._known_sharding

    @property
    def committed(self) -> bool:
        """Whether the array stays on the devices that it is on."""
        return True

    def __bool__(self) -> bool:
        return bool(self.host.read(self, "bool"))

    def __int__(self) -> int:
        return int(self.host.read(self, "int"))

    def __index__(self) -> int:
        return int(self.host.read(self, "int"))

    def __float__(self) -> float:
        return float(self.host.read(self, "float"))

    def __complex__(self) -> complex:
        return complex(self.host.read(self, "complex"))

    def __format__(self, spec: str) -> str:
        return format(self.host.read(self, "text"), spec) if not self.ndim else str(self)

    def __array__(self, dtype: Any = None, context: Any = None, copy: Any = None) -> Any:
        found = self.host.read(self, "array")
        return found if dtype is None else found.astype(dtype)

    def item(self, *index: Any) -> Any:
        """The value as a Python number."""
        return self.host.read(self, "array").item(*index)

    def tolist(self) -> Any:
        """The values as Python numbers."""
        return self.host.read(self, "array").tolist()

    def block_until_ready(self) -> HostArray:
        """Wait for the program that makes the array."""
        self.host.read(self, "wait")
        return self

    def copy_to_host_async(self) -> None:
        """Nothing: whoever reads the value waits."""

    def addressable_data(self, _index: int) -> HostArray:
        """The part of the array on one device: the array."""
        return self

    def is_deleted(self) -> bool:
        """Whether the array was donated."""
        return False

    def delete(self) -> None:
        """Let go of the array."""
        self.host.dropped(self)


@contextmanager
def recorded(host: Host) -> Iterator[None]:
    """Hand what is called with a ``HostArray`` to ``host``."""
    evaluation: Any = core.EvalTrace
    evaluate, call = evaluation.process_primitive, _impl._pjit_call_impl_python
    put = _dispatch._batched_device_put_impl
    check = _core.check_eval_args

    def process(self: Any, primitive: Any, args: Any, params: Any, /) -> Any:
        if primitive is pjit.jit_p:
            return process_jit(args, params)
        if primitive is dispatch.device_put_p:
            return device_put(*args, **params)
        if not _has_host_array(args) and not _is_large(primitive, args, params):
            found = _evaluated(lambda: evaluate(self, primitive, args, params))
            if found is not None:
                computed()
                return found[0]
        results = _called_op(host, primitive, args, params)
        return results if primitive.multiple_results else results[0]

    def computed() -> None:
        if core.trace_state_clean():  # else once, while something is traced
            host.computed()

    def process_jit(args: Any, params: Any) -> Any:
        large = _bytes(params["jaxpr"]) > _MOST_BYTES
        if not (_has_host_array(args) or _is_placed(params) or large):
            alone = {**params, "ctx_mesh": empty_abstract_mesh}
            found = _evaluated(lambda: call(*args, **alone)[0])
            if found is not None:
                computed()
                return found[0]
        return _called(host, args, params)

    def pjit_call(*args: Any, **params: Any) -> Any:
        return process_jit(args, params), None, None, []

    def device_put(*args: Any, **params: Any) -> Any:
        if _has_host_array(args) or any(map(_is_abstract, params["devices"])):
            return _device_put(host, args, params)
        with mesh_context(None):
            return put(*args, **{"dst_avals": [None] * len(args), **params})

    evaluation.process_primitive = process
    _dispatch._batched_device_put_impl = device_put
    _impl._pjit_call_impl_python = pjit_call
    _core.check_eval_args = lambda args: None
    try:
        yield
    finally:
        evaluation.process_primitive = evaluate
        _impl._pjit_call_impl_python = call
        _dispatch._batched_device_put_impl = put
        _core.check_eval_args = check


def traced_call(
    parameters: Mapping[str, Any], avals: Sequence[Any], shardings: Sequence[Any]
) -> Any:
    """A call as ``jax.jit(...).trace(...)`` gives it, to be lowered.

    Args:
        parameters: of the ``jit`` primitive.
        avals: types of the operands.
        shardings: of the operands; None where an operand may be moved.
    """
    metas = [
        pjit.create_meta_ty(aval, sharding, None, sharding is not None, False)
        for aval, sharding in zip(avals, shardings, strict=True)
    ]
    given = jax.tree.structure(((0,) * len(metas), {}))
    made = jax.tree.structure((0,) * len(parameters["jaxpr"].out_avals))
    stages: Any = jax.stages
    return stages.Traced(metas, dict(parameters), given, made, [])


def jitted_sources(traced: Any) -> list[str]:
    """What a traced function calls at its top level: "function at file:line" of each jitted one."""
    called = _plain(traced).jaxpr.jaxpr.eqns
    return [_source(one.params) for one in called if one.primitive is pjit.jit_p]


def options_of(traced: Any) -> dict[str, Any]:
    """The compiler options that a traced function's jit was given."""
    return dict(_plain(traced)._params["compiler_options_kvs"])


def donated_inside(traced: Any) -> list[int]:
    """Bytes of the whole arrays that jits inside of a traced function would donate."""
    return [
        _size(value.aval)
        for one in equations(_plain(traced).jaxpr.jaxpr)
        if one.primitive is pjit.jit_p
        for value, donated in zip(one.invars, one.params["donated_invars"], strict=True)
        if donated
    ]


def _plain(traced: Any) -> Any:
    """JAX's own of what a library has around it (flax)."""
    while not isinstance(traced, jax.stages.Traced) and hasattr(traced, "traced"):
        traced = traced.traced
    return traced


def is_stated(sharding: Any) -> bool:
    """Whether a ``jit`` was given a sharding for an operand or a result."""
    return not isinstance(sharding, UnspecifiedValue)


def aval_of(value: Any) -> Any:
    """JAX's type of an array, abstract or real, or of a number."""
    return _core.shaped_abstractify(value)


def kept_operands(lowered: Any) -> tuple[int, tuple[int, ...]]:
    """How many constants a lowered program takes first, and which of its operands follow."""
    arguments = lowered._lowering.compile_args
    constants = len(lowered._lowering.const_args)
    kept = sorted(arguments["kept_var_idx"])
    return constants, tuple(number - constants for number in kept if number >= constants)


def path() -> str:
    """The name stack around what is called now: scopes, and transformations such as ``jax.grad``'s.

    It is not in the names of what a jitted function does, which begin with the function's own.
    """
    return str(source_info_util.current_name_stack())


def _evaluated(compute: Callable[[], Any]) -> tuple[Any] | None:
    """What has values is computed without a mesh; None where that cannot be (it needs one)."""
    try:
        with mesh_context(None):
            return (compute(),)
    except Exception:  # it is recorded, and if it is the user's mistake, that fails again
        return None


def _has_host_array(args: Sequence[Any]) -> bool:
    return any(isinstance(item, HostArray) for item in args)


def _bytes(jaxpr: Any) -> int:
    return sum(_size(aval) for aval in jaxpr.out_avals)


def _size(aval: Any) -> int:
    item = getattr(getattr(aval, "dtype", None), "itemsize", 0)
    return int(np.prod(getattr(aval, "shape", ()), dtype=np.int64)) * int(item)


def _is_large(primitive: Any, args: Sequence[Any], params: Mapping[str, Any]) -> bool:
    try:
        avals, _ = primitive.abstract_eval(*map(aval_of, args), **params)
    except Exception:  # what is wrong with it, its evaluation says
        return False
    made = avals if primitive.multiple_results else [avals]
    return sum(map(_size, made)) > _MOST_BYTES


def _is_placed(params: Mapping[str, Any]) -> bool:
    return any(map(is_stated, (*params["in_shardings"], *params["out_shardings"])))


def _called(host: Host, args: Sequence[Any], params: Mapping[str, Any]) -> list[Any]:
    return host.call(str(params["name"]), params, args, _source(params))


def _source(params: Mapping[str, Any]) -> str:
    return str(params["jaxpr"].jaxpr.debug_info.func_src_info or "?")


def _called_op(
    host: Host, primitive: Any, args: Sequence[Any], params: Mapping[str, Any]
) -> list[Any]:
    def op(*operands: Any) -> Any:
        return primitive.bind(*operands, **params)

    return _called_function(host, op, args, primitive.name)


def _called_function(
    host: Host, function: Callable[..., Any], args: Sequence[Any], name: str, **settings: Any
) -> list[Any]:
    function.__name__ = name
    given = [_abstract(item) for item in args]
    traced: Any = jax.jit(function, **settings).trace(*given)
    return host.call(name, traced._params, args, "")


def _abstract(value: Any) -> Any:
    aval = aval_of(value)
    abstract: Any = jax.ShapeDtypeStruct
    return abstract(aval.shape, aval.dtype, weak_type=aval.weak_type)


def _device_put(host: Host, args: Sequence[Any], params: Mapping[str, Any]) -> list[Any]:
    """Arrays put where they are said to be; each that is moved is a program of its own."""
    results = []
    how = zip(args, params["devices"], params["copy_semantics"], strict=True)
    for item, device, copy in how:
        if isinstance(device, jax.sharding.Sharding):
            donated = 0 if copy == dispatch.ArrayCopySemantics.DONATE_INPUT else None
            settings = {"out_shardings": device, "donate_argnums": donated}
            results += _called_function(host, _same(), [item], "device_put", **settings)
        else:  # a device, or nothing: where it is
            results.append(item)
    return results


def _same() -> Callable[..., Any]:
    return lambda operand: operand


def _is_abstract(device: Any) -> bool:
    mesh = getattr(device, "mesh", None)
    return isinstance(mesh, jax.sharding.AbstractMesh) and not mesh.empty
