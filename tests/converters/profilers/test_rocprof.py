"""Profiles of AMD's tracers, as JSON and as databases: kernels, copies, ranges, calls of RCCL."""

from __future__ import annotations

import json
import sqlite3

import pytest

from flint.errors import FlintError
from flint.graph.work import Unit
from flint.observed.reading import form_of, is_trace, read_trace
from flint.post_execution.converting import convert_traces
from tests.converters.profilers.rocprof_databases import rocpd, rpd
from tests.converters.profilers.rocprof_files import Profile
from tests.support.profiles import unpacked

#: A profile as the file of a tracer, by how it is called: rocprofv3's two, rocmProfileData's.
FORMS = {
    "908_results.json": lambda profile, path: profile.write(),
    "908_results.db": rocpd,
    "trace.rpd": rpd,
}
of_rocprofv3 = pytest.mark.parametrize("name", list(FORMS)[:2])
of_any = pytest.mark.parametrize("name", FORMS)


def saved(profile):
    return FORMS[profile.path.name](profile, profile.path)


def test_a_published_profile_keeps_the_times_of_its_kernels(tmp_path):
    """Training on an MI350X; the records are added up by themselves."""
    path = unpacked("rocprofv3_mi350.json.xz", tmp_path)
    [recorded] = json.loads(path.read_text())["rocprofiler-sdk-tool"]
    ran = recorded["buffer_records"]["kernel_dispatch"]
    times = [(item["start_timestamp"], item["end_timestamp"]) for item in ran]
    workload = convert_traces([path])
    [program] = workload.programs
    measured = program.graph.measured_by_node()
    assert int(measured.sum()) == sum(end - start for start, end in times)
    assert len(measured) == len(times)
    whole = max(end for _, end in times) - min(start for start, _ in times)
    assert workload.simulate().step_seconds == pytest.approx(whole / 1e9, rel=1e-6)
    assert workload.options["device"] == "AMD Instinct MI350X"


@of_any
def test_kernels_and_copies_take_their_times_again(tmp_path, name):
    """A copy of 7 us from 10, kernels of 5 from 20 and of 30 from 40, another stream's 10 from 50:
    60 us from the first one's begin to the last one's end.
    """
    profile = Profile(tmp_path / name)
    profile.copy(0, 10, 7)
    profile.kernel(12, 20, 5)
    profile.kernel(14, 40, 30, "void at::native::f<float>(int)")
    profile.kernel(16, 50, 10, stream=9)
    path = saved(profile)
    assert is_trace(path) and form_of(path) == "rocprof-ops"
    workload = convert_traces([path])
    [program] = workload.programs
    assert workload.simulate().step_seconds == pytest.approx(60e-6)
    assert program.graph.measured_by_node().tolist() == [7_000, 5_000, 30_000, 10_000]
    assert [node.op for node in program.graph] == ["Memcpy HtoD", "gemm", "f", "gemm"]
    assert program.graph[0].work.written == 4096


@of_rocprofv3
def test_before_streams_were_recorded_queues_are_the_streams(tmp_path, name):
    """Two kernels of 30 us from 10 and 20 on queues of their own: 40 us."""
    profile = Profile(tmp_path / name, streams=False)
    profile.kernel(0, 10, 30, stream=1)
    profile.kernel(2, 20, 30, stream=2)
    assert convert_traces([saved(profile)]).simulate().step_seconds == pytest.approx(40e-6)


@of_any
def test_ranges_of_pytorch_have_the_shapes_of_their_tensors(tmp_path, name):
    """2 x 16 x 8 x 32 FLOPs of a product of (16, 32) and (32, 8)."""
    profile = Profile(tmp_path / name)
    profile.range("forward", 0, 100)
    profile.range("aten::mm, seq = 3, op_id = 7, sizes = [[16, 32], [32, 8]]", 1, 20)
    profile.kernel(5, 30, 10)
    profile.kernel(50, 60, 10, "elementwise")
    graph = convert_traces([saved(profile)]).programs[0].graph
    assert [node.op for node in graph] == ["aten::mm: gemm", "forward: elementwise"]
    flops = [
        sum(item.flops for item in node.work.items if item.unit == Unit.MATMUL) for node in graph
    ]
    assert flops == [2 * 16 * 8 * 32, 0]


@of_any
def test_ranges_named_like_steps_are_the_steps(tmp_path, name):
    """Steps of 10 us that begin every 100: the last one is converted."""
    profile = Profile(tmp_path / name)
    for step in range(3):
        profile.range(f"step {step}", 100 * step, 90, started=True)
        profile.kernel(100 * step + 1, 100 * step + 5, 10 + step)
    [program] = convert_traces([saved(profile)]).programs
    assert program.graph.measured_by_node().tolist() == [12_000]


@of_rocprofv3
def test_a_call_of_rccl_names_the_collective_of_its_kernel(tmp_path, name):
    """Its size is not recorded, so it stays a kernel, and a warning counts it."""
    profile = Profile(tmp_path / name)
    profile.rccl(0, 8)
    profile.kernel(2, 10, 30, "ncclDevKernel_Generic_1(ncclDevKernelArgsStorage<4096ul>)")
    workload = convert_traces([saved(profile)])
    told = [text for text in workload.warnings if "the trace has no bytes of allreduce" in text]
    assert [workload.warnings[text] for text in told] == [1]
    assert workload.programs[0].graph.measured_by_node().tolist() == [30_000]


def test_processes_have_the_ranks_of_their_files_names(tmp_path):
    for rank, dur in ((1, 20), (0, 10)):
        profile = Profile(tmp_path / f"rank{rank}_results.json")
        profile.kernel(0, 5, dur)
        profile.write()
    workload = convert_traces([tmp_path])
    assert [program.graph.measured_by_node().tolist() for program in workload.programs] == [
        [10_000],
        [20_000],
    ]


@of_rocprofv3
def test_processes_in_which_nothing_ran_on_a_device_are_left_out(tmp_path, name):
    """As those of launchers."""
    for folder, kernels in (("launcher", 0), ("worker", 1)):
        (tmp_path / folder).mkdir()
        profile = Profile(tmp_path / folder / name)
        profile.range("load", 0, 9)
        for _ in range(kernels):
            profile.kernel(0, 5, 10)
        saved(profile)
    workload = convert_traces([tmp_path / "launcher" / name, tmp_path / "worker" / name])
    assert [len(program.graph) for program in workload.programs] == [1]
    assert "processes in which nothing ran on a device, left out: 1" in str(workload.warnings)


def test_a_merged_database_has_a_rank_for_each_process(tmp_path):
    for number, dur in enumerate((10, 20)):
        profile = Profile(tmp_path / "merged.db")
        profile.kernel(0, 5, dur)
        rocpd(profile, profile.path, f"_0{number}")
    workload = convert_traces([profile.path])
    assert [program.graph.measured_by_node().tolist() for program in workload.programs] == [
        [10_000],
        [20_000],
    ]


def test_a_published_database_of_rocm_profile_data_keeps_its_operations(tmp_path):
    """A product on one device; SQL adds its operations up."""
    path = unpacked("rpd_matmul.rpd.xz", tmp_path)
    data = sqlite3.connect(path)
    [(count, time, whole)] = data.execute(
        "SELECT count(*), sum(end - start), max(end) - min(start) FROM rocpd_op"
    )
    [(copied,)] = data.execute("SELECT sum(size) FROM rocpd_copyapi")
    workload = convert_traces([path])
    [program] = workload.programs
    measured = program.graph.measured_by_node()
    assert (len(measured), int(measured.sum())) == (count, time)
    assert workload.simulate().step_seconds == pytest.approx(whole / 1e9, rel=1e-6)
    assert sum(n.work.written for n in program.graph if n.op.startswith("Memcpy")) == copied


@pytest.mark.parametrize(("layers", "cut"), [(2, True), (1, False)])
@of_any
def test_kernels_that_repeat_with_layers_inside_are_steps(tmp_path, name, layers, cut):
    """Four times: a look-up, layers, an update.  Without equal layers it may be one step's."""
    profile = Profile(tmp_path / name)
    at = 0
    for _ in range(4):
        for kernel in ["lookup", *["gemm", "norm"] * layers, "adam"]:
            profile.kernel(at, at + 2, 5, kernel)
            at += 10
    workload = convert_traces([saved(profile)])
    kernels = 2 * layers + 2
    assert len(workload.programs[0].graph) == (kernels if cut else 4 * kernels)


@pytest.mark.parametrize("write", [rocpd, rpd])
def test_a_damaged_database_is_refused_in_one_line(tmp_path, write):
    profile = Profile(tmp_path / "908_results.db")
    for number in range(400):
        profile.kernel(10 * number, 10 * number + 5, 2)
    path = write(profile, profile.path)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(FlintError, match="damaged") as refused:
        convert_traces([path])
    assert str(path) in str(refused.value) and "\n" not in str(refused.value)


def test_a_comparison_with_a_capture_is_refused(tmp_path):
    profile = Profile(tmp_path / "908_results.json")
    profile.kernel(0, 5, 10)
    with pytest.raises(FlintError, match="AMD's tracers record kernels, but a comparison needs"):
        read_trace(profile.write())


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda text: text[: len(text) // 2], "damaged or cut off"),
        (lambda text: text.replace('"start_timestamp": 5000', '"start_timestamp": "x"'), "damaged"),
        (lambda text: text.replace('"kernel_dispatch": [', '"else": ['), "nothing ran on a device"),
        (lambda text: text.replace('tool": [', 'tool": [], "x": ['), "damaged"),
    ],
)
def test_a_damaged_profile_is_refused_in_one_line(tmp_path, damage, said):
    profile = Profile(tmp_path / "908_results.json")
    profile.kernel(0, 5, 10)
    path = profile.write()
    path.write_text(damage(path.read_text()))
    with pytest.raises(FlintError, match=said) as refused:
        convert_traces([path])
    assert str(path) in str(refused.value) and "\n" not in str(refused.value)


def test_a_process_in_several_forms_is_one_rank(tmp_path):
    """``rocprofv3 --output-format json rocpd`` writes both; two kernels of 10 and 30 us."""
    for number, dur in enumerate((10, 30)):
        profile = Profile(tmp_path / f"90{number}_results.json")
        profile.kernel(0, 5, dur)
        rocpd(profile, tmp_path / f"90{number}_results.db")
        profile.write()
    workload = convert_traces([tmp_path])
    measured = [program.graph.measured_by_node().tolist() for program in workload.programs]
    assert measured == [[10_000], [30_000]]
    assert "that another one in the folder has, too, left out: 2" in str(workload.warnings)


def test_the_folders_that_rocprofv3_makes_are_searched(tmp_path):
    """``rocprofv3 -d out`` on two hosts: out/HOST/PROCESS_results.db; beside them another file."""
    for host, dur in (("node-0", 10), ("node-1", 20)):
        (tmp_path / host).mkdir()
        profile = Profile(tmp_path / host / "908_results.db")
        profile.kernel(0, 5, dur)
        saved(profile)
    (tmp_path / "launch.json").write_text('{"nodes_used": 2}')
    workload = convert_traces([tmp_path])
    measured = [program.graph.measured_by_node().tolist() for program in workload.programs]
    assert measured == [[10_000], [20_000]]
