"""Profiles of AMD's tracers as CSV: the records of the JSON, spelled otherwise."""

from __future__ import annotations

import csv

import pytest

from flint.converters.profilers.rocprof.csv_files import grouped, processes_in
from flint.errors import FlintError
from flint.observed.reading import form_of, is_trace
from flint.post_execution.converting import convert_traces
from tests.converters.profilers.rocprof_files import Profile
from tests.converters.profilers.rocprof_tables import CALLS, COPIES, KERNELS, tables, write
from tests.support.profiles import PROFILES

PUBLISHED = PROFILES / "rocprofv3_csv"
KERNEL = ("KERNEL_DISPATCH", "Agent 1", 1, 1, 5, 1, 9, "gemm", 3, 5000, 15_000, 64)


def measured(workload):
    return [program.graph.measured_by_node().tolist() for program in workload.programs]


def test_published_files_keep_the_times_of_kernels_and_copies():
    """The rows are added up by themselves: 8 kernels and 4 copies in two streams."""
    times = []
    for path in PUBLISHED.glob("*.csv"):
        with path.open() as file:
            for row in csv.DictReader(file):
                times.append((int(row["Start_Timestamp"]), int(row["End_Timestamp"])))
    workload = convert_traces([PUBLISHED])
    [program] = workload.programs
    taken = program.graph.measured_by_node()
    assert (len(taken), int(taken.sum())) == (12, sum(end - start for start, end in times))
    whole = max(end for _, end in times) - min(start for start, _ in times)
    assert workload.simulate().step_seconds == pytest.approx(whole / 1e9, rel=1e-6)
    assert [node.op for node in program.graph][:5] == ["Memcpy HtoD"] * 4 + ["addition_kernel"]
    assert "does not tell the bytes of copies" in str(workload.warnings)


def test_a_file_alone_is_read():
    path = PUBLISHED / "kernel_trace.csv"
    assert is_trace(path) and form_of(path) == "rocprof-ops"
    assert len(convert_traces([path]).programs[0].graph) == 8


def test_a_profile_has_the_same_graph_as_its_json(tmp_path):
    """Only the bytes of the copy are not told."""
    profile = Profile(tmp_path / "908_results.json")
    for step in range(2):
        at = 200 * step
        profile.range(f"step {step}", at, 190)
        profile.copy(at + 1, at + 10, 7)
        profile.range("aten::mm, seq = 3, op_id = 7, sizes = [[16, 32], [32, 8]]", at + 11, 10)
        profile.kernel(at + 12, at + 20, 5 + step)
        profile.kernel(at + 30, at + 40, 30, "void at::native::f<float>(int)", stream=9)
        profile.rccl(at + 50, 8)
        profile.kernel(at + 52, at + 60, 30, "ncclDevKernel_Generic_1(ncclDevKernelArgs)", 11)
    (tmp_path / "csv").mkdir()
    one = convert_traces([profile.write()])
    other = convert_traces([tables(profile, tmp_path / "csv")])
    assert measured(one) == measured(other) == [[7_000, 6_000, 30_000, 30_000]]
    first, second = one.programs[0].graph, other.programs[0].graph
    assert [node.op for node in first] == [node.op for node in second]
    flops = [
        [item.flops for node in graph for item in node.work.items] for graph in (first, second)
    ]
    assert flops[0] == flops[1] and 2 * 16 * 8 * 32 in flops[0]
    assert one.simulate().step_seconds == pytest.approx(other.simulate().step_seconds)
    assert one.options["device"] == other.options["device"] == "MI300X"
    added = {text for text in other.warnings if text not in one.warnings}
    assert [text.split(":")[0].split(",")[0] for text in sorted(added)] == [
        "rocprofv3's CSV does not tell the bytes of copies",
        "rocprofv3's CSV does not tell which ranges enclose what their thread does",
    ]


@pytest.mark.parametrize(
    ("label", "places"), [("Agent 2", "relative"), ("GPU 1", "type-relative"), (2, "of nodes")]
)
def test_agents_are_found_however_they_are_called(tmp_path, label, places):
    """The second GPU, with a processor before both; ``--agent-index`` chooses."""
    tables(Profile(tmp_path / "x"), tmp_path)
    kernel = (KERNEL[0], label, *KERNEL[2:])
    write(tmp_path / "908_kernel_trace.csv", KERNELS, [kernel])
    [files] = grouped(sorted(tmp_path.glob("*.csv")))
    [process] = processes_in(files)
    [record] = process.buffer_records.kernel_dispatch
    assert [agent.type for agent in process.agents] == [1, 2, 2]
    assert record.dispatch_info.agent_id == process.agents[2].id, places


def test_without_agents_those_that_kernels_run_on_are_the_devices(tmp_path):
    """A copy from the host's "Agent 0" to "Agent 1"."""
    copy = ("MEMORY_COPY", "MEMORY_COPY_HOST_TO_DEVICE", 1, "Agent 0", "Agent 1", 4, 20_000, 26_000)
    write(tmp_path / "908_kernel_trace.csv", KERNELS, [KERNEL])
    write(tmp_path / "908_memory_copy_trace.csv", COPIES, [copy])
    assert measured(convert_traces([tmp_path])) == [[10_000, 6_000]]


def test_where_only_the_default_stream_is_told_queues_are_the_streams(tmp_path):
    """Two kernels of 10 us that begin together, on queues 1 and 2, both of stream 0: 10 us."""
    rows = [(*KERNEL[:2], queue, 0, *KERNEL[4:]) for queue in (1, 2)]
    path = write(tmp_path / "908_kernel_trace.csv", KERNELS, rows)
    assert convert_traces([path]).simulate().step_seconds == pytest.approx(10e-6)


def test_files_that_begin_alike_are_of_a_process_and_ranks_are_in_order(tmp_path):
    for number, dur in enumerate((10, 20)):
        profile = Profile(tmp_path / "x")
        profile.kernel(0, 5, dur)
        tables(profile, tmp_path, f"90{number}_")
    assert measured(convert_traces([tmp_path])) == [[10_000], [20_000]]


def test_processes_that_rows_tell_apart_are_ranks(tmp_path):
    """``rocpd convert --output-format csv`` of a merged database."""
    rows = [(f"guid-{rank}", *KERNEL[:9], 5000, 15_000 + rank, 64) for rank in (0, 1)]
    path = write(tmp_path / "out_kernel_trace.csv", f"Guid,{KERNELS}", rows)
    assert measured(convert_traces([path])) == [[10_000], [10_001]]


def test_the_earlier_tracers_results_are_read(tmp_path):
    """``rocprof --stats``: kernels of 10 and 30 us, 5 us apart, of one process."""
    path = tmp_path / "results.csv"
    path.write_text(
        '"Index","KernelName","gpu-id","queue-id","queue-index","pid","tid","grd","wgr","sig",'
        '"obj","DispatchNs","BeginNs","EndNs","CompleteNs","DurationNs"\n'
        '0,"scale(float*) [clone .kd]",1,0,0,937,937,64,64,0x0,0x7f,1000,5000,15000,16000,10000\n'
        '1,"gemm.kd",1,0,2,937,937,64,64,0x0,0x7f,2000,20000,50000,51000,30000\n'
    )
    workload = convert_traces([path])
    assert measured(workload) == [[10_000, 30_000]]
    assert workload.simulate().step_seconds == pytest.approx(45e-6)
    assert workload.programs[0].graph[0].op == "scale"


def test_tables_beside_another_profile_are_not_read(tmp_path):
    """They are of the same run, and tell less."""
    profile = Profile(tmp_path / "908_results.json")
    profile.kernel(0, 5, 10)
    profile.write()
    (tmp_path / "losses.csv").write_text("step,loss\n0,3.2\n")
    workload = convert_traces([tables(profile, tmp_path)])
    assert measured(workload) == [[10_000]] and "losses.csv" not in str(workload.warnings)


def test_summaries_and_counters_are_named_and_left_out(tmp_path):
    write(tmp_path / "908_kernel_trace.csv", KERNELS, [KERNEL])
    (tmp_path / "908_kernel_stats.csv").write_text('"Name","Calls"\n"gemm",1\n')
    workload = convert_traces([tmp_path])
    assert "908_kernel_stats.csv in the folder is no trace: left out" in workload.warnings


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ('"Name","Calls","TotalDurationNs","AverageNs","Percentage"', "statistics of rocprof's"),
        ("Correlation_Id,Kernel_Name,Counter_Name,Counter_Value", "rocprofv3's counters"),
        ("Time (%),Total Time (ns),Instances,Avg (ns)", "statistics of Nsight Systems'"),
        ("step,loss", "CSV, but not rocprofv3's of kernels"),
    ],
)
def test_csv_that_does_not_tell_when_kernels_ran_is_refused_by_its_kind(tmp_path, columns, said):
    """First lines as their tools write them."""
    path = tmp_path / "908_kernel_stats.csv"
    path.write_text(f"{columns}\n")
    for given in (path, tmp_path):
        with pytest.raises(FlintError, match=said):
            convert_traces([given])


def row(**changed):
    named = dict(zip(KERNELS.split(","), KERNEL, strict=True)) | changed
    return ",".join(map(str, named.values()))


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (f"{KERNELS}\n{row()}\n{row()[:40]}", "damaged or cut off .line 3 has . columns"),
        (f"{KERNELS}\n{row(Start_Timestamp='soon')}\n", "damaged or cut off .invalid literal"),
        (f"{KERNELS}\n{row(Queue_Id=-1)}\n", "damaged or cut off .a number of 2 digits"),
        (f"{KERNELS}\n{row(Queue_Id='9' * 5000)}\n", "damaged or cut off .a number of 5000"),
        (f"{KERNELS}\n{row(Kernel_Name=chr(34) + 'gemm')}\n", "damaged or cut off .unexpected end"),
        (f"{KERNELS.replace('Kernel_Name', 'Name')}\n{row()}\n", "without Kernel_Name"),
        (f"{KERNELS}\n", "nothing ran on a device"),
        (f"{CALLS}\nHIP_RUNTIME_API,hipMalloc,1,1,1,1,2\n", "nothing ran on a device"),
    ],
)
def test_damaged_files_are_refused_in_one_line(tmp_path, content, said):
    path = tmp_path / "908_kernel_trace.csv"
    path.write_text(content)
    with pytest.raises(FlintError, match=said) as refused:
        convert_traces([path])
    assert str(path) in str(refused.value) and "\n" not in str(refused.value)
