"""A few ranks that stand for all give a simulator the step of all."""

from __future__ import annotations

import pytest

from flint.converters.chakra.astra_sim.engine import simulate
from flint.converters.chakra.check.checker import check
from tests.workload.test_reducing import fsdp_and_tp


def test_a_simulator_gives_the_step_of_all_ranks(tmp_path, binary):
    workload = fsdp_and_tp()
    workload.save(tmp_path / "all")
    workload.save(tmp_path / "few", reduce_ranks=8)
    assert len(list((tmp_path / "few/et").glob("*.et"))) == 8
    assert check(tmp_path / "few").ok
    whole, few = (
        simulate(workload, folder=tmp_path / name, binary=binary) for name in ("all", "few")
    )
    assert few.step_seconds == pytest.approx(whole.step_seconds, rel=1e-3)
    assert few.ranks == 64 and few.flops == whole.flops
    assert any("8 ranks stand for 64" in note for note in few.notes)
