"""Modules whose work stands in manual computations, as JAX's shard_map writes them."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import NamedSharding, PartitionSpec

from flint.capturing.saved_files import convert
from flint.workload.programs import Level
from tests.support.meshes import auto_mesh

MESH = auto_mesh((4, 2), ("data", "model"))
X, W = PartitionSpec("data", "model"), PartitionSpec("model", None)


@jax.shard_map(mesh=MESH, in_specs=(X, W), out_specs=(PartitionSpec("data", None), X))
def product(x, w):
    return jax.lax.psum(x @ w, "model"), x * 2


def inside(x, w):
    return jax.jit(product)(x, w)


def goes_on(x, w):
    y, z = product(x, w)
    return y, z.sum()


def saved(folder, step, *, sharded: bool, **options):
    """Where ``step`` was lowered to, and the types of what a device holds of its arguments."""
    shardings = [NamedSharding(MESH, spec) if sharded else None for spec in (X, W)]
    arguments = [
        jax.ShapeDtypeStruct(shape, jnp.float32, sharding=sharding)
        for shape, sharding in zip([(64, 128), (128, 32)], shardings, strict=True)
    ]
    lowered = jax.jit(step, **options).trace(*arguments).lower(lowering_platforms=("cpu",))
    file = folder / "step.mlir"
    file.write_text(lowered.as_text())
    return file


@pytest.mark.parametrize("sharded", [True, False], ids=["stated", "unstated"])
@pytest.mark.parametrize("step", [product, inside], ids=["alone", "in a call"])
def test_a_rank_holds_shards_of_parameters_and_results(tmp_path, step, sharded) -> None:
    workload = convert(saved(tmp_path, step, sharded=sharded))
    (program,) = workload.programs
    held = [
        NamedSharding(MESH, X).shard_shape((64, 128)),
        NamedSharding(MESH, W).shard_shape((128, 32)),
    ]
    assert [item.type.shape for item in program.inputs] == held
    outputs = [program.graph.type_of(int(value)).shape for value in program.graph.outputs]
    assert outputs == [(16, 32), (16, 64)]
    assert workload.level is Level.PARTITIONED


def test_work_on_global_tensors_outside_is_not_yet_partitioned(tmp_path) -> None:
    file = saved(tmp_path, goes_on, sharded=False)
    assert convert(file, level="logical").level is Level.LOGICAL
    assert convert(file).level is Level.PARTITIONED


@pytest.mark.parametrize("sharded", [True, False], ids=["donor", "paired"])
def test_a_donated_shard_takes_the_buffer_of_the_result_of_its_size(tmp_path, sharded) -> None:
    # JAX pairs arguments with results itself, unless shardings leave it to XLA (buffer_donor).
    file = saved(tmp_path, product, sharded=sharded, donate_argnums=0)
    assert ("jax.buffer_donor" in file.read_text()) == sharded
    (program,) = convert(file).programs
    assert [item.donated for item in program.inputs] == [1, -1]
