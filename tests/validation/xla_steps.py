"""Steps that XLA's CPU backend runs in another form than captured, each with one that differs.

A ``_changed`` step is the same but for one thing (sizes, what a loop carries), so that its capture
must not agree with a run of the other.

Longer than 300 lines because it is one list of steps, each beside one that differs.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import flint

EIGHT = [(i, (i + 1) % 8) for i in range(8)]


def placed(mesh, shape, *spec, dtype=jnp.float32):
    return jax.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(mesh, P(*spec)))


def mapped(function, in_specs):
    return lambda *args: jax.shard_map(
        function, in_specs=in_specs, out_specs=P("d"), check_vma=False
    )(*args)


def step(function, *shapes, mesh=(8,), axes=("d",)):
    """A step on arguments of (shape, dims' axes)."""
    return flint.capture(
        mesh=mesh, axes=axes, framework="jax",
        setup=lambda on: tuple(placed(on, shape, *spec) for shape, spec in shapes),
    )(function)  # fmt: skip


def products(length):
    """A product of vectors, many of them, an outer product, one in a loop, and a plain one."""

    def run(a, b, w):
        single = jnp.vdot(a[0, :length], b[0, :length])
        many = jnp.einsum("bk,bk->b", a, b)
        outer = jnp.einsum("i,bj->bij", w[0, : length // 2], b)
        mapped = lax.map(lambda row: row @ b[1], a)
        return single, many.sum(), outer, mapped, w @ w

    return step(run, ((16, 64), ()), ((16, 64), ()), ((32, 32), ()))


vectors, vectors_changed = products(64), products(62)


def with_number(w, v, x):
    """A loss whose gradient multiplies a vector by a constant number."""

    def loss(w, v):
        score = jnp.tanh(x @ w) @ v
        return jnp.vdot(score, score)

    return jax.grad(loss, argnums=(0, 1))(w, v)


number = step(with_number, ((64, 32), ()), ((32,), ()), ((16, 64), ("d",)))


def small(dtype):
    """Collectives on numbers of 8 bits and less."""

    def one(x):
        q = x.astype(dtype)
        found = [
            lax.all_gather(q, "d"), lax.ppermute(q, "d", EIGHT), lax.all_to_all(q, "d", 0, 0)
        ]  # fmt: skip
        first, *others = (part.astype(jnp.float32) for part in found)
        return x + first.sum(0) + sum(others)

    return step(mapped(one, P("d")), ((64, 64), ("d",)))


float8_e5m2, float8_e4m3fn, float16, int4, int8 = map(
    small, (jnp.float8_e5m2, jnp.float8_e4m3fn, jnp.float16, jnp.int4, jnp.int8)
)


def narrow(first, second, result):
    """A product of two types, and the same sizes in float32 on another line."""

    def run(x, y):
        wide = x @ y
        return wide, lax.dot_general(
            x.astype(first), y.astype(second), (((1,), (0,)), ((), ())),
            preferred_element_type=result,
        )  # fmt: skip

    return step(run, ((16, 64), ()), ((64, 32), ()))


half = narrow(jnp.float16, jnp.float16, jnp.float16)
eighths = narrow(jnp.float8_e4m3fn, jnp.float8_e5m2, jnp.bfloat16)
full = narrow(jnp.float32, jnp.float32, jnp.float32)


def on_constants(changing):
    """Sums of ones over all devices, or of what they have."""

    def one(x):
        given = x if changing else jnp.ones_like(x)
        return lax.psum(x * 2, "d") @ x.T @ lax.psum(given, "d") @ x.T @ x

    return step(mapped(one, P("d")), ((64, 64), ("d",)))


constants, constants_changed = on_constants(False), on_constants(True)


def outer(weighted):
    """A gradient that is an outer product: of a repeated number, or of weights."""

    def run(w, v, x, u):
        def loss(w):
            scores = jnp.tanh(x @ w) @ v
            return jnp.vdot(u, scores) if weighted else jnp.mean(scores)

        return jax.grad(loss)(w)

    return step(run, ((64, 32), ()), ((32,), ()), ((16, 64), ()), ((16,), ()))


mean, weighted = outer(False), outer(True)


def gram(whole):
    """Products of vectors with each other, whose gradient is two products of the same values."""

    def run(w, x):
        def loss(w):
            z = jnp.tanh(x @ w)
            other = z if whole else lax.stop_gradient(z)
            return jnp.mean(jnp.sin(jnp.einsum("bid,bjd->bij", z, other)))

        return jax.grad(loss)(w)

    return step(run, ((16, 24), ()), ((16, 8, 16), ("d",)))


both_gradients, one_gradient = gram(True), gram(False)


def typed(dtype):
    """The same step on arguments of an element type."""

    def setup(mesh):
        return tuple(
            placed(mesh, shape, *spec, dtype=dtype)
            for shape, spec in (((64, 32), (None, "d")), ((16, 64), ("d",)))
        )

    def run(w, x):
        return lax.with_sharding_constraint(jnp.tanh(x @ w), P()) @ w.T

    return flint.capture(mesh=(8,), axes=("d",), framework="jax", setup=setup)(run)


in_bfloat16, in_float32 = typed(jnp.bfloat16), typed(jnp.float32)


def half_narrow():
    """``half``, but that one operand is rounded only and the other one never was narrow."""

    def run(x, y):
        wide = x @ y
        return wide, x.astype(jnp.float16).astype(jnp.float32) @ y

    return step(run, ((16, 64), ()), ((64, 32), ()))


one_half = half_narrow()


def carrying(narrow):
    """A value that begins narrow and is wide in a loop, multiplied as it is or narrow again."""

    def run(x, w):
        def body(_, s):
            if narrow:
                s = (s.astype(jnp.float16) @ w.astype(jnp.float16)).astype(jnp.float32)
            else:
                s = s @ w
            return jnp.sin(s)

        found = lax.fori_loop(0, 4, body, x.astype(jnp.float16).astype(jnp.float32))
        return found, x @ w @ w

    return step(run, ((16, 64), ()), ((64, 64), ()))


carried_narrow, carried_wide = carrying(True), carrying(False)


def split(batch):
    """A product of 16 x 64 numbers in so many vectors."""

    def run(a, b, w):
        a, b = a.reshape(batch, -1), b.reshape(batch, -1)
        return jnp.einsum("bk,bk->b", a, b), w @ w

    return step(run, ((16, 64), ()), ((16, 64), ()), ((32, 32), ()))


sixteen_vectors, four_vectors, one_vector = map(split, (16, 4, 1))


def by_number(rows):
    """A product with a number that nobody knows before the run, or none."""

    def run(a, b, w):
        number, some = b[0, 0].reshape(1, 1), a[:rows].reshape(-1, 1)
        return (some @ number if rows else a), w @ w

    return step(run, ((16, 64), ()), ((16, 64), ()), ((32, 32), ()))


given_number, no_number = by_number(16), by_number(0)


def on_one_line(first):
    """Two sums of a line, of which the first or the second one is of ones."""

    def one(x):
        a, b = (jnp.ones_like(x), x * 2) if first else (x * 2, jnp.ones_like(x))
        r, s = lax.psum(a, "d"), lax.psum(b, "d")
        return x @ r.T @ s

    return step(mapped(one, P("d")), ((64, 64), ("d",)))


constant_first, constant_second = on_one_line(True), on_one_line(False)


def both_widths():
    """Products of a bfloat16 value as it is and in float32, of the same sizes on one line."""

    def setup(mesh):
        return placed(mesh, (16, 64)), placed(mesh, (64, 32), dtype=jnp.bfloat16)

    def run(x, y):
        return x.astype(jnp.bfloat16) @ y, jnp.sin(x) @ y.astype(jnp.float32)

    return flint.capture(mesh=(8,), axes=("d",), framework="jax", setup=setup)(run)


two_widths = both_widths()


def beside(width):
    """A product, and a tensor of some width that is only added to."""

    def run(x, y):
        return x @ x.T, y + 1

    return step(run, ((64, 64), ()), ((32, width), ("d",)))


wide_beside, narrow_beside = beside(16), beside(8)


def reducing(reduce):
    """One all-reduce, by this reduction."""
    return step(mapped(lambda x: reduce(x @ x.T, "d") @ x, P("d")), ((64, 64), ("d",)))


by_sum, by_maximum = reducing(lax.psum), reducing(lax.pmax)

#: All-reduces on one line of as many bytes, of two types and by two reductions.
four_sums = step(
    mapped(
        lambda x: (
            lax.psum(x, "d") * lax.psum((x * 9).astype(jnp.int32), "d") * lax.psum(x * 2, "d")
            * lax.pmax(x * 4, "d")
        ),
        P("d"),
    ),
    ((64, 64), ("d",)),
)  # fmt: skip


def in_groups(groups):
    """A ragged product of 32 rows in so many groups of equal size, and its gradients."""

    def run(x, w):
        sizes = jnp.full(groups, 32 // groups, jnp.int32)

        def loss(x, w):
            return jnp.sum(lax.ragged_dot(x, w[:groups], sizes) ** 2)

        return jax.grad(loss, argnums=(0, 1))(x, w)

    return step(run, ((32, 16), ()), ((8, 16, 24), ()))


four_groups, eight_groups = in_groups(4), in_groups(8)
