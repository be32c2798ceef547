"""A capture agrees with the execution traces that were written of it."""

from __future__ import annotations

import functools
import importlib

import pytest

import flint
from flint.observed.classes import OpClass
from flint.validation.validating import validate
from tests.models.jax.names import MODELS
from tests.support.shared import quick

pytestmark = pytest.mark.xdist_group("validation-own")

PERMUTES = """module @m attributes {mhlo.num_partitions = 4 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<4x8xf32>) -> tensor<4x8xf32> {
    %0 = "stablehlo.collective_permute"(%arg0) <{
      channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>,
      source_target_pairs = dense<[[0, 0], [1, 2], [2, 1], [3, 3]]> : tensor<4x2xi64>
    }> : (tensor<4x8xf32>) -> tensor<4x8xf32>
    %1 = "stablehlo.all_gather"(%0) <{
      all_gather_dim = 0 : i64,
      channel_handle = #stablehlo.channel_handle<handle = 2, type = 1>,
      replica_groups = dense<[[0, 1, 2, 3]]> : tensor<1x4xi64>, use_global_device_ids
    }> : (tensor<4x8xf32>) -> tensor<16x8xf32>
    %2 = stablehlo.slice %1 [0:4, 0:8] : (tensor<16x8xf32>) -> tensor<4x8xf32>
    return %2 : tensor<4x8xf32>
  }
}
"""
JAX = ("moe_three_axes", "ring_attention", "pipeline_stage_data", "resnet", "llama3")
TORCH = ("ddp_buckets", "fsdp_tp", "pp_fsdp")


@functools.cache
def captured(name):
    """A step of PyTorch."""
    pytest.importorskip("torch")
    return importlib.import_module("tests.validation.torch_steps").STEPS[name].capture()


def against_itself(workload, folder, granularity):
    workload.save(folder, ranks=range(min(4, workload.mesh.size)), granularity=granularity)
    return validate(workload, sorted((folder / "et").glob("*.et")))


@pytest.mark.parametrize("granularity", ["op", "kernel"])
def test_what_a_rank_sends_to_itself_is_a_copy(granularity, tmp_path):
    """Of four ranks two exchange 128 bytes; all gather."""
    (tmp_path / "m.mlir").write_text(PERMUTES)
    workload = flint.convert(tmp_path / "m.mlir")
    report = against_itself(workload, tmp_path / "out", granularity)
    assert report.ok, report.differences
    send, gather = report.classes[OpClass.SEND], report.classes[OpClass.ALL_GATHER]
    assert (send.captured, send.matched, send.executed_bytes) == (2, 2, 256)
    assert gather.captured == gather.matched == 4


@pytest.mark.parametrize("name", quick(JAX, "moe_three_axes"))
def test_jax_models_agree(name, tmp_path):
    module, attribute = MODELS[name]
    workload = getattr(importlib.import_module(module), attribute).capture()
    for granularity in ("op", "kernel"):
        report = against_itself(workload, tmp_path / granularity, granularity)
        assert report.ok, (report.verdict, report.differences[:4], report.contradictions[:4])


@pytest.mark.parametrize("name", quick(TORCH))
def test_torch_models_agree(name, tmp_path):
    workload = captured(name)
    for granularity in ("op", "kernel"):
        report = against_itself(workload, tmp_path / granularity, granularity)
        assert report.ok, (report.verdict, report.differences[:4], report.contradictions[:4])


@pytest.mark.thorough
def test_a_broadcast_is_a_message_to_every_other_member(tmp_path):
    """DDP's buffers on four ranks: the tree has three messages, of which each is sent once."""
    report = against_itself(captured("ddp_buckets"), tmp_path / "out", "kernel")
    assert report.classes[OpClass.SEND].matched == report.classes[OpClass.SEND].executed == 3
    assert OpClass.BROADCAST not in report.classes
