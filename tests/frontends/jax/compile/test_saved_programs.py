"""Saved programs at the optimized level: the compiler's module is that of the captured step.

Needs the extra `gpu`; skipped without it.
"""

from __future__ import annotations

from collections import Counter

import jax
import pytest

import flint
from flint.errors import UsageError
from tests.frontends.jax.compile import steps
from tests.hlo.optimized.single import FOLDER
from tests.support.meshes import auto_mesh


def kernels(workload):
    """(op, bytes read and written, runs) -> nodes; which dim a product has first may differ."""
    return Counter(
        (node.op, node.work.read, node.work.written, times)
        for graph, times in workload.graph.walk()
        for node in graph
    )


@pytest.fixture(scope="module")
def saved(partitioned, tmp_path_factory):
    """The step as a global StableHLO module, and as the per-device module of the partitioner."""
    folder = tmp_path_factory.mktemp("saved")
    mesh = auto_mesh((4, 2), ("data", "model"))

    def update(weights, x):
        return steps.scan.__wrapped__(weights, x)

    lowered = jax.jit(update, donate_argnums=0).trace(*steps.setup(mesh))
    text = lowered.lower(lowering_platforms=("cuda",)).as_text()
    (folder / "global.mlir").write_text(text)
    data, suffix = partitioned("scan").programs[0].module
    (folder / f"per_device{suffix}").write_bytes(data)
    return {"global": folder / "global.mlir", "per device": folder / f"per_device{suffix}"}


@pytest.mark.parametrize("form", ["global", pytest.param("per device", marks=pytest.mark.thorough)])
def test_a_saved_program_compiles_to_the_captured_steps_kernels(form, saved, compiled):
    captured = compiled("scan")
    workload = flint.convert(saved[form], level="optimized", target="h100")
    assert workload.compiled is not None
    assert workload.compiled.target == "h100"
    assert workload.mesh.shape == (4, 2)
    assert kernels(workload) == kernels(captured)
    donated = [[item.donated for item in w.programs[0].inputs] for w in (workload, captured)]
    assert donated[0] == donated[1] == [0, -1]


def test_a_target_is_asked_for():
    with pytest.raises(UsageError, match=r"needs a target .*h100"):
        flint.convert("step.mlir", level="optimized")


def test_a_target_without_the_level_is_refused():
    with pytest.raises(UsageError, match="--level optimized"):
        flint.convert("step.mlir", target="h100")


@pytest.mark.parametrize("level", ["partition", "kernel"])
def test_a_saved_program_has_no_other_level(level):
    with pytest.raises(UsageError, match="choose from: logical, partitioned, optimized, auto"):
        flint.convert("step.mlir", level=level)


def test_a_compiled_program_is_unchanged_at_level_auto():
    as_saved = flint.convert(FOLDER / "gpu_remat.hlo.pb.gz")
    auto = flint.convert(FOLDER / "gpu_remat.hlo.pb.gz", level="auto")
    assert (kernels(auto), auto.warnings) == (kernels(as_saved), as_saved.warnings)


def test_level_auto_says_why_it_does_not_compile(monkeypatch, partitioned):
    monkeypatch.setattr(
        "flint.capturing.targets.obstacle", lambda name, devices, *_: f"{name} is not for {devices}"
    )
    workload = steps.scan.at((4, 2)).capture(level="auto", target="h200")
    assert "level auto: partitioned, because h200 is not for 8" in workload.warnings
    assert kernels(workload) == kernels(partitioned("scan"))
