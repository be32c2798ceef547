"""Profiles that do not tell everything: what is inferred, counted, stated by the user or left."""

from __future__ import annotations

import gzip
import json
import tarfile
from pathlib import Path

import pytest

from flint.errors import FlintError, UsageError
from flint.observed.columns import CUT_OFF, NO_OP
from flint.post_execution.converting import convert_traces
from flint.post_execution.inferred_groups import BY_SIZE, EVERYBODY, stated_groups
from tests.post_execution.traces import Profile, exchanged

PROFILES = Path(__file__).parents[1] / "data" / "profiles"
OLD_NCCL = PROFILES / "nccl_before_2.2_rank0.json.gz"


def test_sizes_of_old_collectives_are_those_of_the_librarys_annotations():
    """PyTorch before 2.2 names neither collective nor sizes; ``nccl:`` annotations have both."""
    with gzip.open(OLD_NCCL) as file:
        events = json.load(file)["traceEvents"]
    steps = [e for e in events if str(e.get("name")).startswith("ProfilerStep")]
    begin = max(step["ts"] for step in steps)
    wanted = []
    for event in sorted((e for e in events if e.get("ph") == "X"), key=lambda e: e["ts"]):
        if event["name"] in ("nccl:all_reduce", "nccl:all_to_all") and event["ts"] >= begin:
            [count], [kind] = event["args"]["Input Dims"][0], event["args"]["Input type"]
            wanted.append(
                (event["name"][5:], 128, count * {"float": 4, "unsigned char": 1, "int": 4}[kind])
            )
    workload = convert_traces([OLD_NCCL])
    assert sorted(exchanged(workload)) == sorted(wanted) and wanted
    assert workload.warnings[EVERYBODY] == len(wanted)


def test_strict_refuses_what_would_be_inferred():
    with pytest.raises(FlintError, match="--strict"):
        convert_traces([OLD_NCCL], strict=True)


def test_a_stated_group_makes_a_collective_of_a_kernel():
    """64 of 128 ranks gather, by what goes in and comes out; which ones only the user knows."""
    ranks = tuple(range(0, 128, 2))
    kernel = [text for text in convert_traces([OLD_NCCL]).warnings if "stay kernels" in text]
    assert len(kernel) == 1 and "--group c10d::_allgather_base_=0-7" in kernel[0]
    stated = convert_traces([OLD_NCCL], groups={"c10d::_allgather_base_": ranks})
    assert ("all_gather", 64, 16777216) in exchanged(stated)


@pytest.mark.parametrize("text", ["=0-7", "a", "a=7-0", "a=1,1", "a=x", "a=0-99999999"])
def test_a_group_is_stated_as_name_and_ranks(text):
    with pytest.raises(UsageError, match="--group"):
        stated_groups([text])
    assert stated_groups(["a=0-2,5", "b=c=1"]) == {"a": (0, 1, 2, 5), "b=c": (1,)}


def test_the_last_step_with_work_in_it_is_taken():
    workload = convert_traces([PROFILES / "mi250_minitoy.json.gz"])
    assert len(workload.programs[0].graph) == 16
    assert any("(ProfilerStep#2): left out" in text for text in workload.warnings)


@pytest.mark.parametrize(("step", "count"), [("1", 0), ("2", 2), ("all", 3)])
def test_kernels_of_no_op_are_counted_in_the_step_that_is_converted(step, count, tmp_path):
    profile = Profile(0, 1)
    for number, lost in ((0, 1), (1, 0), (2, 2)):
        begin = 100 * number
        profile.span(f"ProfilerStep#{number}", begin, 90)
        profile.work(begin + 5, begin + 20, 10)
        for place in range(lost):
            profile.kernel(None, begin + 50 + 4 * place, begin + 60 + 4 * place, 2)
    path = profile.write(tmp_path / "rank0.json")
    assert convert_traces([path], step=step).warnings.get(NO_OP, 0) == count


def test_kernels_are_read_where_no_cpu_op_was_recorded():
    """Four kernels of 30 us together, by the file itself."""
    workload = convert_traces([PROFILES / "device_alone_rank1.json.gz"])
    assert workload.programs[0].graph.measured_by_node().sum() == 30_000


def test_work_of_gloo_without_numbers_or_c10d_ops_is_a_collective():
    """``gloo:all_reduce`` of 321,271 and 2,082,411 floats, in the step that is marked."""
    workload = convert_traces([PROFILES / "gloo_rank34.json.gz"])
    assert sorted(exchanged(workload)) == [
        ("all_reduce", 300, 4 * 321_271),
        ("all_reduce", 300, 4 * 2_082_411),
    ]


def test_work_of_gloo_without_numbers_goes_to_the_op_that_handed_it_over(tmp_path):
    """Two buckets of equal kind, whose works begin in the order of their ops."""
    profile = Profile(0, 2, pg_config=[{"pg_name": "0", "ranks": [0, 1]}])
    for number, (ts, count) in enumerate(((10, 100), (20, 300))):
        sizes = {"Input Dims": [[[count]]], "Input type": ["TensorList"], "Record function id": 0}
        profile.op("c10d::allreduce_", ts, 5, **sizes)
        profile.span("gloo:all_reduce", 100 - 40 * number, 30, tid=9 + number)
        profile.events[-1]["args"] = {
            "Input Dims": [[count]], "Input type": ["float"], "Record function id": 0,
        }  # fmt: skip
    workload = convert_traces([profile.write(tmp_path / "rank0.json")])
    assert exchanged(workload) == [("all_reduce", 2, 400), ("all_reduce", 2, 1200)]
    assert workload.programs[0].graph.measured_by_node().tolist() == [30_000, 30_000]


def test_execution_traces_of_schema_1_0_1_are_read():
    """Three additions of 1024 x 1024 floats and what made their operands."""
    workload = convert_traces([PROFILES / "simple_add_et_1.0.1.json.gz"])
    graph = workload.programs[0].graph
    assert len(graph) == 8 and graph.inputs


@pytest.mark.parametrize(
    ("tail", "ranks", "why"),
    [
        (([2, 2], [2, 2]), (0, 1), BY_SIZE),  # 1.0.1: the parts for each rank and from each
        (([], [], 1, 2, 2), (1, 3), None),  # 1.0.3: first rank, stride, size
        (([], []), (0, 1, 2, 3), EVERYBODY),
    ],
)
def test_groups_of_old_records_stand_behind_the_collectives_name(tail, ranks, why, tmp_path):
    sent = [[7, 8, 0, 64, 4, "cuda:0"], 33, 0, 0, "all_to_allv", *tail]
    types = ["Tensor(float)", "Int", "Int", "Int", "String", *("Int" for _ in tail)]
    node = {
        "id": 2, "name": "record_param_comms", "ctrl_deps": 1, "attrs": [],
        "inputs": {"values": sent, "shapes": [[64], *([] for _ in sent[1:])], "types": types},
    }  # fmt: skip
    paths = [tmp_path / f"et_rank{rank}.json" for rank in ranks]
    for path in paths:
        path.write_text(json.dumps({"schema": "1.0.3-chakra.0.0.4", "nodes": [node]}))
    workload = convert_traces(paths)
    [item] = workload.programs[0].graph.tables.communications
    assert (item.kind, item.bytes_in) == ("all_to_all", 256)
    assert int(item.groups.group_size([ranks[0]])[0]) == len(ranks)
    assert {text for text in workload.warnings if "does not name" in text and "group" in text} == (
        {why} if why else set()
    )


@pytest.mark.parametrize(
    ("device", "system"),
    [
        ("NVIDIA A100-SXM4-80GB", "dgx-a100"),
        ("NVIDIA H100 80GB HBM3", "dgx-h100"),
        ("NVIDIA H100 PCIe", None),
        ("NVIDIA GB200", "gb200-nvl72"),
        ("NVIDIA GB300", "gb300-nvl72"),
        ("NVIDIA B300 SXM6 AC", "dgx-b300"),
        ("AMD Instinct MI300X", "mi300x-8"),
        ("AMD Instinct MI355X", "mi355x-8"),
        ("Tesla V100-SXM2-32GB", None),
        ("", None),
    ],
)
def test_the_system_is_that_of_the_devices(device, system, tmp_path):
    profile = Profile(0, 1)
    profile.work(0, 10, 5)
    path = profile.write(tmp_path / "rank0.json")
    document = json.loads(path.read_text()) | {"deviceProperties": [{"id": 0, "name": device}]}
    path.write_text(json.dumps(document))
    result = convert_traces([path]).simulate()
    assert result.system == (system or "dgx-h100")
    assert any(device in note for note in result.notes) == (bool(device) and system is None)


def test_an_execution_trace_of_another_run_is_refused_before_it_is_aligned(tmp_path, monkeypatch):
    from flint.post_execution import et_join

    monkeypatch.setattr(et_join, "aligned", None)
    profile = Profile(0, 1)
    for ts in range(0, 100, 10):
        profile.work(ts, ts + 5, 3)
        profile.events[-1]["args"].pop("External id")
    for event in profile.events:
        event["args"].pop("Record function id", None)
    kineto = profile.write(tmp_path / "rank0.json")
    with pytest.raises(FlintError, match="at most 0 of the 10 ops"):
        convert_traces([kineto], execution_traces=[PROFILES / "simple_add_et_1.0.1.json.gz"])


def test_an_archive_of_ranks_is_converted_as_their_folder(tmp_path):
    for rank in (0, 1):
        profile = Profile(rank, 2)
        profile.work(0, 10, 5)
        profile.collective(12, 20, 10)
        profile.write(tmp_path / f"run/rank{rank}.json")
    with tarfile.open(tmp_path / "ranks.tar.gz", "w:gz") as archive:
        archive.add(tmp_path / "run", "run")
    packed, plain = (convert_traces([tmp_path / name]) for name in ("ranks.tar.gz", "run"))
    assert len(packed.programs) == 2
    assert exchanged(packed) == exchanged(plain)
    assert packed.input == plain.input


@pytest.mark.parametrize("end", ["", ",", ",\n", ',\n{"ph": "X", "args": {"str'])
def test_a_file_that_ends_within_its_events_is_read_as_far_as_it_goes(tmp_path, end):
    """A process that is killed while it exports leaves such; browsers show them as well."""
    profile = Profile(0, 1)
    profile.work(0, 10, 5)
    profile.work(20, 30, 7)
    events = ",\n".join(json.dumps(event) for event in profile.events)
    path = tmp_path / "rank0.json"
    path.write_text('{"traceEvents": [\n' + events + end)
    workload = convert_traces([path])
    assert workload.programs[0].graph.measured_by_node().sum() == 12_000
    assert workload.warnings[CUT_OFF] == 1
    with pytest.raises(FlintError, match="--strict: the file ends"):
        convert_traces([path], strict=True)


def test_a_list_of_events_alone_is_a_trace(tmp_path):
    profile = Profile(0, 1)
    profile.work(0, 10, 5)
    (tmp_path / "rank0.json").write_text(json.dumps(profile.events))
    workload = convert_traces([tmp_path / "rank0.json"])
    assert workload.programs[0].graph.measured_by_node().sum() == 5_000


def replayed(profile, begin, *kernels):
    """A graph, launched by one call: its kernels are 2 us long, one after another."""
    call = profile.call("cudaGraphLaunch", begin)
    for place, name in enumerate(kernels):
        args = {"correlation": call, "stream": 7}
        profile._add("kernel", name, begin + 10 + 3 * place, 2, 7, args)


LAYERS, LAYER = ("gemm", "norm", "gemm", "norm", "head"), ("gemm", "norm", "silu")


@pytest.mark.parametrize(
    ("graph", "outside", "steps"),
    [(LAYERS, False, 4), (LAYER, False, 0), (LAYERS, True, 0)],
    ids=["whole steps", "layers", "layers between products"],
)  # fmt: skip
def test_replays_of_a_graph_with_layers_are_steps_unless_products_are_outside(
    graph, outside, steps, tmp_path
):
    """Four replays, after each a kernel that samples; no host op was recorded."""
    profile = Profile(0, 1)
    if outside:
        profile.kernel(None, 1, 5, 2, "sgemm_128x64")
    for number in range(4):
        begin = 100 * number + 20
        replayed(profile, begin, *graph)
        profile.kernel(None, begin + 40, begin + 50, 2, "sample")
    if outside:
        profile.kernel(None, 450, 460, 2, "sgemm_128x64")
    workload = convert_traces([profile.write(tmp_path / "rank0.json")])
    kernels = 4 * (len(graph) + 1) + 2 * outside
    assert len(workload.programs[0].graph) == (kernels // steps if steps else kernels)
    told = any(f"step#{steps - 1} of {steps} is converted" in text for text in workload.warnings)
    assert told == bool(steps)
