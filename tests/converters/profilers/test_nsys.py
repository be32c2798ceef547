"""Exports of Nsight Systems: kernels, copies, NVTX ranges, and NCCL's own data."""

from __future__ import annotations

import random
import sqlite3
import struct

import numpy as np
import pytest

from flint.errors import FlintError
from flint.graph.work import Unit
from flint.observed.reading import form_of, is_trace
from flint.post_execution.converting import convert_traces
from flint.post_execution.inferred_groups import EVERYBODY
from tests.converters.profilers.nsys_exports import Export
from tests.post_execution.test_inferred_groups import exchanged
from tests.support.profiles import unpacked


def test_a_published_export_with_nccl_keeps_the_times_of_each_device(tmp_path):
    """Training on two H100s; its calls of NCCL came without their payloads, so sizes are unknown.

    SQLite adds up kernels, copies and fills of each device.
    """
    path = unpacked("nsys_two_h100.sqlite.xz", tmp_path)
    tables = (f"CUPTI_ACTIVITY_KIND_{name}" for name in ("KERNEL", "MEMCPY", "MEMSET"))
    ran = " UNION ALL ".join(f"SELECT start, end, deviceId FROM {table}" for table in tables)
    sums = "SELECT count(*), sum(end - start), max(end) - min(start)"
    with sqlite3.connect(path) as export:
        devices = export.execute(f"{sums} FROM ({ran}) GROUP BY deviceId ORDER BY deviceId")
        counts, times, spans = zip(*devices, strict=True)
        [(copied,)] = export.execute("SELECT sum(bytes) FROM CUPTI_ACTIVITY_KIND_MEMCPY")
    workload = convert_traces([path])
    measured = [program.graph.measured_by_node() for program in workload.programs]
    assert [int(part.sum()) for part in measured] == list(times)
    assert [int((part > 0).sum()) for part in measured] == list(counts)
    assert workload.simulate().step_seconds == pytest.approx(max(spans) / 1e9, rel=1e-4)
    graphs = [program.graph for program in workload.programs]
    copies = [node for graph in graphs for node in graph if "Memcpy" in node.op]
    assert sum(node.work.read for node in copies) == copied
    assert sum(node.work.written for node in copies) == copied
    sends = [text for text in workload.warnings if "the trace has no bytes of send" in text]
    assert [workload.warnings[text] for text in sends] == [2 * 60]


def test_kernels_and_copies_take_their_times_again(tmp_path):
    """A copy of 7 us from 10, kernels of 5 from 20 and of 30 from 40, another stream's 10 from 50:
    60 us from the first one's begin to the last one's end.
    """
    export = Export(tmp_path / "report.sqlite")
    export.copy(0, 10, 7)
    export.kernel(12, 20, 5)
    export.kernel(14, 40, 30, "void at::native::f<float>(int)")
    export.kernel(16, 50, 10, stream=9)
    path = export.write()
    before = path.read_bytes()
    assert is_trace(path) and form_of(path) == "nsys-ops"
    workload = convert_traces([path])
    [program] = workload.programs
    assert workload.simulate().step_seconds == pytest.approx(60e-6)
    assert program.graph.measured_by_node().tolist() == [7_000, 5_000, 30_000, 10_000]
    assert [node.op for node in program.graph] == ["Memcpy HtoD", "gemm", "f", "gemm"]
    assert workload.options["device"] == "NVIDIA H100 80GB HBM3"
    assert path.read_bytes() == before and [p.name for p in tmp_path.iterdir()] == [path.name]


def test_ranges_of_pytorch_have_the_shapes_of_their_tensors(tmp_path):
    """2 x 16 x 8 x 32 FLOPs of a product of (16, 32) and (32, 8)."""
    export = Export(tmp_path / "report.sqlite")
    export.range("forward", 0, 100)
    sizes = "[[16, 32], [32, 8]]"
    export.range(f"aten::mm, seq = 3, op_id = 7, sizes = {sizes}, input_op_ids = []", 1, 20)
    export.kernel(5, 30, 10)
    export.kernel(50, 60, 10, "elementwise")
    graph = convert_traces([export.write()]).programs[0].graph
    assert [node.op for node in graph] == ["aten::mm: gemm", "forward: elementwise"]
    flops = [
        sum(item.flops for item in node.work.items if item.unit == Unit.MATMUL) for node in graph
    ]
    assert flops == [2 * 16 * 8 * 32, 0]


def test_steps_are_ranges_named_like_steps(tmp_path):
    export = Export(tmp_path / "report.sqlite")
    for number in range(3):
        export.range(f"iteration {number}", 100 * number, 90, registered=True)
        export.kernel(100 * number + 5, 100 * number + 10, 10 + number)
    path = export.write()
    for wanted, took in ((None, 12_000), ("iteration 0", 10_000)):
        graph = convert_traces([path], step=wanted).programs[0].graph
        assert graph.measured_by_node().tolist() == [took]


def run(export, pid, rank, tensor, data, start):
    """A rank of two communicators: bytes as its calls say."""
    export.communicator(0xA, 4, rank, pid)
    export.communicator(0xB + tensor, 2, rank % 2, pid)
    export.communicator(0xF0 + data, 2, rank // 2, pid)
    export.kernel(1, start, 5, pid=pid)
    export.collective("AllGather", 10, start + 10, 5, 1000, 0xB + tensor, pid)
    export.collective("ReduceScatter", 20, start + 20, 5, 1000, 0xB + tensor, pid)
    export.collective("AllReduce", 30, start + 30, 5, 4000, 0xF0 + data, pid)
    export.collective("Broadcast", 40, start + 40, 5, 64, 0xA, pid)


RUN = [
    ("all_gather", [[0, 1], [2, 3]], 1000),
    ("reduce_scatter", [[0, 1], [2, 3]], 2000),  # each puts in a part for each
    ("all_reduce", [[0, 2], [1, 3]], 4000),
    ("collective_broadcast", [[0, 1, 2, 3]], 64),
]


def told(workload):
    graph = workload.programs[0].graph
    table = graph.tables.communications
    used = [table[int(i)] for kind, i in zip(graph.kind, graph.detail, strict=True) if kind == 1]
    return [(item.kind, item.groups.table().tolist(), item.bytes_in) for item in used]


def test_communicators_are_those_of_the_processes_of_one_report(tmp_path):
    """NCCL states each process's rank in each: no file or process is named after its rank."""
    export = Export(tmp_path / "report.sqlite")
    for pid, rank in ((11, 2), (12, 0), (13, 3), (14, 1)):
        run(export, pid, rank, rank // 2, rank % 2, 50)
    workload = convert_traces([export.write()], strict=True)
    assert len(workload.programs) == 4 and told(workload) == RUN
    assert workload.simulate().step_seconds == pytest.approx(45e-6)


def test_communicators_are_those_of_several_reports(tmp_path):
    paths = []
    for rank, name in enumerate("dcba"):
        export = Export(tmp_path / f"node_{name}.sqlite", epoch=10**18 + rank * 1000)
        run(export, 7, rank, rank // 2, rank % 2, 50)
        paths.append(export.write())
    assert told(convert_traces(paths, strict=True)) == RUN
    assert told(convert_traces([tmp_path], strict=True)) == RUN


def test_devices_of_one_process_are_its_ranks(tmp_path):
    """One process, a thread and a device for each rank, as JAX has them."""
    export = Export(tmp_path / "report.sqlite")
    for rank in (0, 1):
        export.communicator(0xA, 2, rank, device=rank)
        export.range("ncclAllReduce", 10, 4, 1, 5 + rank, 2, (0xA, 4096))
        export.kernel(11, 20 + rank, 10, "ncclDevKernel_AllReduce", 1, 5 + rank, 20, rank)
    workload = convert_traces([export.write()], strict=True)
    assert [len(program.graph) for program in workload.programs] == [1, 1]
    assert told(workload) == [("all_reduce", [[0, 1]], 4096)]


def test_messages_go_to_the_peers_rank_in_the_run(tmp_path):
    """Rank 2 sends to the first member of a communicator of 0 and 2."""
    export = Export(tmp_path / "report.sqlite")
    for rank in range(3):
        export.communicator(0xA, 3, rank, rank + 1)
        if rank != 1:
            export.communicator(0xB, 2, rank // 2, rank + 1)
        export.kernel(1, 10, 5, pid=rank + 1)
    export.collective("Send", 20, 30, 5, 512, 0xB, 3, peer=0)
    export.collective("Recv", 20, 30, 5, 512, 0xB, 1, peer=1)
    workload = convert_traces([export.write()], strict=True)
    first, last = workload.programs[0].graph, workload.programs[2].graph
    assert [node.op for node in first][-1] == "recv" and [node.op for node in last][-1] == "send"
    assert last[1].communication.permutation.target.tolist() == [-1, -1, 0]


def test_sizes_without_a_communicator_have_an_inferred_group(tmp_path):
    """NCCL before 2.26: bytes alone."""
    export = Export(tmp_path / "report.sqlite")
    export.communicator(0xA, 2, 0)
    export.range("ncclAllReduce", 10, 4, 1, 1, 4, (4096,))
    export.kernel(11, 20, 10, "ncclKernel_AllReduce")
    path = export.write()
    workload = convert_traces([path])
    assert exchanged(workload) == [("all_reduce", 2, 4096)]
    assert workload.warnings[EVERYBODY] == 1
    with pytest.raises(FlintError, match="--strict"):
        convert_traces([path], strict=True)


def test_kernels_of_nccl_without_ranges_keep_their_time(tmp_path):
    export = Export(tmp_path / "report.sqlite")
    export.kernel(11, 20, 10, "ncclKernel_AllReduce")
    workload = convert_traces([export.write()])
    assert workload.programs[0].graph.measured_by_node().tolist() == [10_000]
    assert any("communication kernels" in text for text in workload.warnings)


def test_sizes_that_an_export_left_out_are_asked_for_in_words_of_nsight(tmp_path):
    """NCCL's range without its payload: ``record_shapes`` and ``--et`` are of other profilers."""
    export = Export(tmp_path / "report.sqlite")
    export.communicator(0xA, 2, 0)
    export.range("ncclAllReduce", 10, 4)
    export.kernel(11, 20, 10, "ncclKernel_AllReduce")
    [said] = [text for text in convert_traces([export.write()]).warnings if "stay kernels" in text]
    assert said.endswith(
        "no bytes of allreduce (profile with nsys profile --trace=cuda,nvtx, export with "
        "--include-blobs=true)"
    )


def test_other_databases_are_named_as_such(tmp_path):
    path = tmp_path / "other.sqlite"
    sqlite3.connect(path).execute("CREATE TABLE a (b)").connection.commit()
    with pytest.raises(FlintError, match="neither an export of Nsight Systems"):
        convert_traces([path])
    with pytest.raises(FlintError, match="nothing ran on a device"):
        convert_traces([Export(tmp_path / "empty.sqlite").write()])
    nobodys = Export(tmp_path / "nobodys.sqlite")
    nobodys.kernel(1, 10, 5)
    nobodys.data.execute("ALTER TABLE CUPTI_ACTIVITY_KIND_KERNEL DROP COLUMN globalPid")
    with pytest.raises(FlintError, match="does not name its process"):
        convert_traces([nobodys.write()])


def test_what_a_file_would_have_run_is_not_run(tmp_path):
    """A view in the place of a table is not a table, and a computed column cannot be read."""
    export = Export(tmp_path / "report.sqlite")
    export.kernel(1, 10, 5)
    export.data.executescript(
        "ALTER TABLE NVTX_EVENTS RENAME TO OTHER; CREATE VIEW NVTX_EVENTS AS "
        "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT x AS start FROM c;"
    )
    assert convert_traces([export.write()]).programs[0].graph.measured_by_node().tolist() == [5000]


@pytest.mark.parametrize("change", ["correlationId = 1e300", f"start = {2**63 - 1}"])
def test_kernels_without_a_time_or_a_number_are_none(tmp_path, change):
    export = Export(tmp_path / "report.sqlite")
    export.kernel(1, 10, 5)
    export.data.executescript(f"UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET {change}")
    with pytest.raises(FlintError, match="nothing ran on a device in it"):
        convert_traces([export.write()])


def test_many_empty_steps_are_named_in_part(tmp_path):
    export = Export(tmp_path / "report.sqlite")
    for number in range(100):
        export.range(f"iteration {number}", 100 * number, 90)
    export.kernel(5, 10, 10)
    [note] = [n for n in convert_traces([export.write()]).warnings if "nothing ran" in n]
    assert "iteration 8 and 91 more" in note


def test_a_table_whose_pages_are_used_again_and_again_is_refused(tmp_path):
    """Two levels of 101 references each to one page below: 10,201 times the rows of that page; more
    levels would take forever.  Page types and layouts are those of sqlite.org/fileformat.html.
    """
    export = Export(tmp_path / "report.sqlite")
    export.kernel(1, 10, 5)
    find = "SELECT rootpage FROM sqlite_master WHERE name = 'StringIds'"
    [(root,)] = export.data.execute(find).fetchall()
    path = export.write()
    data = bytearray(path.read_bytes())
    size = int.from_bytes(data[16:18], "big")
    pages, here = len(data) // size, slice((root - 1) * size, root * size)

    def above(page):
        cells = b"".join(struct.pack(">IB", page, key) for key in range(100))
        head = struct.pack(">BHHHBI", 5, 0, 100, size - len(cells), 0, page)
        places = struct.pack(">100H", *range(size - len(cells), size, 5))
        return (head + places).ljust(size - len(cells), b"\0") + cells

    data += above(pages + 2) + data[here]
    data[here] = above(pages + 1)
    data[28:32] = (pages + 2).to_bytes(4, "big")
    path.write_bytes(data)
    with pytest.raises(FlintError, match=r"StringIds .*its pages are reused"):
        convert_traces([path])


@pytest.mark.parametrize("seed", range(20))
def test_a_damaged_export_is_read_or_one_clear_line(tmp_path, seed):
    export = Export(tmp_path / "report.sqlite")
    run(export, 1, 0, 0, 0, 50)
    draw = random.Random(seed)
    path = export.write()
    data = bytearray(path.read_bytes())
    for _ in range(draw.randrange(1, 200)):
        data[draw.randrange(100, len(data))] = draw.randrange(256)
    path.write_bytes(bytes(data[: draw.choice([len(data), len(data) // 2])]))
    try:
        graph = convert_traces([path]).programs[0].graph
    except FlintError as error:
        assert "\n" not in str(error)
    else:
        assert np.all(graph.measured_by_node() < 1 << 62)
