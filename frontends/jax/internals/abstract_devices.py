"""Lowering for absent devices, where JAX asks for real ones.

The idea: for an abstract mesh JAX refuses to lower calls of Python (``host_calls.py``) and ops with
a partitioning rule in Python (``partitioning_rules.py``).  It has a set of the ops that need
devices, a table of lowering rules and a few functions that use devices; all are replaced while a
step is lowered.

    with abstract_devices(mesh, (9, 0)):
        lowered = traced.lower(lowering_platforms=("cuda",))
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from jax._src import dispatch, pjit
from jax._src.interpreters import mlir, pxla
from jax.sharding import AbstractMesh

from flint.frontends.jax.internals import host_calls, pallas_calls, partitioning_rules

#: Module, name of a function in it, its replacement.
Replacement = tuple[Any, str, Callable[..., Any]]


@contextmanager
def abstract_devices(mesh: AbstractMesh | None, capability: tuple[int, int]) -> Iterator[None]:
    """Make lowering for an abstract mesh and for any platform possible.

    Args:
        mesh: the mesh that the step is lowered for; None if it will not be partitioned: ops with a
            partitioning rule are then written out as one device would run them.
        capability: compute capability of the GPUs, major and minor.
    """
    partitioning_rules.forget()
    _clear_caches()
    tables: Any = mlir  # untyped
    needing = dispatch.prim_requires_devices_during_lowering
    need_none = {
        item for item in needing if item in host_calls.CALLS or partitioning_rules.has_rule(item)
    }
    rule = tables._lowerings[partitioning_rules.PARTITIONED]
    functions = [
        *host_calls.replacements(),
        *partitioning_rules.replacements(capability),
        *pallas_calls.replacements(capability),
    ]
    originals = [(module, name, getattr(module, name)) for module, name, _ in functions]
    needing -= need_none
    mlir.register_lowering(partitioning_rules.PARTITIONED, partitioning_rules.lowering(mesh))
    _put(functions)
    try:
        yield
    finally:
        _put(originals)
        tables._lowerings[partitioning_rules.PARTITIONED] = rule
        needing |= need_none
        _clear_caches()


def _put(functions: Iterable[Replacement]) -> None:
    for module, name, function in functions:
        setattr(module, name, function)


def _clear_caches() -> None:
    """Make JAX lower programs again: its caches are valid only inside or only outside."""
    caches: tuple[Any, ...] = (
        pjit._pjit_lower,
        pxla._cached_lowering_to_hlo,
        dispatch.jaxpr_has_prim_requiring_devices,
    )
    for cache in caches:
        cache.cache_clear()
