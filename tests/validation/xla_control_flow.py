"""Steps with loops and conditionals: XLA's CPU backend moves parts out, or runs one branch."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import PartitionSpec as P

from tests.validation.xla_steps import mapped, step


def accumulated(carried):
    """Gradients of four batches with sharded weights, which change between batches if carried."""

    def train(w, v, batches):
        def loss(w, v, batch):
            return jnp.mean((jax.nn.relu(batch @ w) @ v) ** 2)

        def body(state, batch):
            at, *sums = state
            grads = jax.grad(loss, argnums=(0, 1))(at, v, batch)
            after = at - 0.1 * grads[0] if carried else at
            return (after, *map(jnp.add, sums, grads)), None

        zeros = jnp.zeros_like(w), jnp.zeros_like(v)
        (_, *sums), _ = lax.scan(body, (w, *zeros), batches)
        return sums

    spec = ((64, 128), ("data", "model")), ((128, 64), ("model", "data"))
    return step(train, *spec, ((4, 32, 64), (None, "data")), mesh=(4, 2), axes=("data", "model"))


accumulation, accumulation_changed = accumulated(False), accumulated(True)


def nested(changing):
    """An all-reduce and a product in two nested loops, the same each time or not."""

    def one(x, w, v):
        def inner(_, state):
            x, u = state
            return jnp.tanh(x @ (w @ w)) @ lax.psum(u, "d"), u

        def outer(i, state):
            x, u = state
            x, _ = lax.fori_loop(0, 3, inner, (x, u))
            return x, u * (i + 1.0) if changing else u

        return lax.fori_loop(0, 5, outer, (x, v[0]))[0]

    shapes = ((16, 64), ("d",)), ((64, 64), ()), ((8, 64, 64), ("d",))
    return step(mapped(one, (P("d"), P(), P("d"))), *shapes)


loops, loops_changed = nested(False), nested(True)


def deciding(width):
    """Four iterations in which data decides: two of the dear branch, two of the other one."""

    def run(w, v, x):
        def dear(c):
            return jnp.tanh((c @ w) @ v @ w[:, :width] @ v[:width])

        def cheap(c):
            return jnp.tanh((c @ w[:, : width // 2]) @ v[: width // 2])

        def body(c, i):
            return lax.cond(jnp.sum(c) * 0 + i > 1.5, dear, cheap, c), None

        return lax.scan(body, x @ x.T @ x, jnp.arange(4.0))[0]

    return step(run, ((64, 128), ()), ((128, 64), ()), ((32, 64), ("d",)))


def communicating(size):
    """One branch sums over all devices, the other one gathers; the run gathers."""

    def one(x):
        y = x @ x.T @ x

        def reduced(y):
            return lax.psum(y[:size], "d") @ y.T @ y

        def gathered(y):
            return lax.all_gather(y[:size], "d", tiled=True)[:size] @ y.T @ y

        return lax.cond(jnp.sum(y) * 0 > 1, reduced, gathered, y)

    return step(mapped(one, P("d")), ((64, 64), ("d",)))


def deciding_alone(small):
    """All products are in one of two branches, and the run takes the one of smaller products."""

    def run(p, a, b):
        return lax.cond(
            jnp.sum(p) * 0 > 1, lambda: (a @ a @ a @ a @ a).sum(), lambda: (b @ b @ b @ b @ b).sum()
        )

    return step(run, ((8,), ()), ((96, 96), ()), ((small, small), ()))


alone, alone_changed = deciding_alone(64), deciding_alone(48)
branches, branches_changed = deciding(96), deciding(80)
exchanges, exchanges_changed = communicating(8), communicating(4)


def choosing(order):
    """Three branches, of which the first has no product, in the order that data says."""

    def run(w, v, x):
        def none(c):
            return c * 0.5

        def small(c):
            return jnp.tanh(c @ w[:, :32]) @ v[:32]

        def large(c):
            return jnp.tanh(c @ w) @ v

        def body(c, i):
            choice = (jnp.sum(c) * 0).astype(jnp.int32) + i
            return lax.switch(choice, [none, small, large], c), None

        return lax.scan(body, x @ x.T @ x, jnp.array(order, jnp.int32))[0]

    return step(run, ((64, 128), ()), ((128, 64), ()), ((32, 64), ("d",)))


choices = choosing((0, 1, 2, 2, 1, 0, 0))


def repeating(times):
    """An all-reduce that leaves a loop of so many iterations."""

    def one(x, u):
        def body(_, x):
            return jnp.tanh(x + lax.psum(u[0], "d"))

        return lax.fori_loop(0, times, body, x @ x.T @ x)

    return step(mapped(one, (P("d"), P("d"))), ((64, 64), ("d",)), ((8, 8, 64), ("d",)))


four_times, six_times, one_time = map(repeating, (4, 6, 1))


def large_and_small(w, v):
    """Two of the same form whose products tell them apart."""

    def large(c):
        return jnp.tanh(c @ w[:, :96]) @ v[:96]

    def small(c):
        return jnp.tanh(c @ w[:, :32]) @ v[:32]

    return large, small


def deciding_twice(first, second):
    """Two conditionals of the same branches; data says which."""

    def run(w, v, x):
        large, small = large_and_small(w, v)
        c = x @ x.T @ x
        zero = jnp.sum(c) * 0
        for chosen in (first, second):
            c = lax.cond(zero + (1 if chosen else -1) > 0, large, small, jnp.sin(c))
        return c

    return step(run, ((64, 128), ()), ((128, 64), ()), ((32, 64), ("d",)))


twice_large, once_large, never_large = (
    deciding_twice(*chosen) for chosen in ((True, True), (True, False), (False, False))
)


def deciding_first(real):
    """Products that data decides about, or those that it would choose; then light ops by data."""

    def run(w, v, x):
        large, small = large_and_small(w, v)
        c = x @ x.T @ x
        zero = jnp.sum(c) * 0
        c = lax.cond(zero > 1, large, small, c) if real else small(c)
        return lax.cond(zero > 1, lambda c: lax.sort(jnp.sin(c)), lambda c: lax.sort(c * 2), c)

    return step(run, ((64, 128), ()), ((128, 64), ()), ((32, 64), ("d",)))


decided, undecided = deciding_first(True), deciding_first(False)
