"""ResNet-50 under DDP on two A100s with NCCL: a real trace (origin: its README) and its capture."""

from __future__ import annotations

import functools
import json
from dataclasses import replace
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from flint.converters.profilers.kineto.observe import observe  # noqa: E402
from flint.graph.graph import with_tables  # noqa: E402
from flint.models.torch.resnet import RESNET50, training  # noqa: E402
from flint.observed.classes import OpClass  # noqa: E402
from flint.validation.matching.form_reasons import IN_PLACE, LIBRARY  # noqa: E402
from flint.validation.validating import validate  # noqa: E402

pytestmark = [pytest.mark.xdist_group("torch-resnet"), pytest.mark.thorough]

DATA = Path(__file__).parents[1] / "data"
TRACE = DATA / "traces/resnet50_ddp_nccl_rank0.json.gz"
#: Facts of the same trace, taken from it by another program (tests/data/kineto/resnet50_ddp.py).
FACTS = json.loads((DATA / "kineto/resnet50_ddp.json").read_text())


@functools.cache
def workload():
    return training(replace(RESNET50, images=32, soft=True, decay=0.0)).capture()


@functools.cache
def report():
    return validate(workload(), [TRACE])


def test_the_reader_finds_the_collectives_with_their_sizes_and_groups():
    trace = observe(TRACE)
    sizes = {"Float": 4, "Long": 8}
    theirs = [op.split() for op in FACTS["ops"] if len(op.split()) == 3]
    told = [
        trace.facts[number]
        for number in trace.op.tolist()
        if trace.facts[number].kind.collective and trace.facts[number].parts
    ]
    assert [(f.name, f.bytes) for f in told] == [
        (name, int(count) * sizes[dtype]) for name, dtype, count in theirs
    ]
    assert {facts.group for facts in told} == {(0, 1)}
    assert (trace.world, trace.ranks, trace.backend) == (2, (0,), "gpu")


def test_every_all_reduce_and_broadcast_matches_by_its_size():
    for kind, count in ((OpClass.ALL_REDUCE, 5), (OpClass.BROADCAST, 2)):
        found = report().classes[kind]
        assert found.captured == found.executed == found.matched == found.in_order == count
        assert found.captured_bytes == found.executed_bytes


def test_convolutions_and_gemms_match_by_name_and_that_is_not_a_match_by_size():
    for kind, count in ((OpClass.CONVOLUTION, 53 + 53), (OpClass.GEMM, 3)):
        found = report().classes[kind]
        assert found.captured == found.executed == found.by_name == found.in_order == count
        assert found.matched == 0
    assert "agrees as far as the traces show" in report().verdict
    assert "109 agree in name and order" in report().verdict


def test_every_launch_of_the_step_is_accounted_for():
    counts = report().classes.values()
    assert sum(count.executed for count in counts) == len(FACTS["ops"]) == 906
    assert sum(count.captured for count in counts) == 906
    assert (report().failures, report().others) == (0, 0)
    assert set(report().explained) == {LIBRARY, IN_PLACE}


def test_dependencies_hold_and_kernels_have_times():
    assert report().contradicted == 0
    assert report().edges > 500
    # Kernels and copies on the GPU; the four largest all-reduces take milliseconds on this link.
    assert report().times.classes[OpClass.ALL_REDUCE].measured > 1e-3
    assert report().times.classes[OpClass.CONVOLUTION].measured > 1e-3


@pytest.mark.parametrize(
    "change",
    [
        lambda item: {"operand_bytes": (item.operand_bytes[0] + 4,)},
        lambda item: {"kind": "all_gather", "reduction": None},
    ],
    ids=["one float more", "another kind"],
)
def test_one_changed_collective_fails(change):
    [program] = workload().programs
    tables = program.graph.tables
    items = list(tables.communications)
    number = next(n for n, item in enumerate(items) if item.kind == "all_reduce")
    items[number] = replace(items[number], **change(items[number]))
    graph = with_tables(program.graph, replace(tables, communications=tuple(items)))
    changed = replace(workload(), programs=(replace(program, graph=graph),))
    found = validate(changed, [TRACE])
    assert not found.ok
    assert found.failures == 2
    assert found.verdict.startswith("differs: 2 ops")
    assert {item.what for item in found.differences} == {"not executed", "not captured"}
