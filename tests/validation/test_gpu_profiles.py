"""JAX profiles of GPUs: a compiled module run in thought, as the profiler would write it."""

from __future__ import annotations

import functools
import importlib
import math
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from flint.converters.profilers.xplane.observe import observe as observe_xplane
from flint.errors import FlintError
from flint.graph.graph import with_tables
from flint.observed.classes import OpClass
from flint.validation.expected.ops import expected_of
from flint.validation.rewrites.all_reduces import ABSORBED, FOLDED
from flint.validation.rewrites.combined_collectives import COMBINED
from flint.validation.rewrites.gemms import CUT, MERGED, PADDED
from flint.validation.validating import validate
from tests.support.shared import quick, quick_rows
from tests.validation.xplanes import Plane, Run, field, profile

pytestmark = pytest.mark.xdist_group("validation-gpu")

DATA = Path(__file__).parents[1] / "data/optimized"
MODELS = {
    "gpu_llama": "flint.models.jax.llama3:train_tiny",
    "gpu_decode_cublas": "flint.models.jax.decode:decode_tiny",
    "gpu_moe": "flint.models.jax.moe:train_tiny",
    "gpu_pipeline": "flint.models.jax.pipeline:train_tiny",
    "gpu_resnet": "flint.models.jax.resnet:train_tiny",
}
#: Laid side by side in one buffer; other combined collectives have an operand for each.
SIDE_BY_SIDE = COMBINED[OpClass.ALL_REDUCE]
#: How the compiler's programs differ from the captured ones, combined operands aside.
EXPLAINED = {
    "gpu_llama": {MERGED, FOLDED, ABSORBED, SIDE_BY_SIDE},
    "gpu_decode_cublas": {MERGED, PADDED},
    "gpu_moe": {MERGED, FOLDED, ABSORBED, SIDE_BY_SIDE},
    "gpu_resnet": {SIDE_BY_SIDE},
    "gpu_pipeline": {MERGED, CUT, FOLDED, ABSORBED, SIDE_BY_SIDE},
}


@functools.cache
def captured(name):
    """The step of which ``name`` is a compiled module."""
    module, attribute = MODELS[name].split(":")
    return getattr(importlib.import_module(module), attribute).capture()


@pytest.fixture(scope="module")
def runs():
    return {name: Run(DATA / f"{name}.hlo.pb.gz") for name in MODELS}


def facts_of(trace, rank, step):
    return [trace.facts[trace.op[row]] for row in trace.rows(rank, step)]


@pytest.mark.parametrize("kernels", quick([(0,), (0, 1), (0, 0, 1), (0, 1, 0)], (0, 1, 0)))
def test_kernels_are_identified_by_run_and_op_and_counted_once(kernels, runs, tmp_path):
    """An op may run one kernel several times, for example the change of each operand's layout."""
    run = runs["gpu_llama"]
    trace = observe_xplane(profile(run, tmp_path / "g.xplane.pb", 8, runs=3, kernels=kernels))
    assert (trace.backend, trace.world, trace.ranks) == ("gpu", 8, tuple(range(8)))
    assert trace.steps == ("run 0", "run 1", "run 2")
    names = Counter(run.executed())
    for step in range(3):
        seen = Counter(facts.name for facts in facts_of(trace, 5, step))
        # An op of several contractions is one row each; these modules have none.
        assert seen == names
        rows = trace.rows(5, step)
        assert trace.duration[rows].sum() == 500 * len(kernels) * sum(names.values())
    assert trace.notes["events of a device that name no HLO op (copies, CUDA graphs)"] == 24


def multiply_adds(facts):
    return sum(math.prod(dims) for item in facts for dims in item.gemms or ())


def test_what_a_gpu_multiplies_is_what_was_captured(runs, tmp_path):
    # The compiler merges products of the same operand into one; their sum stays.
    expected = expected_of(captured("gpu_llama"), 0)
    wanted = [expected.facts[number] for number in expected.op.tolist()]
    trace = observe_xplane(profile(runs["gpu_llama"], tmp_path / "g.xplane.pb", 8))
    assert multiply_adds(facts_of(trace, 0, 1)) == multiply_adds(wanted) > 0


def kinds_of_several_buffers(module):
    """Classes of the collectives that have several operands in a compiled module."""
    found = {
        OpClass(item.opcode.removesuffix("-start"))
        for computation in module.computations
        for item in computation.instructions
        if item.opcode.startswith(("all-reduce", "all-gather", "reduce-scatter"))
        and len(item.operand_ids) > 1
    }
    return found


@pytest.fixture(scope="module")
def reports(runs, tmp_path_factory):
    """Captures against what the GPU's compiler has made of the same steps."""
    known = {}

    def get(name):
        if name not in known:
            path = profile(runs[name], tmp_path_factory.mktemp(name) / "g.xplane.pb", 2, runs=1)
            known[name] = validate(captured(name), [path])
        return known[name]

    return get


@pytest.mark.parametrize("name", quick(MODELS, "gpu_llama", "gpu_decode_cublas", "gpu_resnet"))
def test_what_a_gpu_runs_was_captured_and_every_rewrite_is_named(name, runs, reports):
    report = reports(name)
    left = {(item.kind, item.op) for item in report.differences if item.counts}
    if name == "gpu_pipeline":  # of a chain of three all-reduces two have gone into other sums
        assert left == {
            (OpClass.ALL_REDUCE, f"all_reduce 4 bytes f32 among [0, {n}]") for n in (1, 2)
        } | {(OpClass.ALL_REDUCE, f"all_reduce 4 bytes f32 among [{n}]") for n in ("0, 1", "1, 3")}
    else:
        assert report.ok, left
    assert report.contradicted == 0
    absorbed = report.classes[OpClass.ALL_REDUCE].explained if ABSORBED in EXPLAINED[name] else 0
    assert (" are unmatched for a known reason" in report.verdict) == bool(absorbed and report.ok)
    gemms = report.classes[OpClass.GEMM]
    assert gemms.matched == gemms.captured
    known = {MERGED, PADDED, CUT, FOLDED, ABSORBED, *COMBINED.values()}
    combined = {COMBINED[kind] for kind in kinds_of_several_buffers(runs[name].module)}
    assert set(report.explained) & known == EXPLAINED[name] | combined
    for kind, count in report.classes.items():
        if kind.collective and kind != OpClass.ALL_REDUCE:
            assert count.matched == count.captured > 0


def altered(workload, change):
    """The workload with its first all-reduce changed."""
    [program] = workload.programs
    tables = program.graph.tables
    items = list(tables.communications)
    number = next(n for n, item in enumerate(items) if item.kind == "all_reduce")
    items[number] = replace(items[number], **change(items[number]))
    graph = with_tables(program.graph, replace(tables, communications=tuple(items)))
    return replace(workload, programs=(replace(program, graph=graph),))


@pytest.mark.parametrize(
    "change",
    [
        lambda item: {"operand_bytes": (item.operand_bytes[0] + 4,)},
        lambda item: {"groups": item.groups.complement()},
        lambda item: {"kind": "all_gather", "reduction": None},
    ],
    ids=["bytes", "group", "kind"],
)
@pytest.mark.parametrize("name", ["gpu_llama", "gpu_resnet"])
def test_a_changed_all_reduce_is_not_explained_away(name, change, runs, tmp_path):
    workload = altered(captured(name), change)
    path = profile(runs[name], tmp_path / "g.xplane.pb", 1, runs=1)
    assert not validate(workload, [path]).ok


def test_a_product_that_was_not_captured_is_not_explained_away(runs, tmp_path):
    workload = captured("gpu_decode_cublas")
    [program] = workload.programs
    tables = program.graph.tables
    body = next(graph for graph, _ in program.graph.walk() if graph is not program.graph)
    number = next(int(n) for n in body.work_gemm if n >= 0)
    gemms = list(tables.gemms)
    batch, m, n, k = gemms[number]
    gemms[number] = (batch, m, n + 24, k)
    graph = with_tables(program.graph, replace(tables, gemms=tuple(gemms)))
    wrong = replace(workload, programs=(replace(program, graph=graph),))
    path = profile(runs["gpu_decode_cublas"], tmp_path / "g.xplane.pb", 1, runs=1)
    report = validate(wrong, [path])
    assert not report.ok
    assert {item.kind for item in report.differences if item.counts} == {OpClass.GEMM}


class Otherwise(Run):
    """A module of which one instruction ran once less or once more, the first time."""

    def __init__(self, path, name, more):
        super().__init__(path)
        self.name, self.more = name, more

    def executed(self):
        found = super().executed()
        place = found.index(self.name)
        return [*found[:place], *[self.name] * 2 * self.more, *found[place + 1 :]]


#: Instructions in loops and in entries; of the last the absence would explain itself as a rewrite.
ONCE = {
    "gpu_resnet": ("all-reduce-start", "cudnn-conv"),
    "gpu_moe": ("all-gather-start", "all-reduce-start.5"),
    "gpu_decode_cublas": ("all-reduce-start", "custom-call"),
}


@pytest.mark.parametrize("more", [False, True], ids=["less", "more"])
@pytest.mark.parametrize(
    ("name", "begin"),
    quick_rows(
        [(n, b) for n, found in ONCE.items() for b in found],
        ("gpu_resnet", "cudnn-conv"),
    ),
)
def test_an_instruction_that_ran_once_less_or_more_differs(name, begin, more, runs, tmp_path):
    workload = captured(name)
    heavy = next(one for one in runs[name].executed() if one.startswith(begin))
    run = Otherwise(DATA / f"{name}.hlo.pb.gz", heavy, more)
    report = validate(workload, [profile(run, tmp_path / "g.xplane.pb", 1, runs=1)])
    assert not report.ok
    assert any(item.counts for item in report.differences)


def test_calls_of_cublas_are_products_with_the_sizes_of_their_configuration(runs, tmp_path):
    trace = observe_xplane(profile(runs["gpu_decode_cublas"], tmp_path / "g.xplane.pb", 1))
    calls = [facts for facts in facts_of(trace, 0, 0) if facts.name.startswith("custom-call")]
    assert {facts.kind for facts in calls} == {OpClass.GEMM}
    # Queries of a token times 64 model dims by heads' 64, padded to 8 rows by the compiler.
    assert (1, 8, 64, 64) in {dims for facts in calls for dims in facts.gemms}


def test_an_op_in_a_loop_runs_as_often_as_its_kernels_come(tmp_path, runs):
    run = runs["gpu_llama"]
    counts = Counter(run.executed())
    in_loop = [name for name, count in counts.items() if count > 1]
    assert in_loop  # layers are a loop
    trace = observe_xplane(profile(run, tmp_path / "g.xplane.pb", 1, runs=1, kernels=3))
    seen = Counter(facts.name for facts in facts_of(trace, 0, 0))
    assert {name: seen[name] for name in in_loop} == {name: counts[name] for name in in_loop}


def test_run_numbers_may_be_any_64_bits(runs, tmp_path):
    plane = Plane("/device:TPU:0")
    name = next(iter(runs["gpu_llama"].executed()))
    for number, run in enumerate((1 << 63, 5)):
        stats = {"hlo_op": name, "hlo_module": "m", "program_id": 1, "run_id": run}
        plane.event("XLA Ops", name, 10 + 10 * number, 5, **stats)
    metadata = Plane("/host:metadata")
    metadata.blobs.append(("m(1)", runs["gpu_llama"].data))
    path = tmp_path / "t.xplane.pb"
    path.write_bytes(b"".join(field(1, item.encoded()) for item in (plane, metadata)))
    trace = observe_xplane(path)
    assert (trace.backend, trace.step.tolist()) == ("tpu", [0, 1])


def test_a_program_without_its_hlo_is_refused(tmp_path):
    plane = Plane("/device:GPU:0")
    plane.event("Stream #1", "k", 10, 5, hlo_op="dot.1", hlo_module="jit_f", program_id=3)
    path = tmp_path / "g.xplane.pb"
    path.write_bytes(field(1, plane.encoded()))
    with pytest.raises(FlintError, match=r"the HLO of jit_f\(3\) is not in the trace"):
        observe_xplane(path)


def test_times_that_are_none_are_refused(tmp_path):
    plane = Plane("/device:GPU:0")
    plane.event("Stream #1", "k", 1 << 63, 5, hlo_op="dot.1", hlo_module="jit_f", program_id=3)
    path = tmp_path / "g.xplane.pb"
    path.write_bytes(field(1, plane.encoded()))
    with pytest.raises(FlintError):
        observe_xplane(path)
