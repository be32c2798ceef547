"""Updates of a cache: what they move and what is copied, as in XLA's programs for the CPU.

The cache is [4, 8, 256, 64] of float32, 2 MiB; what is written is one position, [4, 8, 1, 64].
XLA's copies of the whole cache are counted in the compiled programs; what straight-line programs
move is what XLA's cost analysis says of them; whether a buffer is used again is seen by running.
"""

from __future__ import annotations

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import flint
from flint.passes import apply
from tests.support.shared import quick

B, H, T, D, STEPS = 4, 8, 256, 64, 8
CACHE, ROW, INDEX = B * H * T * D * 4, B * H * D * 4, 4
SHAPE = f"f32[{B},{H},{T},{D}]"
F32 = jnp.float32
_cache = jax.ShapeDtypeStruct((B, H, T, D), F32)
_key = jax.ShapeDtypeStruct((B, H, 1, D), F32)
_keys = jax.ShapeDtypeStruct((STEPS, B, H, 1, D), F32)
_at = jax.ShapeDtypeStruct((), jnp.int32)


def write(cache, key, at):
    return jax.lax.dynamic_update_slice(cache, key, (0, 0, at, 0))


def twice(cache, key, at):
    return write(write(cache, key, at), key, at + 1)


def and_new(cache, key, at):
    new = write(cache, key, at)
    return new, jnp.sum(new)


def and_old(cache, key, at):
    return write(cache, key, at), jnp.sum(cache)


def chosen(cache, key, at):
    return jax.lax.cond(at > 3, lambda c: write(c, key, at), lambda c: c, cache)


def scanned(cache, keys, at):
    def body(cache, both):
        return write(cache, *both), None

    return jax.lax.scan(body, cache, (keys, at + jnp.arange(STEPS, dtype=jnp.int32)))[0]


def counted(cache, keys, at):
    return jax.lax.fori_loop(0, STEPS, lambda i, cache: write(cache, keys[i], i + at), cache)


def nested(cache, keys, at):
    return jax.lax.fori_loop(0, 3, lambda i, cache: counted(cache, keys, at + i), cache)


def from_zeros(keys, at):
    return scanned(jnp.zeros((B, H, T, D), F32), keys, at)


def computed(cache, keys, at):
    return scanned(cache * 2, keys, at)


def scattered(cache, keys, at):
    where = at + jnp.arange(B, dtype=jnp.int32)
    return jax.lax.fori_loop(
        0, STEPS, lambda i, c: c.at[jnp.arange(B), :, where + i].add(keys[i, :, :, 0]), cache
    )


#: Straight-line programs (with what comes before the cache) and whether the cache is donated.
STRAIGHT = {
    "donated": (write, True),
    "kept": (write, False),
    "twice": (twice, True),
    "twice, kept": (twice, False),
    "the new one is read": (and_new, True),
    "the old one is read, kept": (and_old, False),
    "in a branch": (chosen, True),
    "in a branch, kept": (chosen, False),
}
LOOPS = {
    "scan": (scanned, True),
    "scan, kept": (scanned, False),
    "fori_loop": (counted, True),
    "fori_loop, kept": (counted, False),
    "loop in a loop": (nested, True),
    "loop in a loop, kept": (nested, False),
    "of zeros": (from_zeros, False),
    "of what is computed": (computed, True),
    "scatter": (scattered, True),
    "scatter, kept": (scattered, False),
}


def both(function, donated, first=_key):
    """The kernels that we have of a program, each with how often it runs, and XLA's program."""
    arguments = (first, _at) if function is from_zeros else (_cache, first, _at)
    jitted = jax.jit(function, donate_argnums=(0,) if donated else ())
    workload = flint.capture(jitted, mesh=(2,), axes=("x",), setup=lambda mesh: arguments).capture()
    graph = apply(workload.programs[0].graph, "kernel")
    return list(graph.walk()), jitted.lower(*arguments).compile()


def copied(compiled):
    """How often XLA copies the cache, whether inside of loops or not."""
    return len(re.findall(rf"= {re.escape(SHAPE)}\S* copy\(", compiled.as_text()))


def totals(blocks):
    return sum(
        times * int((graph.bytes_read + graph.bytes_written).sum()) for graph, times in blocks
    )


@pytest.mark.parametrize("name", quick(STRAIGHT, "donated", "twice, kept", "in a branch"))
def test_a_program_moves_what_xla_says(name):
    """To the byte but for scalars: ours know each as it is used, XLA's as its fusions pass it."""
    blocks, compiled = both(*STRAIGHT[name])
    accessed = compiled.cost_analysis()["bytes accessed"]
    assert totals(blocks) == pytest.approx(accessed, abs=10 * INDEX)


@pytest.mark.parametrize(
    "name", quick([*STRAIGHT, *LOOPS], "donated", "in a branch, kept", "scan", "of zeros")
)
def test_a_cache_that_lives_on_is_copied_as_often_as_xla_copies_it(name):
    function, donated = (STRAIGHT | LOOPS)[name]
    blocks, compiled = both(function, donated, _keys if name in LOOPS else _key)
    ours = [
        (node.work.read, node.work.written, times)
        for graph, times in blocks
        for node in graph
        if node.op == "copy"
    ]
    assert ours == [(CACHE, CACHE, 1)] * copied(compiled)
    assert copied(compiled) == (not donated and function is not from_zeros)


@pytest.mark.parametrize(
    "name",
    quick(
        ["scan", "scan, kept", "fori_loop", "loop in a loop", "of zeros"],
        "scan, kept",
        "loop in a loop",
    ),
)
def test_an_iteration_writes_one_position(name):
    """It reads the new row (which lies in all of them) and two indices at most."""
    blocks, _ = both(*LOOPS[name], _keys)
    updates = [
        (node.work, times)
        for graph, times in blocks
        for node in graph
        if node.op == "dynamic_update_slice"
    ]
    [(work, times)] = updates
    assert (work.written, work.aliased) == (ROW, CACHE - ROW)
    assert ROW <= work.read <= ROW + 2 * INDEX
    assert times == STEPS * (3 if "loop in" in name else 1)


@pytest.mark.parametrize("function", [write, and_new, counted])
@pytest.mark.parametrize("donated", [True, False])
def test_a_donated_cache_is_used_again_when_it_runs(function, donated):
    cache = jnp.zeros((B, H, T, D), F32)
    first = jnp.ones((STEPS, B, H, 1, D) if function is counted else (B, H, 1, D), F32)
    place = cache.unsafe_buffer_pointer()
    jitted = jax.jit(function, donate_argnums=(0,) if donated else ())
    new = jax.tree.leaves(jitted(cache, first, np.int32(5)))[0]
    assert (new.unsafe_buffer_pointer() == place) is donated


def test_readers_of_the_old_contents_come_first():
    """A schedule that lets the sum come first needs no copy.

    XLA for the CPU, which copies before it schedules, has two.
    """
    blocks, _ = both(and_old, True)
    [(graph, _)] = blocks
    assert [node.op for node in graph] == ["reduce", "dynamic_update_slice"]
    [update] = [node for node in graph if node.op == "dynamic_update_slice"]
    assert update.work.written == ROW
    assert [node.op for node in update.inputs] == ["reduce"]


@pytest.mark.parametrize("donated", [True, False])
def test_a_copy_takes_time_and_memory(donated):
    arguments = (_cache, _key, _at)
    jitted = jax.jit(write, donate_argnums=(0,) if donated else ())
    workload = flint.capture(jitted, mesh=(1,), axes=("x",), setup=lambda mesh: arguments).capture()
    result = workload.simulate("dgx-h100")
    moved = sum(row.bytes for row in result.programs[0].classes)
    copy = 0 if donated else 2 * CACHE
    assert moved == 2 * ROW + INDEX + copy
    assert result.figures.peak_memory_bytes == CACHE + ROW + INDEX + copy // 2


@pytest.mark.parametrize("donated", [True, False])
def test_a_saved_program_says_the_same(donated, tmp_path):
    """Both forms of the module in a workload's folder say what is donated."""
    arguments = (_cache, _keys, _at)
    jitted = jax.jit(scanned, donate_argnums=(0,) if donated else ())
    workload = flint.capture(jitted, mesh=(2,), axes=("x",), setup=lambda mesh: arguments).capture()
    workload.save(tmp_path)
    files = [tmp_path / "programs" / f"main{suffix}" for suffix in (".hlo.pb", ".mlir")]
    for found in (workload, *map(flint.convert, files)):
        [program] = found.programs
        assert [item.donated for item in program.inputs] == [0 if donated else -1, -1, -1]
        copies = [node.op for node in program.graph].count("copy")
        assert copies == (not donated)
        assert totals(program.graph.walk()) == totals(workload.programs[0].graph.walk())


def test_a_lookup_reads_what_it_takes():
    def take(cache, where):
        return cache[:, :, where]

    where = jax.ShapeDtypeStruct((3,), jnp.int32)
    capture = flint.capture(jax.jit(take), mesh=(1,), axes=("x",), setup=lambda m: (_cache, where))
    [program] = capture.capture().programs
    [gather] = [node for node in apply(program.graph, "kernel") if node.op == "gather"]
    assert (gather.work.read, gather.work.written) == (3 * ROW + 3 * INDEX, 3 * ROW)
