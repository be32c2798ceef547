"""Small results that are known though the rest of a program is not run, against the program run."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AbstractMesh, AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

from flint.frontends.jax.programs.known_values import KnownResults


def program(function, *arguments):
    return jax.make_jaxpr(function)(*arguments)


def step(params, count, key):
    key, own = jax.random.split(key)
    noise = jax.random.normal(own, params.shape)
    return params @ params + noise, count + 1, key, jnp.argmax(params)


def test_counters_and_keys_are_known_where_parameters_are_not():
    params, count, key = jnp.ones((64, 64)), jnp.int32(7), jax.random.PRNGKey(3)
    found = KnownResults().of(program(step, params, count, key), [None, count, key])
    assert sorted(found) == [1, 2]
    assert int(found[1]) == 8
    np.testing.assert_array_equal(found[2], jax.jit(step)(params, count, key)[2])


def test_a_counter_of_a_scan_is_known():
    def steps(params, count):
        def body(carry, _):
            params, count = carry
            return (params * 2, count + 3), None

        return jax.lax.scan(body, (params, count), length=5)[0]

    params, count = jnp.ones((64, 64)), jnp.int32(1)
    found = KnownResults().of(program(steps, params, count), [None, count])
    assert {number: int(value) for number, value in found.items()} == {1: 16}


def test_what_fails_when_it_is_computed_is_not_known():
    def fails(count):
        return jax.pure_callback(lambda _: 1 / 0, jax.ShapeDtypeStruct((), jnp.int32), count)

    assert KnownResults().of(program(fails, jnp.int32(0)), [jnp.int32(0)]) == {}


def test_a_training_in_one_loop_is_not_run_for_the_numbers_that_it_returns():
    def trains(weights, count):
        def update(carry, _):
            weights, count = carry
            return (weights @ weights, count + jnp.argmax(weights)), None

        return jax.lax.scan(update, (weights, count), length=10**7)[0]

    given = jnp.ones((64, 64)), jnp.int32(0)
    assert KnownResults().of(program(trains, *given), list(given)) == {}


def test_a_counter_in_a_program_with_explicit_axes_is_known():
    """Ops name the mesh in their types, in their contexts and in parameters."""

    def decode(cache, lengths, count):
        written = jax.sharding.auto_axes(jnp.cumsum, out_sharding=P("x"))(lengths)
        count = (jnp.maximum(0, count) + jnp.where(jnp.max(written) > 0, 1, 0)) % 64
        return cache * 2, jax.sharding.reshard(jnp.broadcast_to(count, 8), P("x"))

    mesh = AbstractMesh((4, 2), ("x", "y"), axis_types=(AxisType.Explicit,) * 2)
    lengths, count = np.full(8, 3, np.int32), np.int32(41)
    with jax.sharding.use_abstract_mesh(mesh):
        cache = jax.ShapeDtypeStruct((64, 64), np.float32, sharding=NamedSharding(mesh, P("x")))
        rows = jax.ShapeDtypeStruct((8,), np.int32, sharding=NamedSharding(mesh, P("x")))
        traced = program(jax.jit(decode), cache, rows, count)
    found = KnownResults().of(traced, [None, lengths, count])
    assert {number: list(value) for number, value in found.items()} == {1: [42] * 8}
