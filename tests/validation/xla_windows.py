"""Steps on the same arguments of which other numbers come out."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import PartitionSpec as P

from tests.validation.xla_steps import mapped, step


def convolved(strides=1, padding="SAME", dilation=1, spread=1, groups=1):
    """The mean of a convolution over windows of 3 by 3."""

    def run(w, x):
        found = lax.conv_general_dilated(
            x, w, (strides, strides), padding, (spread, spread), (dilation, dilation),
            ("NHWC", "HWIO", "NHWC"), groups,
        )  # fmt: skip
        return jnp.mean(jnp.tanh(found) ** 2)

    return step(run, ((3, 3, 8 // groups, 16), ()), ((16, 16, 16, 8), ("d",)))


plain, strided, valid, dilated = (
    convolved(), convolved(strides=2), convolved(padding="VALID"), convolved(dilation=2)
)  # fmt: skip
#: With zeros between the numbers, of which no more products come.
spread = convolved(padding=((1, 1), (1, 1)), spread=2)
grouped, each = convolved(groups=2), convolved(groups=8)


def best(count):
    """The so many greatest numbers of each row of a product."""
    return step(lambda w, x: lax.top_k(x @ w, count)[0], ((32, 32), ()), ((64, 32), ("d",)))


best_8, best_4 = best(8), best(4)


def of_integers(dtype):
    """A product of small integers whose sums are large."""

    def run(w, x):
        small = (x * 9).astype(dtype), (w * 9).astype(dtype)
        return lax.dot(*small, preferred_element_type=jnp.int32)

    return step(run, ((32, 32), ()), ((64, 32), ("d",)))


unsigned, signed, whole = map(of_integers, (jnp.uint8, jnp.int8, jnp.int32))


def turning(by):
    """A pipeline's gradient on a ring of 8: forth by so many devices, and back by as many."""

    def one(w, x):
        def loss(w):
            def body(c, _):
                return lax.ppermute(jnp.tanh(c @ w), "d", [(i, (i + by) % 8) for i in range(8)]), ()

            return jnp.mean(lax.scan(body, x, length=5)[0] ** 2)

        return jax.grad(loss)(w)

    return step(mapped(one, (P(), P("d"))), ((32, 32), ()), ((64, 32), ("d",)))


forth, back = turning(1), turning(7)
