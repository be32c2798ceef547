"""Published profiles of many makers, replayed and compared with an independent count.

``data/profiles/counts.csv`` is a count of whole files that was made elsewhere; ``counts.py`` agrees
with it, and counts the step that is converted.  What the table of docs/post-execution.md says is
what it finds:

    python -m tests.post_execution.test_corpus

Traces of your own are compared in the same way, each file and each archive a run of its own:

    FLINT_TRACES=/folder python -m pytest tests/post_execution/test_corpus.py -m thorough
"""

from __future__ import annotations

import os
import tarfile
import tempfile
from bisect import bisect_right
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from flint.errors import FlintError
from flint.post_execution.converting import convert_traces
from flint.simulation.recording import HOST_LANE, record
from tests.post_execution.counts import count, counted, device_events, events_of
from tests.post_execution.jax_counts import busy, compare_runs, runs_of
from tests.support.profiles import published, unpacked
from tests.support.shared import quick

ROWS = published()
COUNTED = [
    name
    for name, row in ROWS.items()
    if row["device_events"] not in ("", "0") or name == "mi210_device_alone.json.gz"
]
#: Execution traces have no times, the others no device or several ranks.
EXECUTION = [name for name in ROWS if "_et" in name]
QUICK = (
    "call_stack.json.xz", "deepseek_train.json.gz", "event_sync.json.gz", "mtia_rank0.json.gz",
    "mi250_minitoy.json.gz", "nccl_before_2.2_rank0.json.gz", "sglang_decode.json.gz",
)  # fmt: skip
#: A profile of JAX, and the kernel that each of its runs begins with.
JAX, JAX_BEGIN = "jax_conv_mi300.xplane.pb.xz", "loop_transpose_fusion.kd"
DOCS = Path(__file__).parents[2] / "docs" / "post-execution.md"

FOLDER = os.environ.get("FLINT_TRACES", "")
ENDINGS = (".json", ".json.gz", ".tar.gz", ".tgz", ".zip", ".sqlite", ".xplane.pb")
FILES = sorted(p for p in Path(FOLDER or os.devnull).rglob("*") if p.name.endswith(ENDINGS))
#: Words of a refusal that are about a file which has nothing to convert.
NOTHING = (
    "neither",
    "no trace",
    "no .json",
    "nothing ran",
    "not an xplane",
    "not an export",
    "both for rank",
)


def test_every_published_profile_is_compared():
    others = {"gloo_rank34.json.gz", "dlrm_kineto.tar.xz", "jax_conv_mi300.xplane.pb.xz"}
    assert set(ROWS) == {*COUNTED, *EXECUTION, *others}


def replayed(path):
    """A profile of one rank: its workload, the replay, (begin, end) of its events, nanoseconds."""
    marked = any(e.get("name", "").startswith("ProfilerStep") for e in events_of(path))
    workload = convert_traces([path], step=None if marked else "all")
    [name] = [program.name for program in workload.programs if program.timing is not None]
    [rank] = [rank for rank in record(workload).ranks if rank.program == name]
    ran = rank.slot != HOST_LANE
    first = int(rank.start[ran].min())
    times = ((rank.start[ran] - first) // 1000, (rank.end[ran] - first) // 1000)
    return workload, workload.simulate(), sorted(zip(*(t.tolist() for t in times), strict=True))


def compare(path):
    """The replay of a profile with the count of its step: (count, replay).

    The span, the busy time and the sum of each stream are within 0.1 % or a microsecond; where
    each event is a node, so is the begin of each.
    """
    found = counted(path)
    workload, result, times = replayed(path)
    assert (result.kernels, result.communication, result.host) == ("measured",) * 3
    assert result.step_seconds * 1e6 == pytest.approx(found.span, rel=1e-3, abs=1)
    [program] = [program for program in workload.programs if program.timing is not None]
    figures = next(item for item in result.programs if item.name == program.name).figures
    spent = (figures.compute_seconds + figures.exposed_communication_seconds) * 1e6
    assert spent == pytest.approx(found.busy, rel=1e-3, abs=1)
    measured = np.maximum(program.graph.measured_by_node(), 0).sum() / 1e3
    assert measured == pytest.approx(found.total, rel=1e-3, abs=1)
    if len(times) == found.events:
        assert found.by_stream(times) == pytest.approx(found.by_stream(), rel=1e-3, abs=1000)
        begins = [abs(low - event[0]) for (low, _), event in zip(times, found.times, strict=True)]
        assert max(begins) <= 1000
    return found, result


@pytest.mark.parametrize("name", quick(COUNTED, *QUICK))
def test_a_profile_takes_its_measured_times_again(name, tmp_path):
    path = unpacked(name, tmp_path)
    row, whole = ROWS[name], count(device_events(events_of(path)))
    if row["device_events"]:
        assert whole.events == int(row["device_events"])
        assert len(whole.by_stream()) == int(row["streams"])
        for figure, column in ((whole.total, "sum"), (whole.busy, "busy"), (whole.span, "span")):
            assert figure == pytest.approx(float(row[f"{column}_us"]), rel=1e-4, abs=0.06)
    found, result = compare(path)
    assert line(name, found, result.step_seconds) in DOCS.read_text()


#: Steps, and what follows the optimizer's in each: the sum of the losses.
LOOPS = {"linear_kineto.json.xz": (40, ""), "resnet_kineto.json.xz": (30, "aten::add_")}


@pytest.mark.parametrize("name", quick(LOOPS, "linear_kineto.json.xz"))
def test_the_steps_that_optimizers_tell_apart_have_all_kernels_between_them(name, tmp_path):
    """PARAM's loops of training end with the optimizer's step or a sum, and so do theirs.

    A kernel is of the step in which it was launched; its ``External id`` is that of the call
    in these files of 2023, and equals some op's of another step.
    """
    path, (steps, last) = unpacked(name, tmp_path), LOOPS[name]
    events = [e for e in events_of(path) if e.get("ph") == "X"]
    updates = [e for e in events if e["name"].startswith("Optimizer.step#")]
    ends = sorted(e["ts"] + e["dur"] for e in updates)
    sums = sorted((e["ts"], e["ts"] + e["dur"]) for e in events if last and e["name"] == last)
    ends = [sums[bisect_right(sums, (end,))][1] if last else end for end in ends]
    assert len(ends) == steps
    calls = {
        e["args"]["correlation"]: e["ts"]
        for e in events
        if str(e.get("cat", "")).lower().endswith(("runtime", "driver"))
    }
    launched = [calls[e["args"]["correlation"]] for e in device_events(events)]
    counted = Counter(bisect_right(ends, when) for when in launched)
    assert counted[steps] == 0
    for number in (0, 1, steps - 1):
        [program] = convert_traces([path], step=str(number)).programs[:1]
        assert len(program.graph) == counted[number]


def line(name, found, seconds):
    """The row of the docs' table."""
    times = (found.span, seconds * 1e6, found.busy)
    cells = (
        name.partition(".json")[0], f"{found.events:,}", f"{len(found.by_stream()):,}",
        *(f"{time / 1e3:,.3f} ms" for time in times),
    )  # fmt: skip
    return f"| {' | '.join(cells)} |"


@pytest.mark.parametrize("name", quick(EXECUTION, "simple_add_et_1.0.1.json.gz"))
def test_an_execution_trace_has_all_of_its_products_and_convolutions(name, tmp_path):
    """By the names in the file, of which one step in as many is converted."""
    path = unpacked(name, tmp_path)
    workload = convert_traces([path])
    assert workload.simulate().step_seconds > 0
    files = [path]
    if path.suffix == ".tar":
        with tarfile.open(path) as archive:
            archive.extractall(tmp_path / "files", filter="data")
        files = sorted((tmp_path / "files").rglob("*.json"))
    for file, program in zip(files, workload.programs, strict=False):
        kept = Counter(node.op for node in program.graph if node.op in HEAVY)
        assert kept == heavy_ops(file)


HEAVY = (
    "aten::mm", "aten::addmm", "aten::bmm", "aten::cudnn_convolution",
    "aten::convolution_backward",
)  # fmt: skip


def heavy_ops(path):
    """How often each of these ops is in a step of an execution trace, whose steps are alike."""
    nodes = events_of(path, "nodes")
    names = Counter(node["name"] for node in nodes)
    around = {node.get("ctrl_deps", node.get("parent")) for node in nodes}
    steps = sum(node["name"].startswith("ProfilerStep") and node["id"] in around for node in nodes)
    return {name: names[name] / max(1, steps) for name in HEAVY if names[name]}


@pytest.mark.thorough
def test_an_archive_of_eight_ranks_has_the_device_times_of_each(tmp_path):
    path = unpacked("dlrm_kineto.tar.xz", tmp_path)
    with tarfile.open(path) as archive:
        archive.extractall(tmp_path / "files", filter="data")
    files = sorted((tmp_path / "files").rglob("*.json"))
    workload = convert_traces([path])
    assert len(files) == len(workload.programs) == 8
    measured = [
        sum(program.graph.measured_by_node()[node.index] for node in program.graph if alone(node))
        for program in workload.programs
    ]
    found = []
    for file in files:
        events = events_of(file)
        calls = {e["args"].get("correlation") for e in events if e.get("cat") == "cuda_runtime"}
        computing = [e for e in device_events(events) if "nccl" not in e["name"]]
        # The host is ahead: in one file, 64 kernels at the beginning are of the step before.
        called = [e for e in computing if e["args"]["correlation"] in calls]
        assert len(computing) - len(called) in (0, 64)
        found.append(count(called).total * 1e3)
    assert sorted(measured) == pytest.approx(sorted(found))


def alone(node):
    """Whether a node computes: a collective of several ranks takes its fastest member's time."""
    return node.communication is None


def test_a_step_without_a_device_is_as_long_as_its_mark(tmp_path):
    path = unpacked("gloo_rank34.json.gz", tmp_path)
    [mark] = [e for e in events_of(path) if e.get("name", "").startswith("ProfilerStep")]
    assert convert_traces([path]).simulate().step_seconds * 1e6 == pytest.approx(mark["dur"])


def test_a_jax_profile_of_gpus_takes_its_measured_times_again(tmp_path):
    """Eight MI300s, each launched by its own thread; a convolution's two kernels are one node that
    ends with the second one.
    """
    path = unpacked(JAX, tmp_path)
    workload = convert_traces([path])
    runs = {d: found[-1] for d, found in runs_of(path, "jit_forward", JAX_BEGIN).items()}
    result, span = compare_runs(workload, runs)
    assert (len(workload.programs), len(runs[0])) == (8, 5)
    for program in workload.programs:
        found = next(item for item in result.programs if item.name == program.name)
        spans = [(e.start, e.end) for e in runs[int(program.name.removeprefix("rank_"))]]
        assert found.figures.compute_seconds * 1e9 == pytest.approx(busy(spans), abs=2)
        assert program.timing.launch.max() > 0
    assert jax_line(runs, span, result) in DOCS.read_text()


def jax_line(runs, span, result):
    """The row of the docs' table of JAX profiles."""
    active = sum(busy([(e.start, e.end) for e in run]) for run in runs.values()) / len(runs)
    lines = {(device, event.line) for device, run in runs.items() for event in run}
    times = (span / 1e6, result.step_seconds * 1e3, active / 1e6)
    cells = (
        JAX.partition(".")[0], f"{len(runs):,}", f"{sum(map(len, runs.values())):,}",
        f"{len(lines):,}", *(f"{time:,.3f} ms" for time in times),
    )  # fmt: skip
    return f"| {' | '.join(cells)} |"


@pytest.mark.thorough
@pytest.mark.skipif(not FILES, reason="FLINT_TRACES names no folder with traces")
@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(FOLDER)))
def test_a_trace_of_your_own_takes_its_measured_times_again(path):
    try:
        workload = convert_traces([path])
    except FlintError as error:
        assert "\n" not in str(error)
        assert any(words in str(error) for words in NOTHING), str(error)
        pytest.skip(str(error)[-120:])
    timed = [program for program in workload.programs if program.timing is not None]
    if path.name.endswith((".json", ".json.gz")) and len(timed) == 1 and counted(path):
        compare(path)
    else:
        assert workload.simulate().step_seconds >= 0


def main():
    """Print the rows of the docs' table."""
    with tempfile.TemporaryDirectory() as folder:
        for name in COUNTED:
            found, result = compare(unpacked(name, Path(folder)))
            print(line(name, found, result.step_seconds), flush=True)


if __name__ == "__main__":
    main()
