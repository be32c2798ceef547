"""Steps that call several programs, and what they return is used on the host in between."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import flint

WHOLE, ROWS = P(), P("data")
SIZES = {"w": (512, 256), "m": (512, 256), "x": (64, 512)}


def setup(mesh, w=WHOLE):
    def abstract(name, spec):
        sharding = NamedSharding(mesh, spec)
        return jax.ShapeDtypeStruct(SIZES[name], jnp.float32, sharding=sharding)

    return abstract("w", w), abstract("m", ROWS), abstract("x", ROWS)


captured = functools.partial(flint.capture, mesh=(4, 2), axes=("data", "model"), setup=setup)


def loss(w, x):
    return (jnp.tanh(x @ w) ** 2).mean()


@jax.jit
def gradient(w, x):
    return jax.value_and_grad(loss)(w, x)


@functools.partial(jax.jit, donate_argnums=(0, 1))
def momentum(w, m, g):
    m = 0.9 * m + g
    return w - m, m


@captured
def zero1(w, m, x):
    """Gradients are reduced whole, and each rank updates its part of the momentum."""
    value, g = gradient(w, x)
    w, m = momentum(w, m, g)
    return value, w, m


@captured
def reads(w, m, x):
    """A step that looks at its loss before it updates."""
    value, g = gradient(w, x)
    if float(value) > 0:
        w, m = momentum(w, m, g)
    return {"loss": f"{value:.3f}", "w": w, "m": m}


@captured
def accumulates(w, m, x):
    """One program called four times, and another one."""
    total = None
    for _ in range(4):
        _, g = gradient(w, x)
        total = g if total is None else add(total, g)
    return momentum(w, m, total)


@functools.partial(jax.jit, donate_argnums=0)
def add(a, b):
    return a + b


@captured
def resharded(w, m, x):
    """What one program returns is put elsewhere for the next one."""
    _, g = gradient(w, x)
    sharding = NamedSharding(m_sharding(m).mesh, P("data", "model"))
    return jax.jit(lambda g: (g * g).sum(0))(jax.device_put(g, sharding))


def m_sharding(m):
    return m.sharding


@captured
def eager(w, m, x):
    """Ops between programs, each of which JAX runs as a program."""
    g = gradient(w, x)[1]
    norm = jnp.sqrt((g**2).sum())
    g = g * jnp.minimum(1.0, 1.0 / norm)
    return momentum(w, m, g)


@captured
def outside(w, m, x):
    """Differentiated outside of a jit: the forward and the backward pass are programs."""
    return jax.grad(jax.jit(loss))(w, x)


class Trainer:
    def __init__(self):
        self.norm = jax.jit(lambda x: x / jnp.linalg.norm(x, axis=0), out_shardings=None)

    def __call__(self, w, m, x):
        return gradient(self.norm(w), x)[1]


of_an_object = flint.capture(
    Trainer(),
    mesh=(4, 2),
    axes=("data", "model"),
    setup=functools.partial(setup, w=P("data", "model")),
)


@captured
def scanned(w, m, x):
    """Programs with loops in them."""

    @jax.jit
    def twice(w, x):
        return jax.lax.scan(lambda w, _: (w - 0.1 * jax.grad(loss)(w, x), None), w, None, 2)[0]

    return twice(twice(w, x), x)


@captured
def ahead(w, m, x):
    """Programs that are lowered and compiled before they are called."""
    compiled = gradient.lower(w, x).compile()
    value, g = compiled(w, x)
    # The second one is compiled for what the compiler chooses, and that is given to it.
    squares = jax.jit(lambda x: (x * x).sum(0)).lower(jax.ShapeDtypeStruct(g.shape, g.dtype))
    again = momentum.lower(w, m, g).compile()
    return value, squares.compile()(g), again(w, m, g)


@captured
def mapped(w, m, x):
    """A shard_map outside of every jit: its ops run one by one, each over the mesh."""

    def part(x):
        hidden = jnp.sin(x) * 2
        whole = jax.lax.all_gather(hidden, "model", axis=0, tiled=True)
        return jax.lax.psum(whole.sum(0), "data")

    g = gradient(w, x)[1]
    sums = jax.shard_map(part, in_specs=P("data", "model"), out_specs=P(), check_vma=False)(x)
    return momentum(w, m, g), sums


STEPS = (
    "zero1", "reads", "accumulates", "resharded", "eager", "outside", "of_an_object", "scanned",
    "ahead", "mapped",
)  # fmt: skip
