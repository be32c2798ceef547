"""The workload folder: saved, loaded, never half-written, never trusted."""

from __future__ import annotations

import dataclasses
import io
import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given

import flint
from flint.errors import FlintError, UsageError
from flint.graph.allocations import Allocations
from flint.graph.building import GraphBuilder, TableBuilder
from flint.graph.graph import Conditional, WorkloadGraph, with_tables
from flint.graph.io import graph_from_bytes, graph_to_bytes
from flint.graph.scalars import constant
from flint.graph.tensor_types import tensor_type
from flint.graph.timing import Timing
from flint.workload.workload import Workload
from tests.strategies import workload_graphs

DATA = Path(__file__).parents[1] / "data" / "stablehlo"


def same(left: WorkloadGraph, right: WorkloadGraph) -> bool:
    for field in dataclasses.fields(WorkloadGraph):
        a, b = getattr(left, field.name), getattr(right, field.name)
        if isinstance(a, np.ndarray) and not np.array_equal(a, b):
            return False
    bodies = zip(left.loops, right.loops, strict=True)
    return left.tables == right.tables and all(
        same(a.body, b.body) and a.trip_count == b.trip_count and a.carried == b.carried
        for a, b in bodies
    )


@pytest.fixture(scope="module")
def workload() -> Workload:
    return flint.convert(DATA / "pipeline_ppermute_8x8.mlirbc", mesh=(8, 8), axes=("stage", "data"))


@given(workload_graphs())
def test_a_graph_survives_its_file(graph: WorkloadGraph) -> None:
    assert same(graph_from_bytes(graph_to_bytes(graph), "test"), graph)


def test_source_files_with_names_that_are_not_utf8_survive(workload: Workload) -> None:
    tables = workload.graph.tables
    sources = (*tables.sources[:-1], dataclasses.replace(tables.sources[-1], file="caf\udce9.py"))
    graph = with_tables(workload.graph, dataclasses.replace(tables, sources=sources))
    assert same(graph_from_bytes(graph_to_bytes(graph), "test"), graph)


def test_a_workload_survives_its_folder(workload: Workload, tmp_path: Path) -> None:
    workload.save(tmp_path / "out")
    loaded = flint.load(tmp_path / "out")
    assert loaded.mesh == workload.mesh
    assert same(loaded.graph, workload.graph)
    assert loaded.programs[0].inputs == workload.programs[0].inputs
    assert loaded.programs[0].module == workload.programs[0].module


def test_saving_what_was_loaded_writes_the_same_traces(workload: Workload, tmp_path: Path) -> None:
    workload.save(tmp_path / "first")
    flint.load(tmp_path / "first").save(tmp_path / "second")
    for path in (tmp_path / "first/et").glob("*.et"):
        assert path.read_bytes() == (tmp_path / "second/et" / path.name).read_bytes()


def test_an_interrupted_save_leaves_nothing(workload: Workload, tmp_path: Path) -> None:
    def interrupt(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        workload.save(tmp_path / "out", progress=interrupt)
    assert list(tmp_path.iterdir()) == []


def test_an_interrupted_save_keeps_the_folder_that_was_there(
    workload: Workload, tmp_path: Path
) -> None:
    workload.save(tmp_path / "out")
    before = (tmp_path / "out/workload.json").read_text()

    def interrupt(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        workload.save(tmp_path / "out", granularity="op", progress=interrupt)
    assert (tmp_path / "out/workload.json").read_text() == before


def test_a_full_disk_is_reported_before_anything_is_written(
    workload: Workload, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import shutil

    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=10))
    with pytest.raises(FlintError, match="free"):
        workload.save(tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_without_a_document_is_not_a_workload(tmp_path: Path) -> None:
    with pytest.raises(FlintError, match=r"workload\.json"):
        flint.load(tmp_path)


@pytest.mark.parametrize("text", ["", "[]", "{", '{"schema": 99}', '{"schema": 1}', "null"])
def test_a_document_that_is_not_ours_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "workload.json").write_text(text)
    with pytest.raises(FlintError, match=r"workload\.json"):
        flint.load(tmp_path)


def test_a_graph_path_outside_the_folder_is_refused(workload: Workload, tmp_path: Path) -> None:
    workload.save(tmp_path / "out")
    path = tmp_path / "out/workload.json"
    document = json.loads(path.read_text())
    document["programs"][0]["graph"] = "../../secret.npz"
    path.write_text(json.dumps(document))
    with pytest.raises(FlintError, match="outside"):
        flint.load(tmp_path / "out")


@pytest.mark.parametrize(
    "name", ["../../../x", "/tmp/x", "a/b", "..", ".hidden", "a\0b", "a\\b", "", "x" * 300]
)
def test_a_program_name_that_is_not_a_file_name_is_refused(
    name: str, workload: Workload, tmp_path: Path
) -> None:
    workload.save(tmp_path / "out")
    path = tmp_path / "out/workload.json"
    document = json.loads(path.read_text())
    document["programs"][0]["name"] = name
    document["programs"][0]["graph"] = f"programs/{name}.graph.npz"
    path.write_text(json.dumps(document))
    with pytest.raises(FlintError):
        flint.load(tmp_path / "out")
    renamed = dataclasses.replace(workload.programs[0], name=name)
    with pytest.raises(FlintError, match="names of programs are"):
        dataclasses.replace(workload, programs=(renamed,)).save(tmp_path / "again")
    assert sorted(item.name for item in tmp_path.iterdir()) == ["out"]


def test_a_module_file_of_another_kind_is_none_of_the_folders(
    workload: Workload, tmp_path: Path
) -> None:
    """Python runs ``sitecustomize.py`` where it starts: no file of a folder is called so."""
    workload.save(tmp_path / "out")
    path = tmp_path / "out/workload.json"
    (tmp_path / "out/programs/sitecustomize.py").write_text("evil")
    document = json.loads(path.read_text())
    document["programs"][0]["module"] = "programs/sitecustomize.py"
    path.write_text(json.dumps(document))
    with pytest.raises(FlintError, match=r"sitecustomize\.py is no module of program main"):
        flint.load(tmp_path / "out")


def test_a_pickle_in_a_graph_file_is_not_opened() -> None:
    buffer = io.BytesIO()
    np.savez(buffer, document=np.array([{"a": 1}], dtype=object), allow_pickle=True)
    with pytest.raises(FlintError):
        graph_from_bytes(buffer.getvalue(), "evil.npz")


#: What reads an archive of a folder.
ARCHIVES = (
    graph_from_bytes,
    Allocations.from_bytes,
    lambda data, name: Timing.from_bytes(data, 3, name),
)


@pytest.mark.parametrize("read", ARCHIVES)
def test_an_archive_made_for_its_size_is_refused(read: Callable[[bytes, str], Any]) -> None:
    """Of 130 KB come 128 MB; no memory has room for what the other one's headers claim."""
    buffer = io.BytesIO()
    np.savez_compressed(buffer, start=np.zeros(1 << 24, np.int64))
    with pytest.raises(FlintError, match=r"bomb\.npz: refused: .* more than 250"):
        read(buffer.getvalue(), "bomb.npz")
    buffer, header = io.BytesIO(), io.BytesIO()
    shape = {"descr": "<i8", "fortran_order": False, "shape": (1 << 40,)}
    np.lib.format.write_array_header_1_0(header, shape)
    with zipfile.ZipFile(buffer, "w") as archive:
        for name in ("start", "rows", "document"):
            archive.writestr(f"{name}.npy", header.getvalue())
    with pytest.raises(FlintError, match=r"claims\.npz: not .*is not an array of int64"):
        read(buffer.getvalue(), "claims.npz")


@pytest.mark.parametrize("read", ARCHIVES)
def test_an_archive_of_another_compression_is_refused(read: Callable[[bytes, str], Any]) -> None:
    """`zipfile` unpacks LZMA in pieces of any size."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_LZMA) as archive:
        archive.writestr("start.npy", b"")
    with pytest.raises(FlintError, match="neither deflated nor stored"):
        read(buffer.getvalue(), "odd.npz")


def test_a_program_with_conditionals_is_refused(workload: Workload) -> None:
    tables = TableBuilder()
    inner, outer = GraphBuilder(tables), GraphBuilder(tables)
    kind = tables.type(tensor_type((8,), "f32"))
    branch = inner.finish([inner.input(kind)])
    made = outer.conditional(Conditional((branch,), constant(0)), [outer.input(kind)], [kind])
    graph = with_tables(outer.finish(made), tables.finish())
    program = dataclasses.replace(workload.programs[0], graph=graph)
    with pytest.raises(FlintError, match="program main has conditionals"):
        dataclasses.replace(workload, programs=(program,)).verify()


def test_a_damaged_graph_is_a_clear_error(workload: Workload) -> None:
    data = bytearray(graph_to_bytes(workload.graph))
    for position in range(0, len(data), max(1, len(data) // 60)):
        damaged = bytes(data[:position])
        with pytest.raises(FlintError):
            graph_from_bytes(damaged, "cut.npz")


def test_axes_need_a_mesh_of_their_length() -> None:
    with pytest.raises(UsageError, match="axes"):
        flint.convert(DATA / "pipeline_ppermute_8x8.mlirbc", axes=("a", "b"))


GLOBAL = """module @jit_step attributes {mhlo.num_partitions = 8 : i32} {
  sdy.mesh @mesh = <["data"=8]>
  func.func @main(%x: tensor<64x64xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"data"}, {}]>})
      -> tensor<64x64xf32> {
    %y = stablehlo.dot %x, %x : (tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32>
    return %y : tensor<64x64xf32>
  }
}"""


def test_a_program_with_global_shapes_gets_no_traces(tmp_path: Path) -> None:
    # Taken for per-device, its shapes would be 8 times too large and its collectives missing.
    (tmp_path / "global.mlir").write_text(GLOBAL)
    workload = flint.convert(tmp_path / "global.mlir", level="logical")
    assert workload.level == "logical"
    with pytest.raises(UsageError, match="not partitioned"):
        workload.save(tmp_path / "out")


def test_a_program_whose_inputs_are_replicated_is_per_device(tmp_path: Path) -> None:
    text = GLOBAL.replace('[{"data"}, {}]', "[{}, {}]")
    (tmp_path / "replicated.mlir").write_text(text)
    assert flint.convert(tmp_path / "replicated.mlir").level == "partitioned"


@pytest.mark.parametrize("ranks", [[], [64], [-1], ["0"], 3, [0.5]])
def test_ranks_that_are_not_ranks_are_refused(
    ranks: object, workload: Workload, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match=r"ranks="):
        workload.save(tmp_path / "out", ranks=ranks)


def test_ranks_may_be_numbers(workload: Workload, tmp_path: Path) -> None:
    workload.save(tmp_path / "out", ranks=np.array([5, 2, 5]))
    assert sorted(path.name for path in (tmp_path / "out/et").glob("*.et")) == [
        "trace.2.et",
        "trace.5.et",
    ]
