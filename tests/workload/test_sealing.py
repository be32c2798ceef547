"""The folder is sealed: every change of a file is noticed, and named in one line."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import flint
from flint.converters.chakra.check.checker import check
from flint.errors import FlintError
from flint.host.checksums import checksum, coefficients
from flint.workload.sealing import entry_of, rank_runs
from tests.support.command_line import failed, flint_here
from tests.workload.test_earlier_folders import FOLDER

MODULE = Path(__file__).parents[1] / "data/stablehlo/pipeline_ppermute_8x8.mlirbc"


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sealed") / "out"
    flint.convert(MODULE, mesh=(8, 8), axes=("stage", "data")).save(folder)
    return folder


@pytest.fixture
def folder(written, tmp_path):
    return shutil.copytree(written, tmp_path / "out")


def files(folder):
    return sorted(p for p in folder.rglob("*") if p.is_file() and p.name != "workload.json")


def document(folder):
    return json.loads((folder / "workload.json").read_text())


def reseal(folder, change=lambda document: None):
    """As somebody would who means harm: the seal is that of the files as they are."""
    text = document(folder)
    for name in text["files"]:
        text["files"][name] = entry_of((folder / name).read_bytes())
    change(text)
    (folder / "workload.json").write_text(json.dumps(text))


def flip(path, position=-1):
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.unlink()  # other ranks may have the same file
    path.write_bytes(data)


@given(st.binary(max_size=300_000), st.data())
def test_a_flipped_bit_changes_the_checksum(data, draw):
    if data:
        position = draw.draw(st.integers(0, len(data) - 1))
        changed = bytearray(data)
        changed[position] ^= 1 << draw.draw(st.integers(0, 7))
        assert checksum(bytes(changed)) != checksum(data)


@given(st.binary(min_size=1, max_size=300_000), st.data())
def test_the_checksum_of_a_file_follows_from_what_differs(data, draw):
    """Over several blocks of 128 KiB, too: each has weights of its own."""
    data = np.frombuffer(data * (1 + 200_000 // len(data)), np.uint8)
    at = draw.draw(st.lists(st.integers(0, len(data) - 1), unique=True, max_size=20))
    new = np.array(draw.draw(st.lists(st.integers(0, 255), min_size=len(at), max_size=len(at))))
    changed = data.copy()
    changed[at] = new
    more = sum(
        int(c) * (int(n) - int(o))
        for c, n, o in zip(coefficients(np.array(at, int)), new, data[at], strict=True)
    )
    assert checksum(changed) == (checksum(data) + more) % 2**64


def test_blocks_that_change_places_change_the_checksum():
    blocks = np.random.default_rng(0).integers(0, 256, (3, 1 << 17), np.uint8)
    assert checksum(blocks.tobytes()) != checksum(blocks[[1, 0, 2]].tobytes())


@given(st.sets(st.integers(0, 200), min_size=1))
def test_ranks_are_listed_by_runs(ranks):
    listed = set()
    for part in rank_runs(np.array(sorted(ranks, reverse=True))).split(","):
        first, _, last = part.partition("-")
        listed |= set(range(int(first), int(last or first) + 1))
    assert listed == ranks


def test_every_file_is_in_the_seal(written):
    text = document(written)
    traces = {f"et/trace.{rank}.et" for rank in range(64)}
    named = {path.relative_to(written).as_posix() for path in files(written)}
    assert named == traces | set(text["files"])
    assert text["version"]
    assert check(written).ok and "changed-file" in check(written).checked


def test_a_change_of_any_file_is_found_by_check(written, folder):
    names = [path.relative_to(folder) for path in files(folder) if path.suffix != ".et"]
    for name in [*names, Path("et/trace.0.et"), Path("et/trace.63.et")]:
        if name.parts[0] != "astra-sim":  # what is no JSON any more is refused before
            flip(folder / name, (folder / name).stat().st_size // 2)
            [said] = [f.message for f in check(folder).findings if f.rule == "changed-file"]
            assert str(folder / name) in said and "has changed" in said
            shutil.copyfile(written / name, folder / name)


def test_settings_of_the_simulator_may_be_edited_with_a_warning(folder):
    path = folder / "astra-sim/system.json"
    path.write_text(path.read_text().replace('"endpoint-delay": 1', '"endpoint-delay": 2'))
    report = check(folder)
    assert report.ok and report.counts["changed-setting"] == 1


@pytest.mark.parametrize(
    ("file", "old", "new", "said"),
    [
        ("network.yml", '"Switch"', '"Star"', "'Star' is none of Ring, FullyConnected, Switch"),
        ("network.yml", '"bandwidth": [', '"bandwidth": [1.5, ', "bandwidth has"),
        ("network.yml", '"latency": [', '"latency": [-1, ', "latency: -1"),
        ("system.json", '"ring"', '"rings"', "'rings' is no algorithm of ASTRA-sim's"),
        ("system.json", '"FIFO"', '"fifo"', "'fifo' is none of LIFO, FIFO, EXPLICIT"),
        ("remote_memory.json", "NO_MEMORY", "SOME_MEMORY", "'SOME_MEMORY_EXPANSION' is none of"),
        (
            "remote_memory.json",
            "NO_MEMORY_EXPANSION",
            "MEMORY_POOL",
            "remote-mem-bw: 0 is not above",
        ),
        ("remote_memory.json", "memory-type", "type", "memory-type: None is none of"),
        ("system.json", "{", '[{"a": 1}, {', None),  # no JSON any more: refused before
    ],
)
def test_settings_that_astra_sim_aborts_on_are_errors(folder, file, old, new, said):
    path = folder / "astra-sim" / file
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    if said is None:
        with pytest.raises(FlintError, match=r"not (YAML|JSON)"):
            check(folder)
        return
    report = check(folder)
    assert not report.ok and report.counts["changed-setting"] == 1
    assert any(f.rule == "refused-setting" and said in f.message for f in report.findings)


@pytest.mark.parametrize("file", ["network.yml", "remote_memory.json", "system.json"])
def test_a_simulator_without_its_settings_does_not_start(folder, file):
    (folder / "astra-sim" / file).unlink()
    report = check(folder)
    [said] = [f.message for f in report.findings if f.rule == "refused-setting"]
    assert not report.ok and f"{file} is missing" in said


def test_missing_and_foreign_files_are_a_line_each(folder):
    (folder / "programs/main.graph.npz").unlink()
    shutil.copyfile(folder / "et/trace.0.et", folder / "et/trace.00.et")
    (folder / "et/trace.63.et").unlink()
    run = flint_here("check", "out", cwd=folder.parent)
    assert run.returncode == 1
    changed = [line for line in run.stdout.splitlines() if "[changed-file]" in line]
    assert len(changed) == 3
    assert "main.graph.npz is missing" in changed[0]
    assert "trace.63.et is missing" in changed[1]
    assert "trace.00.et was not written by Flint" in changed[2]


def test_traces_of_more_ranks_than_there_are_files_are_one_line(folder):
    """Each missing one had a line: ten billion took forever."""
    path = folder / "workload.json"
    document = json.loads(path.read_text())
    document["traces"] = dict.fromkeys(document["traces"], "0-9999999999")
    path.write_text(json.dumps(document))
    run = flint_here("check", "out", cwd=folder.parent)
    changed = [line for line in run.stdout.splitlines() if "[changed-file]" in line]
    assert run.returncode == 1 and len(changed) == 1
    assert "has 64 traces, but Flint wrote" in changed[0]


@pytest.mark.parametrize("stated", [False, True])
@pytest.mark.parametrize("name", ["et/trace.0.et", "programs/main.graph.npz"])
def test_a_file_of_a_terabyte_of_holes_is_not_read(folder, name, stated):
    """Neither where the seal has the size that it was, nor where that was changed, too."""
    path = folder / name
    size = path.stat().st_size
    path.unlink()
    with path.open("wb") as file:
        file.truncate(1 << 40)
    if stated:
        document = folder / "workload.json"
        text = document.read_text()
        document.write_text(text.replace(f'"{size}:', f'"{1 << 40}:'))
    run = flint_here("check", "out", cwd=folder.parent)
    assert run.returncode == 1 and "internal error" not in run.stderr
    [line] = [line for line in run.stdout.splitlines() if f"{name} " in line]
    assert ("a sparse file" if stated else "has changed since Flint wrote it") in line
    if "graph" in name:
        failed(flint_here("inspect", "out", cwd=folder.parent), 1)


@pytest.mark.parametrize("name", ["programs/main.graph.npz", "programs/main.mlirbc"])
def test_a_changed_program_is_refused_by_name(name, folder):
    flip(folder / name, 100)
    line = failed(flint_here("simulate", "out", cwd=folder.parent), 1)
    assert f"{name}: has changed since Flint wrote it" in line


def test_a_graph_with_columns_of_another_type_is_one_line(folder):
    path = folder / "programs/main.graph.npz"
    with np.load(path) as arrays:
        columns = dict(arrays)
    columns["flops"] = columns["work_flops"].astype(np.float64)
    columns["work_flops"] = columns.pop("flops")
    with path.open("wb") as out:
        np.savez(out, **columns)
    reseal(folder)
    line = failed(flint_here("inspect", "out", cwd=folder.parent), 1)
    assert "main.graph.npz" in line and "work_flops is not an integer column" in line


@pytest.mark.parametrize(
    ("where", "value"),
    [
        (("mesh", "shape"), [8, -8]),
        (("mesh", "shape"), [2**62, 64]),
        (("mesh", "shape"), []),
        (("level",), "guessed"),
        (("programs", 0, "ranks", "runs"), [[0, 65]]),
        (("programs", 0, "ranks", "runs"), [[5, 3]]),
        (("programs", 0, "ranks", "period"), 0),
        (("programs", 0, "inputs", 0, "bytes"), -1),
        (("programs", 0, "inputs", 0, "bytes"), 1e300),
        (("programs", 0, "inputs", 0, "donated"), 99),
        (("programs", 0, "inputs"), []),
        (("programs", 0, "graph"), "programs/other.graph.npz"),
        (("programs", 0, "module"), "programs/sitecustomize.py"),
        (("programs", 0, "module"), "../x.mlir"),
        (("files", "programs/main.graph.npz"), "abc"),
        (("files",), None),
        (("traces",), {"1:0000000000000000": "0-"}),
        (("warnings",), {"x": "y"}),
        (("schema",), 3),
        (("without",), "latency"),
        (("et", "order"), 5),
    ],
)
def test_a_document_that_contradicts_its_schema_is_one_line(where, value, folder):
    def change(text):
        place = text
        for part in where[:-1]:
            place = place[part]
        place[where[-1]] = value

    reseal(folder, change)
    line = failed(flint_here("inspect", "out", cwd=folder.parent), 1)
    assert "not a workload written by Flint" in line


def test_an_older_folder_is_read_with_a_note(tmp_path):
    run = flint_here("inspect", FOLDER, cwd=tmp_path)
    assert run.returncode == 0
    assert "was written by an earlier version, without checksums" in run.stderr
    run = flint_here("check", FOLDER, cwd=tmp_path)
    assert run.returncode == 0
    assert "not checked, because the folder is of an earlier version" in run.stdout


def test_an_older_folder_that_contradicts_itself_is_refused(tmp_path):
    folder = shutil.copytree(FOLDER, tmp_path / "out")
    (folder / "programs/main.graph.npz").write_bytes(b"PK")
    with pytest.raises(FlintError, match=r"main\.graph\.npz"):
        flint.load(folder)


def test_a_program_that_is_missing_is_named(folder):
    (folder / "programs/main.graph.npz").unlink()
    with pytest.raises(
        FlintError, match=r"main\.graph\.npz: is missing: capture or convert again$"
    ):
        flint.load(folder)
