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

#: On a mesh of two equal axes, in this order and in the other one.
square_x, square_turned = (
    over_axes("x", "y", True, mesh=(2, 2), axes=axes) for axes in (("x", "y"), ("y", "x"))
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


def by_rank_and_data(chosen, width, inside):
    """Ranks of which the first two run two products, the others one; and what data decides.

    Inside of what the first two run, or behind it for all.
    """

    def one(x, w):
        def decided(c):
            def of(width):
                return lambda c: jnp.tanh(c @ w[:, :width]) @ w[:width]

            truth = jnp.sum(c) * 0 + (1 if chosen else -1) > 0
            return lax.cond(truth, of(width), of(24), c)

        def twice(c):
            return jnp.tanh(jnp.tanh(c @ w) @ w)

        first = lax.axis_index("x") == 0
        y = lax.cond(first, decided if inside else twice, lambda c: jnp.tanh(c @ w), x)
        y = y if inside else decided(y)
        return lax.psum(y, "y") @ w

    every = P(("x", "y"))

    def run(x, w):
        return jax.shard_map(one, in_specs=(every, P()), out_specs=every, check_vma=False)(x, w)

    return step(run, ((64, 32), (("x", "y"),)), ((32, 32), ()), mesh=(4, 2), axes=("x", "y"))


#: The branch that runs is the cheaper one, which is not captured.
behind, behind_changed = by_rank_and_data(True, 16, False), by_rank_and_data(True, 8, False)
within, within_changed = by_rank_and_data(True, 16, True), by_rank_and_data(True, 8, True)
