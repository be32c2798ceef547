"""Compiling for GPUs and TPUs that are not here: what comes back, what is refused.

Needs the extras `gpu` and `tpu`; skipped without them.
"""

from __future__ import annotations

import json
import os
import re
import signal

import pytest

import flint
from flint.errors import FlintError, UsageError
from flint.frontends.jax.compile.target_compiler import Optimizer
from flint.frontends.jax.requests import Compilation
from flint.graph.nesting import blocks
from flint.host.child_processes import Limits
from flint.workload.differences import differences
from flint.workload.programs import Level, Order
from tests.frontends.jax.compile import steps
from tests.frontends.jax.compile.conftest import need
from tests.frontends.jax.compile.steps import LAYERS, ROWS, WIDTH

GPUS = ("h100", "h200", "b200", "gb200", "a100-80", "a100-40")
TPUS = ("tpu-v5e", "tpu-v5p", "tpu-v6e", "tpu7x", "tpu-v4")
EVERY = pytest.mark.parametrize("target", ["h100", "tpu-v5p"])
LIMITS = Limits(300.0, 2**35)


def rows(workload, other):
    found = differences(other, workload)
    return {row.kind: row for row in (*found.collectives, *found.families)}


@pytest.mark.parametrize("target", [*GPUS, *TPUS])
def test_every_target_compiles(target, compiled):
    workload = compiled("scan", target)
    assert workload.level is Level.OPTIMIZED
    assert workload.order is Order.COMPILED
    assert workload.compiled.target == target
    assert workload.mesh.size == 8
    workload.verify()


@pytest.mark.parametrize(("target", "told"), [("tpu7x", True), ("tpu-v5p", False)])
def test_a_device_that_is_half_a_chip_is_reported(target, told, compiled):
    said = compiled("scan", target).warnings
    assert any("one of 2 on a chip" in text for text in said) == told


@EVERY
def test_memory_analysis_is_that_of_a_device(target, compiled):
    """Weights are on 8 devices, the batch on the 4 of axis data; the weights' buffers are reused.

    The compiler pads: a buffer begins at a multiple of 128 (GPU) or 512 bytes and more (TPU).
    """
    report = compiled("scan", target).compiled
    weights = LAYERS * WIDTH * WIDTH * 4 // 8
    batch = ROWS * WIDTH * 4 // 4
    assert weights + batch <= report.argument_bytes <= 1.01 * (weights + batch)
    assert weights <= report.alias_bytes <= report.output_bytes <= 1.01 * weights
    assert report.temporary_bytes > 0
    assert report.needed_bytes == (
        report.argument_bytes + report.output_bytes - report.alias_bytes + report.temporary_bytes
    )


@EVERY
def test_the_compilers_flops_are_those_of_the_graph_with_loop_bodies_once(target, compiled):
    """XLA's cost analysis of the same module; its conventions differ for a few element-wise ops."""
    workload = compiled("scan", target)
    once = sum(int(block.graph.flops_by_node().sum()) for block in blocks(workload.graph))
    assert once == pytest.approx(workload.compiled.flops, rel=0.02)


@EVERY
def test_compiling_leaves_the_matrix_products_as_they_are(target, compiled, partitioned):
    found = differences(partitioned("scan"), compiled("scan", target))
    assert found.after.matmul_flops == found.before.matmul_flops > 0


def test_a_gpus_collectives_carry_what_the_partitioned_ones_do(compiled, partitioned):
    """All-reduces that are sliced become reduce-scatters, hence the two together."""
    found = rows(compiled("scan"), partitioned("scan"))
    for kind in ("all_gather", "reductions"):
        assert found[kind].after.payload == found[kind].before.payload > 0


def test_a_pass_that_saves_communication_is_seen_and_nothing_else_changes(compiled, partitioned):
    """``x @ w + x @ v`` with x split along the contracted dim: XLA sums before it reduces.

    Partitioned: two all-reduces of 64x32 floats.  XLA's pass all-reduce-reassociate makes one of
    them; with the pass disabled the payload is as it was.
    """
    size = 8 * 64 * 32 * 4
    before = partitioned("two_products", mesh=(8,))
    row = rows(compiled("two_products", mesh=(8,)), before)["all_reduce"]
    assert (row.before.payload, row.after.payload) == (2 * size, size)
    disabled = {"xla_disable_hlo_passes": "all-reduce-reassociate"}
    row = rows(compiled("two_products", mesh=(8,), **disabled), before)["all_reduce"]
    assert (row.before.payload, row.after.payload) == (2 * size, 2 * size)


def test_calls_are_those_of_the_modules_text(compiled):
    """Collectives of a GPU program come as pairs: one `-start(` for each stored node."""
    workload = compiled("scan")
    [program] = workload.programs
    text, suffix = program.listing()
    assert suffix == ".hlo"
    started = re.findall(rb" (all-reduce|all-gather|reduce-scatter|all-to-all|async)-start\(", text)
    stored = sum(int((block.graph.kind == 1).sum()) for block in blocks(program.graph))
    assert len(started) == stored > 0


def test_the_compiler_combines_small_reductions_unless_told_otherwise(compiled, partitioned):
    """Sums of 256 and of 64 floats, each over all 8 devices: 1,280 bytes a device in any case."""
    together = compiled("two_sums", mesh=(8,))
    apart = compiled("two_sums", mesh=(8,), xla_gpu_all_reduce_combine_threshold_bytes="0")
    row = rows(together, apart)["all_reduce"]
    assert (row.before.calls, row.before.payload) == (8 * 2, 8 * 1280)
    assert (row.after.calls, row.after.payload) == (8, 8 * 1280)
    assert row.before.asynchronous == row.before.calls
    assert rows(apart, partitioned("two_sums", mesh=(8,)))["all_reduce"].before.asynchronous == 0
    assert apart.compiled.options == {"xla_gpu_all_reduce_combine_threshold_bytes": "0"}


def test_truth_values_may_be_words(compiled):
    words = {"xla_gpu_enable_latency_hiding_scheduler": "false"}
    assert compiled("two_sums", mesh=(8,), **words).compiled.options == words


@EVERY
def test_an_unknown_option_is_named(target, compiled):
    with pytest.raises(UsageError, match=r"--xla-option xla_no_such: the compiler has no such"):
        compiled("two_sums", target, (8,), xla_no_such="1")


def test_a_wrong_value_is_named(compiled):
    with pytest.raises(UsageError, match=r"scheduler: 'maybe' is not a valid bool value"):
        compiled("two_sums", mesh=(8,), xla_gpu_enable_latency_hiding_scheduler="maybe")


@pytest.mark.parametrize("devices", [1, 3, 12, 512])
def test_any_number_of_gpus(devices, compiled):
    need("cuda")
    step = flint.capture(lambda x: x * 2, mesh=(devices,))
    workload = step.capture(steps.jnp.ones((8, 8)), level="optimized", target="h100")
    assert workload.mesh.size == devices


def test_a_mesh_that_is_not_a_slice_is_refused():
    need("tpu")
    with pytest.raises(UsageError, match="no slice has 6 devices; the nearest sizes are 4 and 8"):
        steps.scan.at((3, 2)).capture(level="optimized", target="v5p")


@pytest.mark.parametrize("target", ["a100-40", "h100"])
def test_a_program_beyond_the_targets_memory_is_kept_with_a_warning(target, compiled):
    """32 GiB of argument, 32 GiB of result: too much for 40 GB, and not for 80."""
    workload = compiled("too_large", target, (2,))
    assert workload.compiled.needed_bytes > 64 * 2**30
    assert len(workload.graph) > 0
    said = [text for text in workload.warnings if "would not run there" in text]
    assert len(said) == (target == "a100-40")
    assert all("the compiler plans 64." in text and "a100-40 has 39.4 GiB" in text for text in said)


def test_products_without_tiles_are_library_calls(compiled):
    """XLA tries tiles on the GPU that is there; where there is none some products have none."""
    workload = compiled("odd_attention", mesh=(2,))
    assert sum("xla_gpu_enable_triton_gemm=false" in text for text in workload.warnings) == 1
    assert workload.compiled.options["xla_gpu_enable_triton_gemm"] is False
    products = [node for node in workload.graph if "cublas" in node.op]
    heads, tokens, head, width = steps.HEADS, steps.TOKENS, steps.HEAD, steps.WIDTH
    weighted = 2 * 16 * heads * tokens * tokens * head
    assert sorted(node.work.flops for node in products) == sorted(
        (weighted, 2 * 16 * tokens * heads * head * width)
    )


def test_who_chooses_triton_hears_of_missing_tiles(compiled):
    with pytest.raises(FlintError, match="Couldn't find output tile sizes"):
        compiled("odd_attention", mesh=(2,), xla_gpu_enable_triton_gemm=True)


def test_a_program_that_a_tpus_compiler_refuses_is_kept_with_its_words(compiled, tmp_path):
    """32 GiB of argument on a chip with 16."""
    workload = compiled("too_large", "tpu-v5e", (4,))
    [said] = [text for text in workload.warnings if "would not run there" in text]
    assert said.startswith("RESOURCE_EXHAUSTED: ")
    assert workload.level is Level.OPTIMIZED
    assert len(workload.graph) > 0
    assert workload.compiled.needed_bytes is None
    workload.save_programs(tmp_path / "out")
    assert flint.load(tmp_path / "out").compiled == workload.compiled


def test_a_killed_compiler_is_explained():
    need("cuda")
    with Optimizer("h100", (8,), LIMITS) as optimizer:
        os.kill(optimizer.process.pid, signal.SIGKILL)
        with pytest.raises(FlintError, match=r"for h100 failed for 8 devices: .*died of SIGKILL"):
            optimizer.run(Compilation(b""))


@EVERY
def test_what_the_compiler_refuses_is_reported(target):
    need("cuda" if target == "h100" else "tpu")
    with (
        Optimizer(target, (8,), LIMITS) as optimizer,
        pytest.raises(FlintError, match=rf"for {target} failed for 8 devices: .*"),
    ):
        optimizer.run(Compilation(b"no module at all"))


@EVERY
def test_the_folder_keeps_what_the_compiler_says(target, compiled, tmp_path):
    workload = compiled("scan", target)
    workload.save_programs(tmp_path / "out")
    document = json.loads((tmp_path / "out" / "workload.json").read_text())
    assert document["level"] == "optimized"
    assert document["compiled"]["target"] == target
    assert flint.load(tmp_path / "out").compiled == workload.compiled


@EVERY
@pytest.mark.parametrize("form", ["main.hlo.pb", "main.hlo"])
def test_the_kept_module_converts_to_the_captured_graph(target, form, compiled, tmp_path):
    workload = compiled("scan", target)
    workload.save_programs(tmp_path / "out")
    again = flint.convert(tmp_path / "out" / "programs" / form, mesh=workload.mesh)
    assert (again.level, again.order) == (workload.level, workload.order)
    assert again.graph.tables.communications == workload.graph.tables.communications
    assert [node.op for node in again.graph] == [node.op for node in workload.graph]


@EVERY
def test_library_calls_and_calls_of_python_compile(target, compiled):
    """The library factors each device's own matrices: only their sum crosses devices, 4 bytes."""
    first = compiled("calls", target, mesh=(8,)).programs[0]
    nodes = [node for graph, _ in first.graph.walk() for node in graph]
    sent = [node.communication for node in nodes if node.communication is not None]
    assert [item.kind for item in sent] == ["all_reduce"]
    names = " ".join(node.op for node in nodes)
    calls = {"h100": ["cusolver_potrf", "python_gpu_callback"], "tpu-v5p": ["send"]}[target]
    assert all(name in names for name in calls), names


def test_what_only_the_first_device_prints_is_a_call_of_its_program_alone(compiled):
    """``jax.debug.print`` of a replicated value: XLA puts the call under ``partition_id == 0``."""
    programs = compiled("calls", "h100", mesh=(8,)).programs
    assert [str(program.ranks) for program in programs] == ["0", "1-7"]
    names = [[node.op for node in program.graph] for program in programs]
    assert ["xla_ffi_python_gpu_callback" in ops for ops in names] == [True, False]


def test_what_the_host_holds_is_copied(compiled):
    """A device's eighth of the weight, 256 x 128 floats, comes over once."""
    workload = compiled("held_by_the_host", "h100")
    copied = [node.work.read for node in workload.graph if node.op == "mhlo.copy"]
    assert copied == [256 * 128 * 4 // 8]
    assert any("host memory" in text for text in workload.warnings)
