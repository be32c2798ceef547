"""Programs that a step lowers and compiles ahead of their calls: ``jit(f).lower(...).compile()``.

The idea: while the step's host code runs, nothing needs to be lowered or compiled.  Substitutes for
JAX's own objects keep the traced program and pass it on when it is called; other properties come
from JAX's lowering, and those of the executable (its text, its costs) from the module after
partitioning (``executables.py``), or are unavailable, as in JAX for some backends.

    lowered_ahead(traced, {}, lower, called).compile()(w, x)
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
from jax._src import pjit, stages

from flint.frontends.jax.internals.avals import aval_of
from flint.frontends.jax.internals.executables import PartitionedExecutable
from flint.frontends.jax.internals.formats import format_of
from flint.frontends.jax.internals.host import Host
from flint.frontends.jax.internals.host_arrays import HostArray
from flint.frontends.jax.internals.jaxprs import is_over_devices
from flint.frontends.jax.internals.traced_calls import is_stated, source_of

#: Attributes for which the lowered form for this machine is sufficient.
_PLATFORM = "cpu"


@dataclass(frozen=True)
class _Meta(pjit.MetaTy):
    """JAX's description of an argument that it lowers for, with the array's origin."""

    origin: Any = None


def meta_of_host_array(array: HostArray) -> Any:
    """JAX's description of an argument that it lowers for."""
    return _Meta(array.aval, array.known_sharding, None, True, False, array.origin)


def lowered_ahead(
    traced: Any, options: Mapping[str, Any], lower: Callable[..., Any], host: Host
) -> Any:
    """The substitute for ``traced.lower(**options)``.

    Args:
        traced: JAX's, of arrays with and without values.
        options: of ``lower``.
        lower: JAX's own function.
        host: the recorder.
    """
    return _Lowered(_Arguments(traced, traced.args_info, traced.out_tree), options, lower, host)


def lowered_again(lowering: Any, args_info: Any, out_tree: Any, **known: Any) -> Any:
    """The substitute for ``stages.Lowered``, by which ``pmap`` gives a lowering its own arguments.

    Args:
        lowering: ``_lowering`` of what JAX or its substitute has lowered.
        args_info, out_tree, known: as for JAX's.
    """
    if not isinstance(lowering, _Lowering):
        return stages.Lowered(lowering, args_info, out_tree, **known)
    one = lowering.program
    return _Lowered(_Arguments(one.traced, args_info, out_tree), one.options, one.lower, one.host)


class _Arguments(NamedTuple):
    """A traced program and the trees of its arguments and results, as its caller passes them."""

    traced: Any
    args_info: Any
    out_tree: Any


class _Program(NamedTuple):
    """What is lowered: JAX's traced program, options and function, and the recorder."""

    traced: Any
    options: Mapping[str, Any]
    lower: Callable[..., Any]
    host: Host


class _Lowering:
    """A lowering that is made when something of it is used."""

    def __init__(self, program: _Program) -> None:
        self.program = program

    def __getattr__(self, name: str) -> Any:
        return getattr(self._made, name)

    @functools.cached_property
    def _made(self) -> Any:
        one = self.program
        options = {"lowering_platforms": (_PLATFORM,), **one.options}
        return one.lower(one.traced, **options)._lowering


class _Lowered(stages.Lowered):
    """A program that is lowered only if its lowered form is used."""

    def __init__(
        self, own: _Arguments, options: Mapping[str, Any], lower: Callable[..., Any], host: Host
    ) -> None:
        lowering: Any = _Lowering(_Program(own.traced, options, lower, host))
        super().__init__(lowering, own.args_info, own.out_tree)
        self._own, self._host = own, host

    def compile(
        self, compiler_options: Mapping[str, Any] | None = None, **_known: Any
    ) -> _Compiled:
        """The substitute for the executable."""
        return _Compiled(self._own, compiler_options or {}, self._host)


class _Compiled(stages.Compiled):
    """A program that is compiled after the host code has run."""

    def __init__(self, own: _Arguments, options: Mapping[str, Any], host: Host) -> None:
        self._traced, self.args_info, self.out_tree = own
        self._no_kwargs = False
        self._options, self._host = options, host

    @property
    def in_avals(self) -> Any:
        """The types of the arguments and keyword arguments."""
        own = self._traced.jaxpr.in_avals[len(self._traced._consts) :]
        return jax.tree_util.tree_unflatten(self.in_tree, own)

    @property
    def out_info(self) -> Any:
        """The types of the results."""
        return self._traced.out_info

    @functools.cached_property
    def _executable(self) -> Any:  # type: ignore[override]  # an attribute of JAX's own
        name = str(self._traced.fun_name)
        return PartitionedExecutable(self._host.module(name, self._parameters, self._compiled_for))

    @property
    def input_shardings(self) -> Any:
        """The placements of the arguments and keyword arguments, as a run has them."""
        traced = self._traced
        constants = len(traced._consts)
        stated = traced._params["in_shardings"][constants:]
        given = [meta.sharding for meta in traced._meta_tys_flat[constants:]]
        found = [one if is_stated(one) else own for one, own in zip(stated, given, strict=True)]
        return jax.tree_util.tree_unflatten(self.in_tree, _all_stated(found, "input_shardings"))

    @property
    def output_shardings(self) -> Any:
        """The placements of the results, as a run has them."""
        stated = self._traced._params["out_shardings"]
        if not all(map(is_stated, stated)):
            made = self._host.results(self._traced.fun_name, self._parameters, self._compiled_for)
            stated = [own if is_stated(own) else one for own, one in zip(stated, made, strict=True)]
        return jax.tree_util.tree_unflatten(self.out_tree, stated)

    @property
    def _parameters(self) -> Mapping[str, Any]:
        own = self._traced._params
        options = {**dict(own["compiler_options_kvs"]), **self._options}
        return {**own, "compiler_options_kvs": tuple(options.items())}

    @property
    def _compiled_for(self) -> Sequence[Any]:
        return [
            meta.origin if isinstance(meta, _Meta) else _stated(meta.sharding)
            for meta in self._traced._meta_tys_flat
        ]

    @property
    def input_formats(self) -> Any:
        """The formats of the arguments and keyword arguments."""
        traced = self._traced
        constants = len(traced._consts)
        layouts = traced._params["in_layouts"][constants:]
        return self._formats(self.input_shardings, layouts, traced.jaxpr.in_avals[constants:])

    @property
    def output_formats(self) -> Any:
        """The formats of the results."""
        layouts = self._traced._params["out_layouts"]
        return self._formats(self.output_shardings, layouts, self._traced.jaxpr.out_avals)

    def _formats(self, shardings: Any, layouts: Sequence[Any], avals: Sequence[Any]) -> Any:
        places, tree = jax.tree_util.tree_flatten(shardings)
        formats = [
            format_of(place, len(aval.shape), layout)
            for place, layout, aval in zip(places, layouts, avals, strict=True)
        ]
        return jax.tree_util.tree_unflatten(tree, formats)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Record a call.

        Raises:
            TypeError: the arguments differ from those it was lowered for.
        """
        traced = self._traced
        leaves: list[Any]
        tree: Any
        leaves, tree = jax.tree_util.tree_flatten((args, kwargs))
        operands = [*traced._consts, *leaves]
        types = traced.jaxpr.in_avals
        if tree != self.in_tree or len(operands) != len(types):
            raise TypeError(
                f"{traced.fun_name} was lowered for the arguments {self.in_tree}, but is called "
                f"with {tree}"
            )
        for given, wanted in zip(map(aval_of, operands), types, strict=True):
            if (given.shape, given.dtype) != (wanted.shape, wanted.dtype):
                raise TypeError(
                    f"{traced.fun_name} was compiled for {wanted.str_short()}, but is called with "
                    f"{given.str_short()}"
                )
        source, known = source_of(self._parameters), (self._parameters, operands)
        results = self._host.call(str(traced.fun_name), *known, source, self._compiled_for)
        return jax.tree_util.tree_unflatten(self.out_tree, results)


def _all_stated(shardings: Sequence[Any], name: str) -> Sequence[Any]:
    """Some shardings.

    Raises:
        NotImplementedError: the compiler chooses one of them.
    """
    if not all(item is not None and is_stated(item) for item in shardings):
        raise NotImplementedError(not_stated(name))
    return shardings


def not_stated(name: str) -> str:
    """The text of an error: an attribute of an executable is not known."""
    return (
        f"the step reads {name} of an executable, which the compiler would choose: state them "
        "(in_shardings and out_shardings of jax.jit, or sharding of a ShapeDtypeStruct)"
    )


def _stated(sharding: Any) -> Any:
    """A sharding over several devices; for the single device of small arrays, JAX decides."""
    return sharding if is_over_devices(sharding) else None
