"""Every saved module to traces of every rank: checked, executed, and counted against other counts.

The counts of collectives per rank (loops unrolled, reduce-scatters kept as all-reduces) come from
an independent walk over the modules; dot FLOPs likewise.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

import flint
from flint.converters.chakra.check.checker import check
from flint.converters.chakra.et_def_pb2 import Node
from flint.converters.chakra.read.trace_set import load_trace_set
from tests.converters.chakra.check.traces import read_nodes
from tests.converters.chakra.consumer import execute
from tests.support.shared import quick

ROOT = Path(__file__).parent.parent
DATA = ROOT / "tests/data/stablehlo"
LLAMA_8B = ROOT / "models/saved/llama3_8b_scan_fsdp64_tp8.mlirbc"
OPTIONS = {"while_dynamic_8x8": {"trip_count": 3}, "cond_8x8": {"branch": 1}}
#: Modules of up to 64 ranks: small enough to execute every rank here.
SMALL = sorted(path for path in DATA.glob("*.mlirbc") if "405b" not in path.name)
KINDS = {0: "all_reduce", 2: "all_gather", 6: "all_to_all", 7: "reduce_scatter"}


def attributes(node: Node) -> dict[str, int]:
    return {
        item.name: getattr(item, item.WhichOneof("value"))
        for item in node.attr
        if item.name in ("comm_type", "comm_size", "num_ops", "tensor_size")
    }


def communications(path: Path) -> dict[str, list[int]]:
    """Kind -> [number, bytes] of one trace, read with protobuf."""
    totals: dict[str, list[int]] = {}
    for node in read_nodes(path):
        if node.type in (5, 6, 7):
            found = attributes(node)
            kind = {5: "send", 6: "recv"}.get(node.type) or KINDS[found["comm_type"]]
            total = totals.setdefault(kind, [0, 0])
            total[0] += 1
            total[1] += found["comm_size"]
    return totals


@pytest.mark.parametrize("granularity", quick(["op", "kernel", "region"], "kernel"))
@pytest.mark.parametrize("path", SMALL, ids=lambda path: path.stem)
def test_traces_pass_the_check_and_every_rank_finishes(
    path: Path, granularity: str, tmp_path: Path
) -> None:
    flint.convert(path, **OPTIONS.get(path.stem, {})).save(
        tmp_path / "out", granularity=granularity
    )
    report = check(tmp_path / "out")
    assert report.ok, report.findings[:3]
    assert not report.not_checked
    traces = load_trace_set(tmp_path / "out")
    for seed in range(2):
        finished = execute(traces, seed=seed)
        assert finished.complete, finished.stuck[:3]


@pytest.mark.parametrize("lookahead", quick([0, 1, None], 1))
def test_any_lookahead_runs(lookahead: int | None, tmp_path: Path) -> None:
    path = DATA / "llama_tiny_scan_fsdp4_tp2.mlirbc"
    flint.convert(path, loop_lookahead=lookahead).save(tmp_path / "out")
    assert check(tmp_path / "out").ok
    assert execute(load_trace_set(tmp_path / "out"), seed=7).complete


@pytest.fixture(scope="module")
def llama_8b(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("8b") / "out"
    workload = flint.convert(LLAMA_8B, mesh=(64, 8), reduce_scatter=False)
    workload.save(folder, ranks="0-1,511")
    return folder


def test_llama_8b_has_the_independent_count_of_collectives(llama_8b: Path) -> None:
    # all_gather and all_reduce by operand bytes, as comm_size wants them; the one permute sends
    # and receives 32768 bytes unless the rank keeps its own.
    found = communications(llama_8b / "et/trace.1.et")
    assert found["all_gather"] == [451, 56872960]
    assert found["all_reduce"] == [553, 19207299076]
    assert found["all_to_all"] == [2, 134217728]
    assert found["send"] == [1, 32768]
    assert found["recv"] == [1, 32768]


def test_llama_8b_has_its_dot_flops(llama_8b: Path) -> None:
    workload = flint.load(llama_8b)
    total = sum(
        times * item.flops
        for graph, times in workload.graph.walk()
        for node in graph
        for item in node.work.items
        if item.unit == 0
    )
    assert total == 74146167914496


def test_region_and_kernel_traces_carry_the_same_work_and_traffic(tmp_path: Path) -> None:
    workload = flint.convert(DATA / "llama_tiny_scan_fsdp4_tp2.mlirbc")
    flops: Counter[str] = Counter()
    traffic = {}
    for granularity in ("op", "kernel", "region"):
        workload.save(tmp_path / granularity, granularity=granularity)
        path = tmp_path / granularity / "et/trace.3.et"
        traffic[granularity] = communications(path)
        for node in read_nodes(path):
            found = attributes(node)
            # num_ops is at least 1 for consumers; nodes without FLOPs carry that 1.
            flops[granularity] += found.get("num_ops", 0) if found.get("num_ops", 0) > 1 else 0
    assert traffic["op"] == traffic["kernel"] == traffic["region"]
    assert flops["kernel"] == pytest.approx(flops["op"], rel=1e-6)
    assert flops["region"] == pytest.approx(flops["op"], rel=1e-6)


def test_reduce_scatters_and_all_reduces_share_the_all_reduces_bytes(tmp_path: Path) -> None:
    path = DATA / "llama3_405b_scan_fsdp128_tp16.mlirbc"
    flint.convert(path).save(tmp_path / "recognised", ranks="5")
    flint.convert(path, reduce_scatter=False).save(tmp_path / "written", ranks="5")
    recognised = communications(tmp_path / "recognised/et/trace.5.et")
    written = communications(tmp_path / "written/et/trace.5.et")
    assert recognised["reduce_scatter"][0] > 0
    pairs = zip(recognised["all_reduce"], recognised["reduce_scatter"], strict=True)
    assert [a + b for a, b in pairs] == written["all_reduce"]


@pytest.mark.parametrize(
    ("name", "exchanges", "size"),
    [("pipeline_ppermute_8x8", 16, 16384), ("ring_attention_8x8", 32, 131072)],
)
def test_permutes_become_pairs_of_send_and_receive(
    name: str, exchanges: int, size: int, tmp_path: Path
) -> None:
    # A rank in the middle of the axis sends and receives in every exchange.
    flint.convert(DATA / f"{name}.mlirbc").save(tmp_path / "out", ranks="27")
    found = communications(tmp_path / "out/et/trace.27.et")
    assert found["send"] == found["recv"] == [exchanges, exchanges * size]


def test_the_ragged_exchange_does_not_vanish(tmp_path: Path) -> None:
    workload = flint.convert(DATA / "ragged_all_to_all_8x8.mlirbc")
    workload.save(tmp_path / "out", ranks="0")
    # 128 x 64 bf16, an upper bound: how much of it moves is data.
    assert communications(tmp_path / "out/et/trace.0.et") == {"all_to_all": [1, 128 * 64 * 2]}
    assert any("data-dependent" in text for text in workload.warnings)


def test_a_million_ranks_cost_what_their_files_cost(tmp_path: Path) -> None:
    text = """module @big attributes {mhlo.num_partitions = 1048576 : i32} {
      sdy.mesh @mesh = <["data"=131072, "model"=8]>
      func.func @main(%x: tensor<64x64xf32>) -> tensor<64x64xf32> {
        %y = stablehlo.dot %x, %x : (tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32>
        %z = "stablehlo.all_reduce"(%y) <{channel_handle = #stablehlo.channel_handle<handle = 1,
          type = 0>, replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @mesh, axes =
          [#stablehlo.axis_ref<name = "data">]>, use_global_device_ids}> ({
          ^bb0(%a: tensor<f32>, %b: tensor<f32>):
            %s = stablehlo.add %a, %b : tensor<f32>
            stablehlo.return %s : tensor<f32>
        }) : (tensor<64x64xf32>) -> tensor<64x64xf32>
        return %z : tensor<64x64xf32>
      }
    }"""
    path = tmp_path / "big.mlir"
    path.write_text(text)
    workload = flint.convert(path)
    assert workload.mesh == flint.Mesh((131072, 8), ("data", "model"))
    workload.save(tmp_path / "out", ranks="0,1048575")
    assert communications(tmp_path / "out/et/trace.1048575.et") == {"all_reduce": [1, 64 * 64 * 4]}


def test_constants_are_in_memory_and_take_no_node(tmp_path: Path) -> None:
    # The loop counter starts at a constant, which nothing executes; its first addition waits for
    # nothing.
    workload = flint.convert(DATA / "pipeline_ppermute_8x8.mlirbc")
    workload.save(tmp_path / "out", ranks="27", unordered_starts=True)
    nodes = list(read_nodes(tmp_path / "out/et/trace.27.et"))
    assert "constant" not in {node.name for node in nodes}
    assert not next(node for node in nodes if node.name == "add").data_deps
