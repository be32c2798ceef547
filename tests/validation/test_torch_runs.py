"""PyTorch steps that ran on gloo ranks, by both of PyTorch's profilers."""

from __future__ import annotations

import functools
import json
from dataclasses import replace
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from flint.errors import FlintError, UsageError  # noqa: E402
from flint.observed.classes import OpClass  # noqa: E402
from flint.observed.reading import read_trace  # noqa: E402
from flint.validation.report.rank_report import FUSED  # noqa: E402
from flint.validation.rewrites.cpu_substitutes import DECOMPOSED  # noqa: E402
from flint.validation.rewrites.listed_arguments import LONG_LIST  # noqa: E402
from flint.validation.validating import validate  # noqa: E402
from tests.support.children import run_script  # noqa: E402
from tests.support.shared import once, quick  # noqa: E402
from tests.validation import torch_steps  # noqa: E402
from tests.validation.totals import totals  # noqa: E402

pytestmark = pytest.mark.xdist_group("validation-torch")

STEPS = ("ddp_resnet", "fsdp_tp", "pp_fsdp")
#: Of which light ops are looked at as well.
DROPOUT = "ddp_dropout"
FORMS = ("kineto", "et")


def profiled(folder, name):
    """Run a step on gloo ranks, which leaves their traces in the folder."""
    script = Path(__file__).parent / "torch_profiling.py"
    run_script(script, folder, f"tests.validation.torch_steps:{name}", imported="torch")


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Step name -> folder with the traces of every rank."""

    class Runs(dict):
        def __missing__(self, name):
            self[name] = once(
                tmp_path_factory, f"torch-{name}", lambda folder: profiled(folder, name)
            )
            return self[name]

    return Runs()


@pytest.fixture(scope="module")
def captures():
    """Step name -> workload, captured when it is first asked for."""

    class Captures(dict):
        def __missing__(self, name):
            self[name] = torch_steps.STEPS[name].capture()
            return self[name]

    return Captures()


@pytest.fixture(scope="module")
def reports(captures, runs):
    """Report of a step's name and a form of traces, made once."""

    @functools.cache
    def get(name, form):
        return validate(captures[name], traces(runs[name], form))

    return get


def trace_steps(path):
    return read_trace(path).steps


def traces(folder, form):
    return sorted(folder.glob(f"{form}_rank*.json"))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", quick(STEPS, "ddp_resnet"))
def test_every_collective_gemm_and_attention_of_every_rank_was_captured(
    name, form, captures, reports
):
    report = reports(name, form)
    assert report.ok, (report.verdict, report.differences[:4], report.contradictions[:4])
    assert len(report.ranks) == captures[name].mesh.size
    found = totals(report)
    assert found["captured"] == found["executed"] == found["matched"] + found["by_name"]
    # Kineto lists no element types of lists of tensors, which is what some c10d ops take.
    named = {kind for kind, count in report.classes.items() if count.by_name}
    assert named <= {OpClass.ALL_GATHER, OpClass.REDUCE_SCATTER} if form == "kineto" else not named


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", quick(STEPS, "ddp_resnet"))
def test_every_lighter_op_has_a_partner_or_a_reason(name, form, reports):
    report = reports(name, form)
    light = totals(report, lighter=True)
    # Threads that end ops at the same moment mix up a few of execution traces, more on a busy
    # machine.
    allowed = 0 if form == "kineto" else light["captured"] // 20
    assert report.others <= allowed, report.differences[:8]
    assert light["matched"] > 0.8 * light["captured"]
    # FSDP's parameters go through gloo's buffers, norms are taken apart; DDP's all-reduces are not,
    # but what is mixed up may look like it.
    assert (light["explained"] > allowed) == (name != "ddp_resnet")


@pytest.mark.thorough
@pytest.mark.parametrize("form", FORMS)
def test_dropouts_and_long_lists_of_tensors_have_a_partner_or_a_reason(form, reports):
    """16 dropouts, forward and backward, on two ranks; AdamW on 32 parameters.

    The CPU has no kernel for a dropout; Kineto lists at most 30 tensors, the observer all.  The
    optimizer's counters of steps are the host's: Kineto lists the number that is added to them.
    """
    report = reports(DROPOUT, form)
    assert report.ok
    if form == "kineto":  # threads that end ops at once mix up a few of the observer's
        assert not report.differences
        # Dropout: noise, its scale and a product in place of one op; the gradient: one for one.
        assert report.explained[DECOMPOSED] == 2 * 16 * (1 + 3 + 1 + 1)
    by_name = report.classes[OpClass.ELEMENTWISE].by_name
    assert (by_name > 0) == (form == "kineto") == (LONG_LIST in report.explained)


@pytest.mark.thorough
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    "changes", [{"act": nn.ReLU}, {"dropout": 0.0}, {"optimizer": torch.optim.SGD}], ids=str
)
def test_another_activation_dropout_or_optimizer_is_found(changes, form, runs):
    report = validate(torch_steps.dropped(**changes).capture(), traces(runs[DROPOUT], form))
    assert not report.ok
    assert {item.kind for item in report.differences if item.counts} == {OpClass.ELEMENTWISE}


@pytest.mark.thorough
def test_light_ops_that_a_compiler_may_have_fused_are_not_a_difference(runs, tmp_path):
    """A capture of 16 tanh more than ran, and the mark that ``torch.compile`` leaves."""
    more = torch_steps.dropped(act=lambda: nn.Sequential(nn.GELU(), nn.Tanh())).capture()
    whole = traces(runs[DROPOUT], "kineto")[0]
    assert not validate(more, [whole]).ok
    document = json.loads(whole.read_text())
    mark = {"name": "Torch-Compiled Region: 0/0"}
    document["traceEvents"] += [
        event | mark for event in document["traceEvents"] if event["name"] == "aten::gelu"
    ]
    path = tmp_path / "rank0.json"
    path.write_text(json.dumps(document))
    report = validate(more, [path])
    assert report.ok and report.others and report.notes[FUSED]


@pytest.mark.thorough
def test_messages_of_a_pipeline_are_sends_and_receives(reports):
    """Two stages of four microbatches: each sends and receives four times."""
    classes = reports("pp_fsdp", "kineto").classes
    for kind in (OpClass.SEND, OpClass.RECV):
        assert classes[kind].matched == classes[kind].executed == 4 * 4


@pytest.mark.parametrize("form", FORMS)
def test_collectives_have_the_bytes_that_were_captured(form, reports):
    classes = reports("ddp_resnet", form).classes
    for kind in (OpClass.ALL_REDUCE, OpClass.BROADCAST):
        assert classes[kind].matched == classes[kind].executed > 0
        assert classes[kind].captured_bytes == classes[kind].executed_bytes > 0


@pytest.mark.thorough
def test_one_rank_of_several_is_reported(captures, runs):
    report = validate(captures["fsdp_tp"], traces(runs["fsdp_tp"], "et")[1:2])
    assert report.ranks == [1]
    assert report.verdict.endswith("1 of 4 ranks compared")


@pytest.mark.thorough
def test_another_models_trace_is_refused(captures, runs):
    small = torch_steps.STEPS["ddp_resnet"].at(mesh=(4,)).capture()
    with pytest.raises(FlintError, match="nothing can be concluded"):
        validate(small, traces(runs["fsdp_tp"], "kineto"))


@pytest.mark.thorough
def test_another_number_of_ranks_is_refused(captures, runs):
    with pytest.raises(FlintError, match="a run on 4 ranks; the capture is for 2"):
        validate(captures["ddp_resnet"], traces(runs["fsdp_tp"], "kineto"))


def test_steps_of_different_length_are_refused_until_one_is_chosen(captures, runs, tmp_path):
    first = traces(runs["ddp_resnet"], "kineto")[0]
    document = json.loads(first.read_text())
    events = document["traceEvents"]
    last = next(event for event in events if event["name"] == "aten::addmm")
    events.remove(last)  # of one of the two steps
    path = tmp_path / "rank0.json"
    path.write_text(json.dumps(document))
    with pytest.raises(FlintError, match=r"the steps differ.*choose one with --step"):
        validate(captures["ddp_resnet"], [path])
    kept = [validate(captures["ddp_resnet"], [path], step=step).ok for step in trace_steps(path)]
    assert sorted(kept) == [False, True]


@pytest.mark.thorough
def test_a_gemm_of_other_sizes_is_found(captures, runs):
    from flint.models.torch.resnet import TINY, training

    wider = training(replace(TINY, classes=17)).capture()
    report = validate(wider, traces(runs["ddp_resnet"], "et")[:1])
    assert not report.ok
    counted = {item.kind for item in report.differences if item.counts}
    # The classifier's three products, the bucket that holds its gradient, and the optimizer's ops;
    # sums over the classes: the loss, its gradient, and the gradient of the bias.
    assert counted == {
        OpClass.GEMM, OpClass.ALL_REDUCE, OpClass.ELEMENTWISE, OpClass.REDUCTION,
    }  # fmt: skip
    sums = [
        item.op.partition(" ")[0]
        for item in report.differences
        if item.kind == OpClass.REDUCTION and item.what == "not executed"
    ]
    assert sums == [
        "aten._log_softmax.default", "aten.nll_loss_forward.default",
        "aten._log_softmax_backward_data.default", "aten.sum.dim_IntList",
    ]  # fmt: skip
    assert report.classes[OpClass.GEMM].matched == 0


def test_the_same_rank_twice_is_refused(captures, runs):
    first = traces(runs["ddp_resnet"], "kineto")[0]
    with pytest.raises(UsageError, match="rank 0 is also in another trace"):
        validate(captures["ddp_resnet"], [first, first])
