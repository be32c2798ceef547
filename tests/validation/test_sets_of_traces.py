"""Several steps, several ranks: which step is compared, clocks, missing ranks, times."""

from __future__ import annotations

import json

import pytest

from flint.cost.collectives import collective_cost
from flint.cost.placement import place
from flint.cost.systems import load_system
from flint.errors import FlintError, UsageError
from flint.mesh.mesh import Mesh
from flint.observed.classes import OpClass
from flint.observed.clocks import Meetings, Presence
from flint.validation.report.page import page
from flint.validation.report.report import Difference
from flint.validation.report.sanity_checks import conclude
from flint.validation.validating import validate
from tests.validation.hand_made import Events, W, X, groups, traces, workload


@pytest.fixture(scope="module")
def step():
    return workload()


def one(folder, *steps, rank=0):
    """A trace of one rank; per step what ``Events.step`` is given."""
    events = Events(rank)
    for place_, options in enumerate(steps):
        events.step(place_ + 1, 10**7 + 1000 * place_, **options)
    return events.save(folder)


def test_all_ranks_agree_and_nothing_is_said_of_their_clocks(step, tmp_path):
    report = validate(step, traces(tmp_path))
    assert report.ok
    assert report.verdict == (
        "agrees: all 16 collectives, GEMMs, convolutions and attentions ran as captured; "
        "not recorded: reduce op (4); 4 of 4 ranks compared"
    )
    assert set(report.step) == {"ProfilerStep#3"}
    assert {clock.ahead for clock in report.clocks} == {0}
    assert report.notes == {}


def test_steps_of_warming_up_are_left_out_and_the_op_that_differs_is_named(step, tmp_path):
    report = validate(step, [one(tmp_path, {"extra": 2}, {}, {})])
    assert (report.ok, report.step) == (True, ["ProfilerStep#3"])
    assert (
        "not compared: ProfilerStep#1, unlike the other 2 steps: aten::mm 1x16x8x32 "
        "(batch, m, n, k) f32 ran 3 times in ProfilerStep#1 and once in ProfilerStep#3"
    ) in report.notes


def test_a_last_step_that_differs_from_most_is_left_out_too(step, tmp_path):
    report = validate(step, [one(tmp_path, {}, {}, {"extra": 1})])
    assert (report.ok, report.step) == (True, ["ProfilerStep#2"])


def add_products(path, *extra):
    """Add products of square matrices to steps of a trace: (step, size)."""
    document = json.loads(path.read_text())
    events = document["traceEvents"]
    product = next(e for e in events if e["name"] == "aten::mm")
    marks = {e["name"]: e["ts"] for e in events if "ProfilerStep#" in e["name"]}
    for name, size in extra:
        number = len(events) + 10**6
        args = product["args"] | {
            "Input Dims": [[size, size], [size, size]], "External id": number,
            "Record function id": number,
        }  # fmt: skip
        events.append(product | {"ts": marks[name] + 1, "dur": 0, "args": args})
    path.write_text(json.dumps(document))


def test_of_steps_that_all_differ_the_one_with_nothing_else_is_compared(step, tmp_path):
    """DDP of two models arranges the buckets of each anew in another step."""
    path = one(tmp_path, {}, {}, {})
    add_products(path, ("ProfilerStep#1", 5), ("ProfilerStep#3", 7))
    report = validate(step, [path])
    assert (report.ok, report.step) == (True, ["ProfilerStep#2"])
    assert [note for note in report.notes if "than what ProfilerStep#2 and all others have" in note]


def test_the_last_step_is_compared_if_the_one_before_ran_the_same_and_more(step, tmp_path):
    """DDP in a profile from its first step on: other buckets, these with what makes them, these."""
    path = one(tmp_path, {}, {}, {})
    later = (("ProfilerStep#2", 7), ("ProfilerStep#2", 9), ("ProfilerStep#3", 7))
    add_products(path, ("ProfilerStep#1", 5), *later)
    report = validate(step, [path])
    assert report.step == ["ProfilerStep#3"]
    said = "not compared: ProfilerStep#1, ProfilerStep#2, unlike ProfilerStep#3, in which nothing"
    assert [note for note in report.notes if note.startswith(said)]


@pytest.mark.parametrize("extras", [(0, 1), (0, 1, 2), (1, 1, 0, 0)])
def test_steps_without_a_majority_are_refused_with_the_op_that_differs(extras, step, tmp_path):
    path = one(tmp_path, *({"extra": extra} for extra in extras))
    said = (
        r"the steps differ: aten::mm 1x16x8x32 .* ran .* in ProfilerStep#\d and .*: "
        r"choose one with --step"
    )
    with pytest.raises(FlintError, match=said):
        validate(step, [path])
    first = next(n for n, extra in enumerate(extras, 1) if extra == 0)
    assert validate(step, [path], step=str(first)).ok


@pytest.mark.parametrize("extras", [(2, 1, 0, 0), (1, 2, 3, 0, 0)])
def test_equal_steps_after_several_unequal_ones_are_compared(extras, step, tmp_path):
    """As of two models by turns: each has its own first step and makes its buckets anew once."""
    report = validate(step, [one(tmp_path, *({"extra": extra} for extra in extras))])
    assert (report.ok, report.step) == (True, [f"ProfilerStep#{len(extras)}"])
    assert any(note.startswith("not compared: ProfilerStep#1") for note in report.notes)


@pytest.mark.parametrize("compiled", [False, True])
def test_a_compiler_may_order_products_but_not_against_their_data(compiled, tmp_path):
    """Of two products the second takes the first one's gathered result; here it
    runs before.
    """
    step = workload()
    events = Events(0)
    of = groups(0)
    if compiled:
        events.event("cpu_op", "Torch-Compiled Region: 0/0", 0, 900, 1, {})
    events.product(5, (32, 16), (16, 8))
    events.product(20, X, W)
    events.collective(95, "_allgather_base", 128, of["model"], 100, 100)
    events.collective(300, "allreduce", 256, of["data"], 350, 50)
    report = validate(step, [events.save(tmp_path)])
    assert report.contradictions and not report.ok
    moved = [item for item in report.differences if item.what == "in another order"]
    assert [item.counts for item in moved] == [not compiled]


def test_times_are_of_one_step_or_the_mean_of_all(step, tmp_path):
    path = one(tmp_path, {"slow": 1}, {"slow": 4}, {"slow": 1})
    # Two products of 10 us each; four times that in the second step.
    for wanted, micros in ((None, 20), ("2", 80), ("mean", (20 + 80 + 20) / 3)):
        times = validate(step, [path], step=wanted).times
        assert times.classes[OpClass.GEMM].matched == pytest.approx(micros * 1e-6, abs=2e-9)
        assert times.steps == (3 if wanted == "mean" else 1)


def test_waiting_for_other_ranks_is_distinguished(step, tmp_path):
    report = validate(step, traces(tmp_path))
    gather, reduce = (report.times.classes[k] for k in (OpClass.ALL_GATHER, OpClass.ALL_REDUCE))
    # Ranks 0 and 2 are in the all-gather for 100 us, the late ones 1 and 3 for 60 us.
    assert gather.matched == pytest.approx(320e-6)
    assert gather.waiting == pytest.approx(80e-6)
    assert (reduce.matched, reduce.waiting) == (pytest.approx(200e-6), 0)


def test_modelled_times_are_those_of_the_cost_model(step, tmp_path):
    report = validate(step, traces(tmp_path), system="dgx-h100")
    system = load_system("dgx-h100")
    overhead = system.accelerator.launch_overhead
    expected = {}
    for item in step.graph.tables.communications:
        [profile] = place(item.groups, system).profiles
        size = item.bytes_in * (2 if item.kind == "all_gather" else 1)  # of the whole, as costed
        expected[item.kind] = collective_cost(item.kind, size, profile).seconds + overhead
    classes = report.times.classes
    assert classes[OpClass.ALL_GATHER].modelled == pytest.approx(4 * expected["all_gather"])
    assert classes[OpClass.ALL_REDUCE].modelled == pytest.approx(4 * expected["all_reduce"])
    simulated = step.simulate("dgx-h100", granularity="op")
    assert report.times.total(collective=False).modelled == pytest.approx(
        4 * simulated.compute_seconds
    )
    assert "Time per rank, modelled for dgx-h100" in page(report)
    told = report.to_json()["times"]["per_rank"]
    assert told["all-gather"]["ratio"] == pytest.approx(60e-6 / expected["all_gather"])
    assert told["communication"]["waiting_seconds"] == pytest.approx(20e-6)


@pytest.mark.parametrize("ahead", [3_000, -2_500_000])
def test_a_clock_that_goes_wrong_is_measured_and_changes_no_verdict(ahead, step, tmp_path):
    report = validate(step, traces(tmp_path, ahead=(0, 0, ahead, 0)))
    assert report.ok
    assert report.contradicted == 0
    [clock] = [clock for clock in report.clocks if clock.rank == 2]
    assert clock.ahead == pytest.approx(ahead * 1e-6, abs=1e-9)
    # Rank 3 meets rank 2 (model) and rank 1 (data), and its own clock is right.
    assert {clock.ahead for clock in report.clocks if clock.rank != 2} == {0}
    said = [text for text in report.notes if "clock" in text]
    side = "ahead of" if ahead > 0 else "behind"
    assert said == [
        f"the clock of rank 2 is {abs(ahead) / 1e3:,.3f} ms {side} rank 0's, as 1 collective "
        "must overlap"
    ]


def test_clocks_are_not_blamed_where_the_collectives_themselves_differ(step, tmp_path):
    """Routing by data: the n-th exchange of two ranks need not be the same one."""
    report = validate(step, traces(tmp_path))
    apart = Meetings()
    for number, (first, second) in enumerate([(0, 10**6), (2 * 10**6, 10**6)]):
        for rank, start in ((0, first), (1, second)):
            key = (OpClass.ALL_TO_ALL, (0, 1), number)
            apart.add(rank, key, Presence(start, start + 1000, 1000))
    conclude(report, step, apart)
    [said] = report.notes
    assert "It drifts, or the traces are of different runs" in said
    report.notes.clear()
    report.add(Difference("not executed", OpClass.ALL_TO_ALL, 0, 0, "all_to_all", "moe.py:7", True))
    conclude(report, step, apart)
    [said] = [text for text in report.notes if "clock" in text]
    assert "may not be the same ones" in said
    assert "different runs" not in said


def test_a_folder_with_a_file_per_rank_is_a_set(step, tmp_path):
    traces(tmp_path)
    (tmp_path / "notes.txt").write_text("no trace")
    report = validate(step, [tmp_path])
    assert (report.ok, report.ranks) == (True, [0, 1, 2, 3])
    (tmp_path / "other").mkdir()
    with pytest.raises(
        FlintError, match=r"other: no trace in the folder: it contains neither \.xplane\.pb files"
    ):
        validate(step, [tmp_path / "other"])


def test_missing_ranks_are_named(step, tmp_path):
    report = validate(step, traces(tmp_path, ranks=(1,)))
    assert report.ok
    assert report.verdict.endswith("1 of 4 ranks compared")
    assert "no trace of ranks 0, 2-3: they are not checked" in report.notes


def test_a_run_on_another_mesh_is_refused_by_its_groups(tmp_path):
    turned = workload(Mesh((2, 2), ("model", "data")))
    with pytest.raises(FlintError, match=r"\[0, 1\], \[0, 2\]") as caught:
        validate(workload(Mesh((4, 1), ("data", "model"))), traces(tmp_path))
    assert "another mesh" in str(caught.value)
    report = validate(turned, traces(tmp_path))  # the same groups with their roles exchanged
    assert not report.ok
    assert report.verdict.startswith("differs")


def test_a_rank_twice_says_what_to_do_where_the_files_do_not_tell(step, tmp_path):
    events = Events(0)
    events.step(1, 10**7)
    names = (events.save(tmp_path, world=0, name=name) for name in ("a.json", "b.json"))
    with pytest.raises(UsageError, match=r"does not name its rank: name the files rank0"):
        validate(step, list(names))


def test_a_system_without_times_to_compare_is_reported(step, tmp_path):
    nodes = [
        {
            "id": n + 2, "ctrl_deps": 1, "name": name, "outputs": {},
            "inputs": {"values": [], "shapes": shapes, "types": ["Tensor(float)"] * len(shapes)},
            "attrs": [{"name": "rf_id", "type": "uint64", "value": n}, *attrs],
        }
        for n, (name, shapes, attrs) in enumerate(
            [
                ("aten::mm", [[16, 32], [32, 8]], []),
                ("record_param_comms", [], collective("_allgather_base", 128, 0)),
                ("aten::mm", [[32, 16], [16, 8]], []),
                ("record_param_comms", [], collective("allreduce", 256, 1)),
            ]
        )
    ]  # fmt: skip
    path = tmp_path / "et_rank0.json"
    path.write_text(json.dumps({"schema": "1.1.1-chakra.0.0.4", "nodes": nodes}))
    report = validate(step, [path], system="dgx-h100")
    assert report.ok, report.differences
    assert "the traces have no times to compare modelled times with" in report.notes
    assert report.to_json()["times"] is None


def collective(name, elements, stride_log):
    """Attributes of a record on rank 0 since schema 1.1.1."""
    values = {
        "collective_name": name, "dtype": "Float", "in_msg_nelems": elements, "pg_size": 2,
        "global_rank_start": 0, "global_rank_stride": 2**stride_log, "pg_name": "1",
    }  # fmt: skip
    return [{"name": key, "type": "string", "value": value} for key, value in values.items()]
