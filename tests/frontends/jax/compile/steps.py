"""Steps for the optimized level."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import flint

LAYERS, WIDTH, ROWS = 4, 256, 512


def placed(mesh, shape, *spec):
    return jax.ShapeDtypeStruct(shape, jnp.float32, sharding=NamedSharding(mesh, P(*spec)))


def setup(mesh):
    return placed(mesh, (LAYERS, WIDTH, WIDTH), None, "data", "model"), placed(
        mesh, (ROWS, WIDTH), "data"
    )


def loss(weights, x):
    def block(x, weight):
        return jnp.tanh(x @ weight), None

    return (lax.scan(block, x, weights)[0] ** 2).sum()


@flint.capture(mesh=(4, 2), axes=("data", "model"), setup=setup, donate_argnums=0)
def scan(weights, x):
    """A scan over layers with weights sharded over both axes, and their update."""
    return jax.tree.map(lambda w, g: w - 0.1 * g, weights, jax.grad(loss)(weights, x))


def two_setup(mesh):
    return placed(mesh, (ROWS, WIDTH), "data"), placed(mesh, (ROWS, 64), "data")


@flint.capture(mesh=(8,), axes=("data",), setup=two_setup)
def two_sums(x, y):
    """Two sums over all devices that do not depend on each other: 256 and 64 floats."""
    return jnp.sin(x).sum(0), jnp.cos(y).sum(0)


def products_setup(mesh):
    weight = placed(mesh, (256, 32), "data")
    return placed(mesh, (64, 256), None, "data"), weight, weight


@flint.capture(mesh=(8,), axes=("data",), setup=products_setup)
def two_products(x, w, v):
    """A sum of two products, each of which is a sum over all devices."""
    return x @ w + x @ v


def large_setup(mesh):
    return (placed(mesh, (1 << 17, 1 << 17), "data"),)


@flint.capture(mesh=(2,), axes=("data",), setup=large_setup)
def too_large(x):
    """A device's half of the input is 32 GiB, its result as much again, both kept."""
    return jnp.sin(x), x.sum(0)


HEADS, TOKENS, HEAD = 2, 114, 64


def odd_setup(mesh):
    values = placed(mesh, (16, TOKENS, HEADS, HEAD))
    return values, placed(mesh, (16, HEADS, TOKENS, TOKENS)), placed(mesh, (HEADS, HEAD, WIDTH))


@flint.capture(mesh=(2,), axes=("data",), setup=odd_setup)
def odd_attention(values, probabilities, out):
    """Of 114 tokens no tile that Triton starts with is a part."""
    heads = jnp.einsum("bhqk,bkhd->bqhd", probabilities, values)
    return jnp.einsum("bshk,hkd->bsd", heads, out)


def calls_setup(mesh):
    return (placed(mesh, (16, 64, 64), "data"),)


@flint.capture(mesh=(8,), axes=("data",), setup=calls_setup)
def calls(x):
    """A library call of each device's own matrices, and a call of Python with the sum."""
    factors = jnp.linalg.cholesky(x)
    jax.debug.print("{}", factors.sum())
    return factors


def held_setup(mesh):
    weight = placed(mesh, (256, 128), "data", "model")
    weight = weight.update(sharding=weight.sharding.with_memory_kind("pinned_host"))
    return placed(mesh, (64, 256), "data"), weight


@flint.capture(mesh=(4, 2), axes=("data", "model"), setup=held_setup)
def held_by_the_host(x, weight):
    """A product with a weight that the host holds."""
    return x @ jax.device_put(weight, jax.memory.Space.Device)
