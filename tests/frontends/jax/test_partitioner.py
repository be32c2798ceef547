"""The partitioner's process: what it gives, how it fails, how many devices it takes."""

from __future__ import annotations

import math
import os
import signal
import tempfile
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import flint
from flint.errors import FlintError, UsageError
from flint.frontends.jax.internals import cpu_devices, xla
from flint.frontends.jax.partition.partitioning import Partitioner
from flint.frontends.jax.requests import Compilation
from flint.frontends.jax.targets.table import plugin
from flint.hlo.messages import parse_module
from flint.hlo.reader import read_hlo
from flint.host import child_processes
from tests.support.meshes import auto_mesh
from tests.support.shared import quick

LIMITS = child_processes.Limits(300.0, 2**35)

needs_gpu_plugin = pytest.mark.skipif(
    plugin("cuda") is None, reason="the extra `gpu` is not installed"
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


def written(proto):
    """A whole module as text: ops, shapes, groups, shardings, lines.

    Without the numbers of the devices it was compiled on, which nothing reads: another process's
    begin where this one's end.
    """
    module = parse_module(proto)
    module.device_assignment.ClearField("computation_devices")
    return str(module).splitlines()


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

    mesh = auto_mesh((8,), ("data",))
    x = jax.ShapeDtypeStruct((64, 32), jnp.float32, sharding=NamedSharding(mesh, P("data")))
    key = jax.ShapeDtypeStruct((2,), jnp.uint32)
    workload = flint.capture(dropout, mesh=(8,)).capture(key, x)
    assert len(workload.graph) > 1


def test_what_xla_refuses_is_reported():
    with (
        pytest.raises(FlintError, match=r"failed for 8 devices: .*error: custom op"),
        Partitioner(8, LIMITS) as partitioner,
    ):
        partitioner.run(Compilation(b"no module at all"))


def test_a_killed_process_is_explained():
    with Partitioner(8, LIMITS) as partitioner:
        os.kill(partitioner.process.pid, signal.SIGKILL)
        with pytest.raises(FlintError, match=r"died of SIGKILL, most likely .* out of memory"):
            partitioner.run(Compilation(b""))


def test_the_process_ends_with_the_block():
    with Partitioner(8, LIMITS) as partitioner:
        folder = partitioner.folder
        assert folder.is_dir()
    assert partitioner.process.poll() is not None
    assert not folder.exists()


def test_the_memory_of_a_process_is_seen():
    assert child_processes.resident_bytes(os.getpid()) > 2**20


@pytest.mark.parametrize("devices", quick([8, 512, 2048, 4096], 8, 512))
def test_devices_of_another_process_partition_as_own_devices_do(devices):
    module = lowered(auto_mesh((devices // 8, 8), ("data", "model")))
    with Partitioner(devices, LIMITS, engine="cpu, own devices") as partitioner:
        own = partitioner.run(Compilation(module))
    with Partitioner(devices, LIMITS) as partitioner:
        assert written(partitioner.run(Compilation(module))) == written(own)


def test_a_long_temporary_folder_works(tmp_path, monkeypatch):
    """A socket's path has at most 107 characters."""
    folder = tmp_path / ("long" * 30)
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    with Partitioner(4096, LIMITS) as partitioner:
        proto = partitioner.run(Compilation(lowered(auto_mesh((512, 8), ("data", "model")))))
    assert operations(proto)


@pytest.mark.parametrize(
    ("devices", "library", "client"),
    [(8192, None, "own"), (16384, Path("plugin.so"), "gpu"), (16384, None, "none")],
)
def test_without_sockets_there_are_own_devices_then_the_gpu_client(
    devices, library, client, monkeypatch, tmp_path
):
    def refuse(devices, folder):
        raise RuntimeError("Permission denied")

    monkeypatch.setattr(cpu_devices, "make_client", refuse)
    monkeypatch.setattr(xla, "own_devices_compiler", lambda devices, folder: "own")
    monkeypatch.setattr(xla, "gpu_compiler", lambda devices, folder: "gpu")
    monkeypatch.setattr(xla, "plugin", lambda platform: library)
    if client == "none":
        with pytest.raises(UsageError, match=r"16,384 devices: .*denied.*flint-workload\[gpu\]"):
            xla.cpu_compiler(devices, tmp_path)
    else:
        assert xla.cpu_compiler(devices, tmp_path) == client


@pytest.mark.parametrize("data", [2, 256, 2048])
def test_the_program_of_a_larger_mesh_has_the_same_shape(data):
    """One row per device group whatever the mesh: only groups differ."""
    programs = []
    for size in (data, 2 * data):
        mesh = auto_mesh((size, 2), ("data", "model"))
        with Partitioner(2 * size, LIMITS) as partitioner:
            programs.append(operations(partitioner.run(Compilation(lowered(mesh)))))
    assert programs[0] == programs[1]


@needs_gpu_plugin
def test_the_gpu_client_partitions_as_the_cpu_client_does():
    module = lowered(auto_mesh((64, 8), ("data", "model")))
    with Partitioner(512, LIMITS) as partitioner:
        on_cpu = written(partitioner.run(Compilation(module)))
    with Partitioner(512, LIMITS, engine="gpu") as partitioner:
        assert written(partitioner.run(Compilation(module))) == on_cpu
