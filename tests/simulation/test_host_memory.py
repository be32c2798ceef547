"""What is kept in the host's memory takes none of the device's, and is copied over its own link."""

from __future__ import annotations

import json
from dataclasses import replace

import jax
import jax.numpy as jnp
import pytest
from jax.ad_checkpoint import checkpoint_name
from jax.sharding import NamedSharding, PartitionSpec

import flint
from flint.converters.chakra.check.checker import check
from flint.converters.chakra.read.reader import read_trace
from flint.converters.chakra.schema import NodeType
from flint.cost.simplified import without
from flint.cost.systems import load_system
from flint.errors import FlintError
from flint.simulation.recording import record

LAYERS, TOKENS, WIDTH, HIDDEN, RANKS = 4, 64, 256, 1024, 4
#: What a layer keeps on one rank: TOKENS / RANKS rows of HIDDEN numbers of 4 bytes.
ROW = TOKENS // RANKS * HIDDEN * 4


def step_of(offloads: bool):
    """Gradients of layers that keep their hidden values, on the device or on the host."""
    names = {"names_which_can_be_saved": [], "names_which_can_be_offloaded": ["hidden"]}
    policy = (
        jax.checkpoint_policies.save_and_offload_only_these_names(
            **names, offload_src="device", offload_dst="pinned_host"
        )
        if offloads
        else jax.checkpoint_policies.save_only_these_names("hidden")
    )

    def layer(x, w):
        hidden = checkpoint_name(jnp.tanh(x @ w), "hidden")
        return jnp.sin(hidden @ w.T)

    def loss(weights, x):
        kept = jax.checkpoint(layer, policy=policy)
        x, _ = jax.lax.scan(lambda x, w: (kept(x, w), None), x, weights)
        return jnp.sum(x)

    def setup(mesh):
        def array(shape, *split):
            placed = NamedSharding(mesh, PartitionSpec(*split))
            return jax.ShapeDtypeStruct(shape, jnp.float32, sharding=placed)

        return array((LAYERS, WIDTH, HIDDEN)), array((TOKENS, WIDTH), "data")

    return flint.capture(jax.jit(jax.grad(loss)), mesh=(RANKS,), axes=("data",), setup=setup)


@pytest.fixture(scope="module")
def offloaded():
    return step_of(True).capture()


def copies(result):
    return {
        row.name: row
        for row in result.programs[0].classes
        if row.name in ("device to host", "host to device")
    }


def test_the_device_does_not_hold_what_the_host_keeps(offloaded) -> None:
    """The rows of all layers, less the one that is on its way."""
    kept = step_of(False).capture()
    saved = kept.simulate("dgx-h100").peak_memory_bytes
    assert saved - offloaded.simulate("dgx-h100").peak_memory_bytes == pytest.approx(
        LAYERS * ROW, abs=ROW
    )


def test_copies_use_the_hosts_link_while_kernels_run(offloaded) -> None:
    system = without(load_system("dgx-h100"), ("contention",))
    accelerator = system.accelerator
    found = copies(offloaded.simulate(system))
    assert {name: row.count for name, row in found.items()} == {
        "device to host": LAYERS, "host to device": LAYERS,
    }  # fmt: skip
    launch = accelerator.kernel.latency + accelerator.launch_overhead
    for row in found.values():
        assert row.bytes == LAYERS * ROW
        assert row.seconds == pytest.approx(LAYERS * (ROW / 64e9 + launch))
    slow = replace(system, accelerator=replace(accelerator, host_bandwidth=1e9))
    late = offloaded.simulate(slow)
    assert late.compute_seconds == offloaded.simulate(system).compute_seconds
    # A backward iteration waits for what it takes back.
    assert late.step_seconds > LAYERS * ROW / 1e9


def test_copies_of_one_direction_go_one_after_another(offloaded) -> None:
    slow = load_system("dgx-h100")
    slow = replace(slow, accelerator=replace(slow.accelerator, host_bandwidth=1e9))
    (rank,) = record(offloaded, slow).ranks
    for kind in (NodeType.MEM_STORE, NodeType.MEM_LOAD):
        some = rank.type == kind
        assert some.sum() == LAYERS
        assert (rank.start[some][1:] >= rank.end[some][:-1]).all()


def test_what_only_the_host_does_costs_the_device_nothing(offloaded) -> None:
    """The forward loop stores rows in the host's buffer: no kernel moves them."""
    kept = step_of(False).capture()
    moved = [
        sum(r.bytes for r in w.simulate("dgx-h100").programs[0].classes if r.name == "movement")
        for w in (offloaded, kept)
    ]
    assert moved[0] < moved[1]


def test_optimizer_state_on_the_host_is_not_an_input_of_the_device() -> None:
    def setup(mesh):
        split = PartitionSpec("data", None)
        there = NamedSharding(mesh, split, memory_kind="pinned_host")
        here = NamedSharding(mesh, split)
        weight = jax.ShapeDtypeStruct((1024, 1024), jnp.float32, sharding=here)
        state = {"weight": weight, "moment": weight.update(sharding=there)}
        return state, jax.ShapeDtypeStruct((64, 1024), jnp.float32, sharding=here)

    def step(state, x):
        gradient = jax.grad(lambda w: jnp.sum(jnp.tanh(x @ w)))(state["weight"])
        moment = jax.device_put(state["moment"], jax.memory.Space.Device)
        moment = 0.9 * moment + gradient
        there = jax.device_put(moment, jax.memory.Space.Host)
        return {"weight": state["weight"] - 0.1 * moment, "moment": there}

    made = flint.capture(jax.jit(step, donate_argnums=0), mesh=(4,), axes=("data",), setup=setup)
    result = made.capture().simulate("dgx-h100")
    shard = 1024 * 1024 * 4 // 4
    memory = dict(result.programs[0].memory)
    temporaries = memory.pop("temporaries")
    assert sum(memory.values()) == shard + 64 * 1024 * 4 // 4
    assert temporaries
    assert {name: row.bytes for name, row in copies(result).items()} == {
        "device to host": shard, "host to device": shard,
    }  # fmt: skip


def test_a_system_that_states_no_link_to_the_host_is_refused(offloaded) -> None:
    system = load_system("dgx-h100")
    system = replace(system, accelerator=replace(system.accelerator, host_bandwidth=0.0))
    with pytest.raises(FlintError, match=r"states no host_bandwidth.*add it to its description"):
        offloaded.simulate(system)


def test_traces_have_copies_as_accesses_of_remote_memory(offloaded, tmp_path) -> None:
    offloaded.save(tmp_path / "out", system="dgx-h100")
    trace = read_trace(tmp_path / "out/et/trace.0.et")
    for kind in (NodeType.MEM_STORE, NodeType.MEM_LOAD):
        assert trace.tensor_size[trace.type == kind].tolist() == [ROW] * LAYERS
    memory = json.loads((tmp_path / "out/astra-sim/remote_memory.json").read_text())
    assert memory["memory-type"] == "PER_NPU_MEMORY_EXPANSION"
    assert memory["remote-mem-bw"] == 64
    assert not check(tmp_path / "out").findings


def test_copies_to_a_memory_that_the_settings_deny_are_an_error(offloaded, tmp_path) -> None:
    """ASTRA-sim exits at the first one (AnalyticalRemoteMemory.cc)."""
    offloaded.save(tmp_path / "out", system="dgx-h100")
    path = tmp_path / "out/astra-sim/remote_memory.json"
    path.write_text('{"memory-type": "NO_MEMORY_EXPANSION"}')
    report = check(tmp_path / "out")
    assert not report.ok
    # On each of the ranks, a copy out and one back for each layer.
    assert report.counts["remote-memory"] == 2 * LAYERS * report.ranks
    assert any("says NO_MEMORY_EXPANSION" in finding.message for finding in report.findings)
