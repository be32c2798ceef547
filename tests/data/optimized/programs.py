"""Small programs for what the models' steps do not hold: library calls, pipelined collectives.

Each entry of ``PROGRAMS`` takes a mesh of ``SHAPE`` and gives (function, abstract arguments).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

SHAPE, AXES = (4, 2), ("data", "model")
PROGRAMS: dict[str, Callable[[Any], Any]] = {}


def program(make: Callable[[Any], Any]) -> Callable[[Any], Any]:
    PROGRAMS[make.__name__] = make
    return make


def array(mesh: Any, shape: tuple[int, ...], *spec: Any, dtype: Any = jnp.float32) -> Any:
    return jax.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(mesh, P(*spec)))


@program
def library(mesh: Any) -> Any:
    def f(x: Any, a: Any) -> Any:
        values, indices = lax.top_k(x, 16)
        factor = lax.linalg.cholesky(a)
        solved = lax.linalg.triangular_solve(factor, a, left_side=True, lower=True)
        return values, indices, jnp.sort(x, -1), solved, jnp.fft.rfft(a)

    return f, (array(mesh, (32, 4096), "data", None), array(mesh, (64, 64), None, None))


@program
def conditional(mesh: Any) -> Any:
    def f(p: Any, x: Any) -> Any:
        y = lax.switch(p, [jnp.sin, lambda x: x * 2 + 1, jnp.exp], x)
        return y.sum(0), y @ y.T

    return f, (
        array(mesh, (), dtype=jnp.int32),
        array(mesh, (64, 128), "data", "model"),
    )


@program
def dynamic_loop(mesh: Any) -> Any:
    def f(x: Any) -> Any:
        return lax.while_loop(
            lambda c: jnp.sum(c[0]) > 1e-3, lambda c: (c[0] * 0.5, c[1] + 1), (x, 0)
        )

    return f, (array(mesh, (16, 64), "data", "model"),)


@program
def remat(mesh: Any) -> Any:
    """A training step of six layers, one after another, that are computed again in the backward
    pass; the sum over all gradients keeps the optimizer behind the last of them."""

    @jax.checkpoint
    def layer(h: Any, w: Any) -> Any:
        return h + jnp.tanh(jnp.sin(h @ w[0]) @ w[1])

    def step(weights: Any, x: Any) -> Any:
        def loss(weights: Any) -> Any:
            h = x
            for w in weights:
                h = layer(h, w)
            return jnp.mean(h**2)

        value, gradients = jax.value_and_grad(loss)(weights)
        norm = jnp.sqrt(sum(jnp.sum(g**2) for g in gradients))
        return [w - 0.1 * g / norm for w, g in zip(weights, gradients, strict=True)], value

    weights = [array(mesh, (2, 512, 512), None, "model", None) for _ in range(6)]
    return step, (weights, array(mesh, (8192, 512), ("data", "model"), None))
