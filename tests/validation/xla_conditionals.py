"""Steps whose conditionals communicate over different axes, by data."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import PartitionSpec as P

from tests.validation.xla_steps import step


def over_axes(first, second, chosen, mesh=(4, 2), axes=("x", "y")):
    """One sum, over the axes of the branch that data chooses: 1 is the first of these, 0 the other.

    Nothing else communicates.
    """

    def one(x, w):
        y = x @ w
        truth = jnp.sum(y) * 0 + (1 if chosen else -1) > 0
        y = lax.cond(truth, lambda y: lax.psum(y, first) @ w, lambda y: lax.psum(y, second) @ w, y)
        return jnp.tanh(y @ w) @ w

    every = P(axes)

    def run(x, w):
        return jax.shard_map(one, in_specs=(every, P()), out_specs=every, check_vma=False)(x, w)

    return step(run, ((64, 32), (axes,)), ((32, 32), ()), mesh=mesh, axes=axes)


over_x, over_y = over_axes("x", "y", True), over_axes("x", "y", False)
#: The same, but that what was over x is over both axes, or what was over y.
wide_x, wide_y = over_axes(("x", "y"), "y", True), over_axes("x", ("x", "y"), False)
#: ``over_x`` and ``over_y`` on a mesh of as many devices, in another order.
turned_x, turned_y = (
    over_axes("x", "y", chosen, mesh=(2, 4), axes=("y", "x")) for chosen in (True, False)
)


def in_type(first, second, chosen):
    """Two products of a type where data says so, else one of the other type, of the same sizes."""

    def run(w, x):
        def product(c, dtype):
            return (c.astype(dtype) @ w.astype(dtype)).astype(jnp.float32)

        def twice(c):
            return product(product(jnp.sin(c), first), first)

        c = jnp.tanh(x[:, :4] @ w[:4])
        truth = jnp.sum(c) * 0 + (1 if chosen else -1) > 0
        return lax.cond(truth, twice, lambda c: product(jnp.cos(c), second), c)

    return step(run, ((32, 32), ()), ((64, 32), ("d",)))


TYPES = {"bf16": jnp.bfloat16, "f16": jnp.float16, "f32": jnp.float32}
typed = {
    f"{a}_{b}_{chosen}": in_type(TYPES[a], TYPES[b], chosen)
    for a, b in (("bf16", "f32"), ("f32", "bf16"), ("f16", "f32"), ("f32", "f16"), ("bf16", "f16"))
    for chosen in (0, 1)
}
globals().update(typed)
