"""Small programs whose partitioned modules hold what real ones hold, on a 4 x 2 mesh of 8 devices.

Each entry of ``PROGRAMS`` makes (function, abstract arguments).
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import AbstractMesh, AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

MESH = AbstractMesh((4, 2), ("data", "model"), axis_types=(AxisType.Auto,) * 2)
PROGRAMS: dict[str, Any] = {}


def program(make: Any) -> Any:
    PROGRAMS[make.__name__] = make
    return make


def array(shape: tuple[int, ...], *spec: Any, dtype: Any = jnp.float32) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(MESH, P(*spec)))


@program
def scan_training() -> Any:
    def loss(w: Any, x: Any) -> Any:
        def layer(h: Any, p: Any) -> Any:
            return jax.nn.relu(h @ p), None

        return jnp.sum(lax.scan(layer, x, w)[0].astype(jnp.float32))

    def step(w: Any, x: Any) -> Any:
        return w - 0.5 * jax.grad(loss)(w, x)

    bf16 = jnp.bfloat16
    return step, (
        array((3, 64, 64), None, "data", "model", dtype=bf16),
        array((16, 64), "data", None, dtype=bf16),
    )


@program
def conditionals() -> Any:
    def f(p: Any, x: Any) -> Any:
        y = lax.cond(p > 0, lambda x: jnp.sin(x) @ x.T, lambda x: x @ jnp.cos(x).T, x)
        return lax.switch(p, [jnp.exp, jnp.log, lambda y: y.sum() + y], y)

    return f, (array((), dtype=jnp.int32), array((16, 64), "data", "model"))


@program
def collectives() -> Any:
    def body(x: Any) -> Any:
        a = lax.psum(x, "model")
        b = lax.all_gather(x, "data", axis=1, tiled=True)
        c = lax.psum_scatter(x, "model", scatter_dimension=0, tiled=True)
        d = lax.all_to_all(x, "data", 1, 0, tiled=True)
        e = lax.ppermute(x, "data", [(i, (i + 1) % 4) for i in range(4)])
        g = lax.pmax(x, ("data", "model"))
        return a.sum() + b.sum() + c.sum() + d.sum() + e.sum() + g.sum() + lax.axis_index("data")

    def f(x: Any) -> Any:
        return jax.shard_map(
            body, mesh=MESH, in_specs=P("data", "model"), out_specs=P(), check_vma=False
        )(x)

    return f, (array((32, 64), "data", "model"),)


@program
def ring_loop() -> Any:
    def ring(q: Any, k: Any) -> Any:
        def hop(carry: Any, _: Any) -> Any:
            k, acc = carry
            acc = acc + jnp.einsum("qd,kd->qk", q, k)
            return (lax.ppermute(k, "data", [(i, (i + 1) % 4) for i in range(4)]), acc), None

        start = jnp.zeros((q.shape[0], k.shape[0]), q.dtype)
        return lax.scan(hop, (k, start), None, length=4)[0][1]

    def f(q: Any, k: Any) -> Any:
        spec = P("data", None)
        return jax.shard_map(
            ring, mesh=MESH, in_specs=(spec, spec), out_specs=spec, check_vma=False
        )(q, k)

    return f, (array((32, 16), "data", None), array((32, 16), "data", None))


@program
def convolutions() -> Any:
    def f(w: Any, x: Any) -> Any:
        def loss(w: Any) -> Any:
            numbers = ("NHWC", "HWIO", "NHWC")
            h = lax.conv_general_dilated(x, w, (2, 2), "SAME", dimension_numbers=numbers)
            h = lax.reduce_window(h, -jnp.inf, lax.max, (1, 3, 3, 1), (1, 2, 2, 1), "SAME")
            return jnp.sum(h)

        return jax.grad(loss)(w)

    return f, (
        array((5, 5, 3, 8), None, None, None, "model"),
        array((8, 16, 16, 3), "data", None, None, None),
    )


@program
def halo_convolution() -> Any:
    def f(w: Any, x: Any) -> Any:
        numbers = ("NHWC", "HWIO", "NHWC")
        return lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=numbers)

    return f, (
        array((3, 3, 4, 8), None, None, None, None),
        array((8, 16, 16, 4), None, "data", "model", None),
    )


@program
def embedding_gradient() -> Any:
    def f(e: Any, t: Any) -> Any:
        return jax.grad(lambda e: jnp.sum(e[t] ** 2))(e)

    return f, (
        array((128, 32), "model", "data"),
        array((8, 16), "data", None, dtype=jnp.int32),
    )


@program
def sorting_and_variadic_reduction() -> Any:
    def f(x: Any) -> Any:
        return jnp.sort(x, -1), lax.top_k(x, 4), jnp.argmax(x, -1), jnp.cumsum(x, 0)

    return f, (array((16, 64), "data", "model"),)


@program
def uneven_concatenation() -> Any:
    def f(x: Any) -> Any:
        y = jnp.concatenate([x, x[:3]], 0)
        return lax.with_sharding_constraint(y, NamedSharding(MESH, P("data", None))).sum(0)

    return f, (array((16, 64), "data", "model"),)


@program
def dynamic_loop() -> Any:
    def f(x: Any) -> Any:
        return lax.while_loop(
            lambda c: jnp.sum(c[0]) > 1e-3, lambda c: (c[0] * 0.5, c[1] + 1), (x, 0)
        )

    return f, (array((16, 64), "data", "model"),)


@program
def linear_algebra_and_fft() -> Any:
    def f(a: Any, b: Any) -> Any:
        factor = lax.linalg.cholesky(a @ a.T + jnp.eye(16))
        solved = lax.linalg.triangular_solve(factor, b, left_side=True, lower=True)
        return jnp.fft.rfft(solved), jnp.flip(b, 1), jnp.pad(b, ((1, 2), (0, 0)))

    return f, (array((16, 16), None, None), array((16, 32), None, None))


@program
def elementwise_zoo() -> Any:
    def f(x: Any, i: Any) -> Any:
        unary = (jnp.abs, jnp.cbrt, jnp.ceil, jnp.cos, jnp.exp, jnp.expm1, jnp.floor, jnp.isfinite)
        more = (jnp.log, jnp.log1p, jnp.negative, lax.round, lax.rsqrt, jnp.sign, jnp.sin, jnp.sqrt)
        others = (jnp.tan, jnp.tanh, lax.logistic, lax.erf, jnp.arcsinh, jnp.sinh)
        y = sum(op(x).astype(jnp.float32) for op in unary + more + others)
        j = lax.clz(i) | lax.population_count(i) & ~i ^ (i << 2) + (i >> 1) % 7
        j = j + lax.shift_right_logical(i, 3 * jnp.ones_like(i))
        z = lax.complex(x, y)
        y = y + jnp.real(z) * jnp.imag(z) + jnp.arctan2(x, y) + jnp.power(jnp.abs(x), y)
        y = y + lax.reduce_precision(x, 5, 10) + jnp.clip(x, 0.0, 1.0)
        return jnp.where(x > y, x, y), j, lax.bitcast_convert_type(x, jnp.int32)

    return f, (array((16, 64), "data", "model"), array((16, 64), "data", "model", dtype=jnp.int32))
