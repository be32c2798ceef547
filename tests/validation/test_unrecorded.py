"""What a trace does not tell is said fact by fact, and ``--strict`` fails by it."""

from __future__ import annotations

import json

import pytest

from flint.converters.profilers.torch_collectives import functional_reduction
from flint.validation.matching.unrecorded import ELEMENT_TYPE, GROUP, REDUCTION, SIZES
from flint.validation.report.page import page, ratio_note
from flint.validation.validating import validate
from tests.support.command_line import flint_here
from tests.validation.hand_made import traces, workload
from tests.validation.test_defects import RECORD, changed, observer, says

#: The all-reduce's place among the observer's nodes, and its groups as PyTorch lists them.
REDUCED = 3
GROUPS = [
    {"pg_name": "0", "ranks": [0, 1, 2, 3], "group_size": 4},
    {"pg_name": "1", "ranks": [0, 1], "group_size": 2},
    {"pg_name": "2", "ranks": [0, 2], "group_size": 2},
]


@pytest.fixture(scope="module")
def step():
    return workload()


@pytest.mark.parametrize(
    ("change", "facts"),
    [
        (says(RECORD, 0, Process_Group_Ranks=None), {GROUP: 1}),
        (says(RECORD, 0, In_msg_nelems=None), {SIZES: 1}),
        (says(RECORD, 0, dtype=None), {SIZES: 1, ELEMENT_TYPE: 1}),
        (says("aten::mm", 0, Input_Dims=None), {SIZES: 1, ELEMENT_TYPE: 1}),
    ],
    ids=["group", "elements", "type", "sizes of a product"],
)
def test_each_fact_that_a_trace_does_not_record_is_counted(change, facts, step, tmp_path):
    report = validate(step, [changed(tmp_path, change)])
    assert report.ok
    assert report.unrecorded == facts | {REDUCTION: 1}  # NCCL's records never have it
    assert report.to_json()["not_told"] == report.unrecorded
    assert "Not recorded in the traces" in page(report)


def functional(path, *, group="2", reduction="sum", kind="float", inner="float"):
    """The observer's trace with c10d's op in a functional one in the place of the all-reduce."""
    document = json.loads(observer())
    nodes = document["nodes"]
    first = {"id": 90, "ctrl_deps": 1, "name": "## process_group:init ##", "outputs": {}}
    first["inputs"] = {"values": [json.dumps(GROUPS)], "shapes": [[]], "types": ["String"]}
    first["attrs"] = [{"name": "rf_id", "value": 100}]
    around, called = (
        {"id": number, "ctrl_deps": outer, "name": name, "outputs": {},
         "inputs": {"values": values, "shapes": shapes, "types": types},
         "attrs": [{"name": "rf_id", "type": "uint64", "value": number}]}
        for number, outer, name, values, shapes, types in (
            (50, 1, "_c10d_functional::all_reduce", [[1, 1, 0, 256, 4, "cpu"], reduction, group],
             [[32, 8], [], []], [f"Tensor({kind})", "String", "String"]),
            (51, 50, "c10d::allreduce_", [[[1, 1, 0, 256, 4, "cpu"]], "<Object>", "<Object>"],
             [[[32, 8]], [], []], [f"GenericList[Tensor({inner})]", "Object", "Object"]),
        )
    )  # fmt: skip
    nodes[REDUCED : REDUCED + 1] = [around, called]
    nodes.append(first)
    path.write_text(json.dumps(document))
    return path


@pytest.mark.parametrize("inner", ["float", ""])
def test_a_functional_collective_tells_of_what_it_calls(inner, step, tmp_path):
    report = validate(step, [functional(tmp_path / "et_rank0.json", inner=inner)])
    assert report.ok, report.differences
    assert not report.unrecorded


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"reduction": "max"}, "1,024 bytes f32 maximum among [0, 2]"),
        ({"group": "1"}, "1,024 bytes f32 among [0, 1]"),
        ({"kind": "int", "inner": ""}, "1,024 bytes i32"),
        ({"kind": "int", "inner": "int"}, "1,024 bytes i32"),
    ],
    ids=["reduction", "group", "type of the functional op", "type of both"],
)
def test_what_a_functional_collective_does_otherwise_is_found(changes, said, step, tmp_path):
    report = validate(step, [functional(tmp_path / "et_rank0.json", **changes)])
    assert not report.ok
    assert any(said in item.op for item in report.differences if item.what == "not captured")


def test_only_a_functional_collective_names_its_reduction():
    assert functional_reduction("_c10d_functional::all_reduce", [[1], "MAX", "2"]) == "maximum"
    assert functional_reduction("c10d::allreduce_", [[1], "max"]) == ""
    assert functional_reduction("_c10d_functional::all_reduce", ["", "", "2"]) == ""


@pytest.mark.parametrize(("options", "status"), [((), 0), (("--strict",), 1)])
def test_strict_fails_where_a_fact_is_not_reported(options, status, step, tmp_path):
    step.save_programs(tmp_path / "out")
    [path] = traces(tmp_path, (0,), steps=(1,))
    run = flint_here("validate", "out", "--trace", str(path), *options, cwd=tmp_path)
    assert run.returncode == status, run.stdout
    assert "not recorded in the traces" in run.stdout
    assert "not recorded: reduce op (1)" in run.stdout.splitlines()[-1]


def test_strict_passes_where_all_is_reported(step, tmp_path):
    step.save_programs(tmp_path / "out")
    path = functional(tmp_path / "et_rank0.json")
    run = flint_here("validate", "out", "--trace", str(path), "--strict", cwd=tmp_path)
    assert run.returncode == 0, run.stdout


@pytest.mark.parametrize(
    ("ranks", "without", "including"),
    [((0,), False, True), ((0, 1), True, True), ((0, 1, 2, 3), True, False)],
)
def test_the_note_on_waiting_is_only_there_when_it_is_true(
    ranks, without, including, step, tmp_path
):
    """Of ranks 0 and 1 alone the all-gather's waiting is known, and not the all-reduce's."""
    report = validate(step, traces(tmp_path, ranks), system="dgx-h100")
    note = ratio_note(report)
    assert ("without waiting for other ranks" in note) == without
    assert ("includes" in note) == including
    assert note in page(report)
