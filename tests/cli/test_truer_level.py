"""Which notes a simulation has about programs as compiled for the system."""

from __future__ import annotations

from dataclasses import replace

import pytest

from flint.cli.truer_level import EAGER, truer_level
from flint.workload.programs import Level, Order
from flint.workload.workload import Workload
from tests.workloads import loop, loop_file

__all__ = ["loop", "loop_file"]


@pytest.fixture
def recorded(loop: Workload) -> Workload:
    """A recorded program that calls ``torch.compile``."""
    words = {f"torch.compile at train.py:7: {EAGER}": 1}
    return replace(loop, order=Order.RECORDED, warnings=words)


def test_a_program_that_compiles_its_code_is_told_what_compiles_it(recorded: Workload) -> None:
    [note] = truer_level(recorded, "dgx-h100")
    assert "was recorded as eager code" in note
    assert note.endswith("--level optimized --target h100 compiles it")


def test_no_option_is_named_where_nothing_compiles_for_the_system(recorded: Workload) -> None:
    [note] = truer_level(recorded, "tpu-v5p-pod")
    assert "was recorded as eager code" in note and "--level" not in note


def test_of_a_compiled_program_the_parts_that_are_not_are_told(recorded: Workload) -> None:
    [note] = truer_level(replace(recorded, level=Level.OPTIMIZED), "dgx-h100")
    assert note.startswith("parts of the code") and "--level" not in note


def test_a_recorded_program_without_compiled_code_has_no_note(recorded: Workload) -> None:
    assert truer_level(replace(recorded, warnings={"a warning": 1}), "dgx-h100") == ()
