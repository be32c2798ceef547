"""The partitioner's process: what it gives, how it fails, how many devices it takes."""

from __future__ import annotations

import math
import os
import signal

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import AbstractMesh, NamedSharding
from jax.sharding import PartitionSpec as P

import flint
from flint.errors import FlintError, UsageError
from flint.frontends.jax import partitioning, xla
from flint.frontends.jax.partitioning import Partitioner
from flint.hlo.reader import read_hlo

LIMITS = {"time_limit": 300.0, "memory_limit": 2**35}

needs_gpu_plugin = pytest.mark.skipif(
    xla.gpu_plugin() is None, reason="the extra `gpu` is not installed"
)


def lowered(mesh):
    """A sharded matrix product as MLIR bytecode."""
    import io

    def place(shape, *spec):
        return jax.ShapeDtypeStruct(shape, jnp.float32, sharding=NamedSharding(mesh, P(*spec)))

    size = math.prod(mesh.axis_sizes)
    step = jax.jit(lambda x, w: jnp.sin(x @ w).sum(0))
    arguments = place((size, 64), "data", "model"), place((64, 32), "model", None)
    module = step.trace(*arguments).lower(lowering_platforms=("cpu",)).compiler_ir("stablehlo")
    written = io.BytesIO()
    module.operation.write_bytecode(written)
    return written.getvalue()


def operations(proto):
    """(op, result types) of every record, in order."""
    module = read_hlo(proto)
    return [
        (op.name, [str(module.type_of(value)) for value in op.results])
        for op in module.functions["main"].ops
    ]


def test_a_program_that_aborts_the_process_after_its_dump_is_captured():
    """Random bits: XLA's code generation meets an op that it cannot do and ends the process."""

    def dropout(key, x):
        return x * jax.random.bernoulli(jax.random.wrap_key_data(key), 0.9, x.shape)

    mesh = AbstractMesh((8,), ("data",))
    x = jax.ShapeDtypeStruct((64, 32), jnp.float32, sharding=NamedSharding(mesh, P("data")))
    key = jax.ShapeDtypeStruct((2,), jnp.uint32)
    workload = flint.capture(dropout, mesh=(8,)).capture(key, x)
    assert len(workload.graph) > 1


def test_what_xla_refuses_is_said():
    with (
        pytest.raises(FlintError, match=r"failed for 8 devices: .*error: custom op"),
        Partitioner(8, **LIMITS) as partitioner,
    ):
        partitioner.run(b"no module at all")


def test_a_killed_process_is_explained():
    with Partitioner(8, **LIMITS) as partitioner:
        os.kill(partitioner._child.pid, signal.SIGKILL)
        with pytest.raises(FlintError, match=r"died of SIGKILL, most likely .* out of memory"):
            partitioner.run(b"")


def test_the_process_ends_with_the_block():
    with Partitioner(8, **LIMITS) as partitioner:
        folder = partitioner._folder
        assert folder.is_dir()
    assert partitioner._child.returncode is not None
    assert not folder.exists()


def test_the_memory_of_a_process_is_seen():
    assert partitioning.resident_bytes(os.getpid()) > 2**20


def test_too_many_devices_for_the_cpu_name_the_extra(monkeypatch):
    monkeypatch.setattr(xla, "gpu_plugin", lambda: None)
    with pytest.raises(UsageError, match=r"16,384 devices: .*flint-workload\[gpu\]"):
        Partitioner(16384, **LIMITS)


@pytest.mark.parametrize("data", [2, 256, 2048])
def test_the_program_of_a_larger_mesh_has_the_same_shape(data):
    """One row per device group whatever the mesh: only groups differ."""
    programs = []
    for size in (data, 2 * data):
        mesh = AbstractMesh((size, 2), ("data", "model"))
        with Partitioner(2 * size, **LIMITS) as partitioner:
            programs.append(operations(partitioner.run(lowered(mesh))))
    assert programs[0] == programs[1]


@needs_gpu_plugin
def test_the_gpu_client_partitions_as_the_cpu_client_does(monkeypatch):
    module = lowered(AbstractMesh((64, 8), ("data", "model")))
    with Partitioner(512, **LIMITS) as partitioner:
        on_cpu = operations(partitioner.run(module))
    monkeypatch.setattr(partitioning, "MAX_CPU_DEVICES", 1)
    with Partitioner(512, **LIMITS) as partitioner:
        assert partitioner.engine == "gpu"
        assert operations(partitioner.run(module)) == on_cpu


@needs_gpu_plugin
def test_a_million_devices():
    mesh = AbstractMesh((131072, 8), ("data", "model"))
    with Partitioner(2**20, **LIMITS) as partitioner:
        names = {name for name, _ in operations(partitioner.run(lowered(mesh)))}
    assert "all_reduce" in names
