"""Copies to the host's memory and back: which, how large, on which link, and what they leave."""

from __future__ import annotations

import functools
from collections import Counter

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.distributed.fsdp import CPUOffloadPolicy, fully_shard  # noqa: E402

import flint  # noqa: E402
from flint.cost.systems import load_system  # noqa: E402
from flint.graph.transfers import transfers  # noqa: E402

ROWS, WIDTH, LAYERS, RANKS = 16, 32, 3, 2
F32 = 4


def layers():
    return nn.Sequential(*[nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(LAYERS)])


def rows(mesh):
    return torch.zeros(ROWS, WIDTH, device=mesh.device_type)


def plain(mesh):
    model = layers().to(mesh.device_type)
    return model, torch.optim.AdamW(model.parameters()), rows(mesh)


def sharded(mesh):
    model, kept = layers(), CPUOffloadPolicy()
    for layer in model:
        fully_shard(layer, mesh=mesh, offload_policy=kept)
    fully_shard(model, mesh=mesh, offload_policy=kept)
    return model, torch.optim.AdamW(model.parameters()), rows(mesh)


def step(model, optimizer, x):
    model(x).square().sum().backward()
    optimizer.step()
    optimizer.zero_grad()


def saving_step(model, optimizer, x):
    with torch.autograd.graph.save_on_cpu(pin_memory=True):
        loss = model(x).square().sum()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()


def feeding_step(model, optimizer, x):
    step(model, optimizer, torch.zeros(ROWS, WIDTH).to(x.device))


@functools.cache
def captured(setup, run, **options):
    return flint.capture(
        run, mesh=(RANKS,), axes=("dp",), setup=setup, framework="torch"
    ).capture(options=options)  # fmt: skip


def copies(workload):
    """(way, elements) -> how many; -1 to the host."""
    graph = workload.graph
    ways = transfers(graph).tolist()
    return Counter(
        (way, node.operand_types[0].elements) for way, node in zip(ways, graph, strict=True) if way
    )


def test_what_autograd_saves_goes_to_the_host_and_comes_back():
    """Of a linear layer its input and, where that needs a gradient, its weight; of the square its
    operand: three inputs, two weights, one operand."""
    found = copies(captured(plain, saving_step))
    assert found == {
        (way, size): count
        for way in (-1, 1)
        for size, count in ((ROWS * WIDTH, LAYERS + 1), (WIDTH * WIDTH, LAYERS - 1))
    }


def test_they_take_the_link_of_the_host_and_none_of_the_devices_memory_traffic():
    system = load_system("dgx-h100")
    result = captured(plain, saving_step).simulate("dgx-h100")
    rows = {row.name: row for row in result.programs[0].classes}
    moved = F32 * ((LAYERS + 1) * ROWS * WIDTH + (LAYERS - 1) * WIDTH * WIDTH)
    for name in ("device to host", "host to device"):
        assert rows[name].bytes == moved
        assert rows[name].seconds >= moved / system.accelerator.host_bandwidth


@pytest.mark.thorough
def test_a_sharded_model_on_the_host_brings_shards_and_takes_gradients_back():
    """FSDP2 gathers each layer in the forward and in the backward pass, its shard from the host."""
    shard = WIDTH * WIDTH // RANKS
    workload = captured(sharded, step)
    assert copies(workload) == {(1, shard): 2 * LAYERS, (-1, shard): LAYERS}
    (program,) = workload.simulate("dgx-h100").programs
    # Weights, gradients and AdamW's two moments, and its steps.
    assert program.host_memory_bytes >= 4 * LAYERS * shard * F32
    assert any("computed on the CPU" in text for text in workload.warnings)


@pytest.mark.thorough
def test_a_batch_that_is_fed_is_a_copy_to_the_device():
    assert copies(captured(plain, feeding_step)) == {(1, ROWS * WIDTH): 1}


@pytest.mark.thorough
def test_they_stay_copies_where_kernels_are_opened():
    assert copies(captured(plain, saving_step, fuse=True)) == copies(captured(plain, saving_step))


@pytest.mark.thorough
def test_traces_have_them_as_stores_and_loads(tmp_path):
    from flint.converters.chakra.check.checker import check

    captured(plain, saving_step).save(tmp_path / "out", annotate=True)
    assert not check(tmp_path / "out").findings
    assert (tmp_path / "out" / "astra-sim" / "remote_memory.json").exists()
