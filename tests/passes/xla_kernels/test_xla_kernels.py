"""Granularity xla against what XLA's GPU compiler makes of the same programs (h100.json).

``docs/kernels.md`` has the table, and says where the two differ and why.
"""

from __future__ import annotations

import json
import statistics

import pytest

from flint.capturing.targets import targets
from flint.passes import apply
from tests.passes.xla_kernels.programs import PROGRAMS
from tests.passes.xla_kernels.record import GOLDEN, captured, figures, partial_sums
from tests.support.shared import quick

XLA = json.loads(GOLDEN.read_text())
#: Programs whose bytes are XLA's within a tenth.
NEAR = [
    "residual block", "bottleneck", "Llama block", "dense", "batch norm", "layer norm",
    "RMS norm", "softmax", "Adam", "clipped SGD", "cross entropy", "smoothed cross entropy",
    "scan over layers",
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
    assert statistics.median(off.values()) < 0.09
    assert sorted(off, key=lambda name: off[name])[-1] == "GRU"
    uncut = {name: XLA[name][1] / (XLA[name][1] - XLA[name][2]) for name in PROGRAMS}
    assert statistics.median(abs(ratio[name] * uncut[name] - 1) for name in PROGRAMS) < 0.05


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
