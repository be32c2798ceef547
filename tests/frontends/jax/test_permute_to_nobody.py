"""A permutation without pairs: no rank sends, all ranks have zeros, and none has a node of it."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import flint
from flint.converters.chakra import et_def_pb2 as pb
from tests.converters.chakra.check.traces import read_nodes

STABLEHLO = """
module @m attributes {mhlo.num_partitions = 4 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%a: tensor<8xf32>) -> tensor<8xf32> {
    %0 = "stablehlo.collective_permute"(%a) <{
      channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>,
      source_target_pairs = dense<> : tensor<0x2xi64>
    }> : (tensor<8xf32>) -> tensor<8xf32>
    %1 = stablehlo.add %0, %a : tensor<8xf32>
    return %1 : tensor<8xf32>
  }
}
"""


def step(x):
    def body(x):
        return x + lax.ppermute(x, "data", [])

    return jax.shard_map(body, in_specs=P("data"), out_specs=P("data"))(x)


def types(folder):
    """The types of each rank's nodes."""
    return [[node.type for node in read_nodes(folder / f"et/trace.{rank}.et")] for rank in range(4)]


def test_a_step_as_it_runs_and_as_it_is_captured(tmp_path):
    def setup(mesh):
        return (jax.ShapeDtypeStruct((8,), jnp.float32, sharding=NamedSharding(mesh, P("data"))),)

    real = Mesh(np.array(jax.devices()[:4]), ("data",))
    x = jax.device_put(jnp.arange(8.0), NamedSharding(real, P("data")))
    with jax.set_mesh(real):
        assert jax.jit(step)(x).tolist() == x.tolist()  # data that no rank sent is zero
    workload = flint.capture(step, mesh=(4,), axes=("data",), setup=setup).capture()
    workload.save(tmp_path / "out")
    assert types(tmp_path / "out") == [[pb.COMP_NODE]] * 4


def test_a_saved_program(tmp_path):
    (tmp_path / "step.mlir").write_text(STABLEHLO)
    flint.convert(tmp_path / "step.mlir").save(tmp_path / "out")
    assert types(tmp_path / "out") == [[pb.COMP_NODE]] * 4
