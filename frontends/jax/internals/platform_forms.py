"""Ops that JAX silently lowers differently for CPUs and for accelerators.

The idea: a step is lowered for the CPU because that needs no device, and nearly all of it is the
same for all platforms.  Differences are found among the traced equations.  A ragged product is one
op on GPUs and TPUs and a product with every group on CPUs; the partitioner inserts different
collectives for the two, so it is lowered as for GPUs and TPUs.  So are random bits, whose rounds
are a loop on CPUs alone.  Copies to and from the host's memory are not ops on CPUs: they become
separate ops.  A sharding that is inspected for debugging is a call of this process by the compiler,
which runs in another one: it is left out.  Branches by platform are the user's: they become
warnings.  Kernels of Pallas get a statement of their arithmetic.

    lowered, warnings = lower_for(traced, "cpu", compiled=False)
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator, Sequence
from typing import Any

import jax
from jax._src import core, debugging
from jax._src.interpreters import mlir
from jax._src.lax import lax
from jax._src.lax.control_flow import conditionals
from jax.extend.random import threefry2x32_p

from flint.frontends.jax.internals import host_memory, pallas_calls

RAGGED = (
    "ragged_dot: one op, as JAX lowers it for GPUs and TPUs; each row is multiplied with its "
    "own group's matrix (on GPUs it is simulated with every group's, as XLA compiles it)"
)
BRANCH = (
    "platform_dependent: its branch for CPUs is captured (--target captures that for GPUs or TPUs)"
)

ON_HOST = (
    "ops of compute_on run on the host's processor: they are timed as on the device, and without "
    "the copies of their operands"
)

#: The beginnings of the names of primitives whose lowering may make random bits.
_RANDOM = ("random_", "threefry2x32")

#: Other platforms that a platform's branch may be meant for.
_ACCELERATORS = ("cuda", "tpu")


def lower_for(traced: Any, platform: str, *, compiled: bool) -> tuple[Any, dict[str, int]]:
    """A traced step, lowered.

    Args:
        traced: of ``jax.jit(...).trace(...)`` or a library's around it.
        platform: JAX's name of the platform.
        compiled: it is for a platform's own compiler, which supports copies to and from the host.

    Returns:
        JAX's lowered step, and warnings: text -> count.
    """
    while not isinstance(traced, jax.stages.Traced) and hasattr(traced, "traced"):
        traced = traced.traced  # flax's
    traced_ops = list(equations(traced.jaxpr.jaxpr))
    every = [] if compiled else traced_ops
    found = every if platform == "cpu" else []
    rules: Any = None
    warnings: dict[str, int] = {}
    if any(one.primitive is lax.ragged_dot_general_p for one in found) and _has_instruction():
        rule = functools.partial(lax._ragged_dot_general_lower, platform="tpu")
        rules = ((lax.ragged_dot_general_p, rule),)
        warnings[RAGGED] = 1
    if any(one.primitive.name.startswith(_RANDOM) for one in found):
        rules = (*(rules or ()), (threefry2x32_p, mlir._lowerings[threefry2x32_p].rule))
    if any(_branches_apart(one) for one in found):
        warnings[BRANCH] = 1
    if any(map(host_memory.moves, every)):
        rules = (*(rules or ()), host_memory.rule())
    on_host = sum(str(one.ctx.compute_type).endswith("host") for one in traced_ops)
    if on_host:
        warnings[ON_HOST] = on_host
    if any(one.primitive is debugging.inspect_sharding_p for one in traced_ops):
        rules = (*(rules or ()), (debugging.inspect_sharding_p, lambda *_, **__: []))
    kernels = pallas_calls.rules(warnings, traced.jaxpr)
    if kernels:
        rules = (*(rules or ()), *kernels)
    parameters = mlir.LoweringParameters(override_lowering_rules=rules)
    with contextlib.nullcontext() if compiled else host_memory.results_moved():
        lowered = traced.lower(lowering_platforms=(platform,), _private_parameters=parameters)
    return lowered, warnings


def _has_instruction() -> bool:
    return bool(jax.config.values["jax_ragged_dot_use_ragged_dot_instruction"])


def _branches_apart(one: Any) -> bool:
    """Whether an equation chooses another branch for CPUs than for some accelerator."""
    if one.primitive is not conditionals.platform_index_p:
        return False
    platforms: Sequence[tuple[str, ...] | None] = one.params["platforms"]
    chosen = {_index(platforms, platform) for platform in ("cpu", *_ACCELERATORS)}
    return len(chosen) > 1


def _index(platforms: Sequence[tuple[str, ...] | None], platform: str) -> int | None:
    """The branch for a platform: its own, otherwise the default, otherwise none."""
    own = [number for number, names in enumerate(platforms) if names and platform in names]
    default = [number for number, names in enumerate(platforms) if names is None]
    return next(iter(own + default), None)


def equations(jaxpr: Any) -> Iterator[Any]:
    """All equations of a jaxpr and of those inside, each jaxpr once."""
    known: set[int] = set()
    open_ = [jaxpr]
    while open_:
        jaxpr = open_.pop()
        if id(jaxpr) in known:
            continue
        known.add(id(jaxpr))
        for one in jaxpr.eqns:
            yield one
            open_.extend(core.jaxprs_in_params(one.params))
