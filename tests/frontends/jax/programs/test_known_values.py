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


def over_devices(function, into, out):
    """A function of the parts that 4 x 2 devices have; the machine has one device."""
    mesh = AbstractMesh((4, 2), ("x", "y"), axis_types=(AxisType.Auto,) * 2)
    return jax.shard_map(function, mesh=mesh, in_specs=into, out_specs=out)


def test_keys_that_devices_split_are_known():
    def split(key):
        own = jax.random.fold_in(key, jax.lax.axis_index("x"))
        return jax.random.split(own)[None]

    key = jax.random.PRNGKey(3)
    found = KnownResults().of(program(over_devices(split, P(), P("x")), key), [key])
    apart = [jax.random.split(jax.random.fold_in(key, number)) for number in range(4)]
    np.testing.assert_array_equal(found[0], np.stack(apart))


def test_counts_that_devices_exchange_are_known():
    def exchanged(counts, whole):
        right = [(number, (number + 1) % 4) for number in range(4)]
        return (
            jax.lax.psum(counts, "x"),
            jax.lax.all_gather(counts, "y", tiled=True),
            jax.lax.ppermute(counts, "x", right),
            jax.lax.pmax(counts, ("x", "y")),
            jax.lax.psum(whole + 1, "x"),
        )

    counts = jnp.asarray([3, 1, 4, 1, 5, 9, 2, 6])
    both = P(("x", "y"))
    mapped = over_devices(exchanged, (both, P()), (P("y"), both, both, P(), P()))
    whole = jnp.int32(6)
    found = KnownResults().of(program(mapped, counts, whole), [counts, whole])
    table = np.asarray(counts).reshape(4, 2)  # devices along x and y
    np.testing.assert_array_equal(found[0], table.sum(0))
    np.testing.assert_array_equal(found[1], np.repeat(table, 2, 0).ravel())
    np.testing.assert_array_equal(found[2], np.roll(table, 1, 0).ravel())
    assert found[3].tolist() == [9]
    assert int(found[4]) == 4 * 7


def test_parts_of_a_table_are_joined_in_the_order_of_its_dims():
    def counted(table):
        return table + jax.lax.axis_index("x"), table * jax.lax.axis_index("y")

    table = jnp.arange(4 * 8 * 3).reshape(4, 8, 3)
    own = P("y", "x")
    found = KnownResults().of(program(over_devices(counted, own, (own, own)), table), [table])
    x, y = np.arange(8) // 2, np.arange(4) // 2
    np.testing.assert_array_equal(found[0], np.asarray(table) + x[None, :, None])
    np.testing.assert_array_equal(found[1], np.asarray(table) * y[:, None, None])
