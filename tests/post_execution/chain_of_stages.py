"""A step on 8 devices of which each hands its result to the next, the last one to none."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import PartitionSpec as P

import flint
from tests.frontends.jax.steps import placed


def setup(mesh):
    return placed(mesh, (64, 64), "stage"), placed(mesh, (64, 64))


@flint.capture(mesh=(8,), axes=("stage",), setup=setup)
@jax.jit
def chain(x, w):
    def part(x, w):
        def tick(x, _):
            x = jnp.tanh(x @ w)
            return lax.ppermute(x, "stage", [(i, i + 1) for i in range(7)]), x.sum()

        return lax.psum(lax.scan(tick, x, None, length=12)[1], "stage")

    return jax.shard_map(
        part, in_specs=(P("stage"), P()), out_specs=P(), check_vma=False
    )(x, w)  # fmt: skip
