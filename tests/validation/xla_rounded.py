"""Steps on float32 arguments that are rounded to another type on the way, or not."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import PartitionSpec as P

from tests.validation.xla_steps import mapped, step


def rounded(one):
    """The step in bfloat16 and in float32, by name: ``one(dtype, x, w)`` is what a device does."""

    def of(dtype):
        return step(
            mapped(lambda x, w: one(dtype, x, w), (P("d"), P())), ((64, 32), ("d",)), ((32, 32), ())
        )

    return of(jnp.bfloat16), of(jnp.float32)


def wide(value):
    return value.astype(jnp.float32)


#: What XLA's CPU backend multiplies in bfloat16, or computes in float32 after rounding.
product_narrow, product_wide = rounded(lambda d, x, w: wide(jnp.tanh(x.astype(d) @ w.astype(d))))
exact_narrow, exact_wide = rounded(
    lambda d, x, w: jnp.dot(x.astype(d), w.astype(d), preferred_element_type=jnp.float32)
)
#: One of two products of the same sizes on one line.
second_narrow, second_wide = rounded(
    lambda d, x, w: wide(jax.nn.softmax(x @ w).astype(d) @ w.astype(d))
)
repeated_narrow, repeated_wide = rounded(
    lambda d, x, w: lax.fori_loop(0, 3, lambda _, c: wide(jnp.tanh(c.astype(d) @ w.astype(d))), x)
)
sum_narrow, sum_wide = rounded(lambda d, x, w: wide(lax.psum((x @ w).astype(d), "d")) @ w)
gather_narrow, gather_wide = rounded(
    lambda d, x, w: x @ wide(lax.all_gather(w[:4].astype(d), "d", tiled=True))
)
gradient_narrow, gradient_wide = rounded(
    lambda d, x, w: x @ jax.grad(
        lambda w: jnp.mean(wide(jax.nn.relu(x.astype(d) @ w.astype(d)) @ w.astype(d)) ** 2)
    )(w)
)  # fmt: skip
