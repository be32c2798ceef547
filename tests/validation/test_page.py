"""The report's page, and what a report says of the capture."""

from __future__ import annotations

from dataclasses import replace

import pytest

from flint.observed.classes import OpClass
from flint.observed.columns import CUT_OFF
from flint.validation.report.page import page
from flint.validation.report.report import WARNED, Difference, Report
from flint.validation.validating import validate
from tests.converters.chakra.read.test_observe import pytorch_step
from tests.validation.hand_made import workload

TEXT = "dropout left out"


def test_many_traces_are_a_few_and_their_number():
    names = [f"kineto_rank{n}.json" for n in range(512)]
    text = page(Report(names, 512, True))
    assert "kineto_rank0.json, " in text
    assert "... (512)" in text
    assert "kineto_rank9.json" not in text
    assert "..." not in page(Report(names[:3], 3, True))


@pytest.mark.parametrize(("larger", "told"), [(False, 0), (True, 1)])
def test_what_the_capture_left_out_is_reported_where_a_run_differs(larger, told, tmp_path):
    path = pytorch_step(tmp_path / "run.2.et")
    if larger:  # 1024 bytes -> 2048
        path.write_bytes(path.read_bytes().replace(b"\x48\x80\x08", b"\x48\x80\x10"))
    report = validate(replace(workload(), warnings={TEXT: 3}), [path])
    assert report.ok is not larger
    assert [report.notes.get(WARNED + TEXT, 0)] == [3 * told]
    text = page(report)
    assert text.count("What the capture left out or assumed") == told
    assert text.count(f"<li>{TEXT} (3)</li>") == told


def test_what_cut_off_traces_lack_is_no_difference():
    missing = Difference("not executed", OpClass.GEMM, 0, 7, "aten.mm.default", "train.py:7", True)
    report = Report(["rank0.json"], 1, True)
    report.add(missing)
    assert report.verdict.startswith("differs: 1 ops are unmatched")
    report.note(CUT_OFF)
    assert report.verdict.startswith("nothing can be concluded: 1 captured ops are not in the")
    assert not report.ok
    report.add(replace(missing, what="not captured"))
    assert report.verdict.startswith("differs: 2 ops")
