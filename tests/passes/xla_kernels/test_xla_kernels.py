"""Granularity xla against what XLA's GPU compiler makes of the same programs (h100.json).

``docs/kernels.md`` has the table, and says where the two differ and why.
"""

from __future__ import annotations

import json
import statistics

import pytest

import flint
from flint.capturing.targets import targets
from flint.passes import apply
from flint.passes.xla_reductions import runs_of, steps
from tests.passes.xla_kernels.programs import F32, MODELS, PROGRAMS, of
from tests.passes.xla_kernels.record import GOLDEN, captured, figures, partial_sums
from tests.support.shared import quick

XLA = json.loads(GOLDEN.read_text())
#: Programs whose bytes are XLA's within a tenth.
NEAR = [
    "residual block", "Llama block", "dense", "batch norm", "layer norm", "RMS norm", "softmax",
    "Adam", "clipped SGD", "cross entropy", "smoothed cross entropy", "scan over layers", "dropout",
]  # fmt: skip


def bytes_ratio(name: str) -> float:
    return figures(apply(captured(name).graph, "xla"))[1] / XLA[name][1]


@pytest.mark.parametrize("name", quick(NEAR, "layer norm"))
def test_bytes_are_those_of_xlas_kernels(name: str) -> None:
    assert bytes_ratio(name) == pytest.approx(1, abs=0.1)


@pytest.mark.thorough
def test_bytes_of_all_programs_are_near_xlas() -> None:
    """Also without what XLA cuts sums of products into, which is no part of these rules."""
    ratio = {name: bytes_ratio(name) for name in PROGRAMS}
    off = {name: abs(ratio[name] - 1) for name in PROGRAMS}
    assert statistics.median(off.values()) < 0.1
    assert max(off, key=lambda name: off[name]) == "GRU"
    uncut = {name: XLA[name][1] / (XLA[name][1] - XLA[name][2]) for name in PROGRAMS}
    assert statistics.median(abs(ratio[name] * uncut[name] - 1) for name in PROGRAMS) < 0.05


@pytest.mark.thorough
def test_kernels_and_bytes_of_models_are_near_xlas() -> None:
    """The mixtures aside: there XLA moves more, for what it transposes."""
    off = []
    for name in MODELS:
        kernels, moved = figures(apply(captured(name).graph, "xla"))
        assert abs(kernels / XLA[name][0] - 1) < 0.25
        if "Mixtral" not in name:
            off.append(abs(moved / XLA[name][1] - 1))
    assert statistics.median(off) < 0.06 and max(off) < 0.1


@pytest.mark.parametrize(
    ("whole", "result", "parts"),
    [
        ((16, 56, 56, 64), (64,), [(128, 64)]),
        ((16, 28, 28, 64), (64,), [(64, 64)]),
        ((8192, 1024), (1024,), [(64, 1024)]),
        ((4096, 512), (), [(1024,)]),
        ((1024, 1024), (), [(1024,)]),
        ((4096, 512), (512,), []),
        ((1000,), (), []),
    ],
)
def test_long_sums_are_cut_as_xla_cuts_them(whole, result, parts) -> None:
    """Results of the first kernel, as XLA wrote them for the residual block, the bottleneck, the
    layer norm, the clipped gradients and the dense layer (jaxlib 0.10.2, H100)."""
    assert list(steps(runs_of(whole, result))) == parts


def test_a_sum_in_steps_has_the_work_of_one() -> None:
    """2^24 - 1 additions, and 4 KB of parts that are written and read."""
    graph = flint.capture(mesh=(1,))(lambda x: x.sum()).capture(of(4096, 4096, dtype=F32)).graph
    first, last = apply(graph, "xla")
    assert first.work.flops + last.work.flops == 4096 * 4096 - 1
    assert (first.work.written, last.work.read, last.work.written) == (4096 * 4, 4096 * 4, 4)


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["softmax", "Adam", "RMS norm"])
def test_what_was_recorded_is_what_xla_makes(name: str) -> None:
    [missing] = [target.missing for target in targets() if target.name == "h100"]
    if missing:
        pytest.skip(missing)
    workload = captured(name, level="optimized", target="h100")
    assert workload.compiled is not None
    assert XLA["compiler"] == workload.compiled.compiler
    assert [*figures(workload.graph), partial_sums(workload.graph)] == XLA[name]
