"""Regardless of a file's contents, nothing is written outside of the folder that the user names."""

from __future__ import annotations

import dataclasses
import io
import json
import stat
import sys
import zipfile
from pathlib import Path

import pytest

import flint
from flint import registry
from flint.cost.systems import load_system
from flint.errors import FlintError
from flint.graph.graph import with_tables
from flint.host.writing import inside, replacing, replacing_folder, replacing_in
from flint.sweeps import packing, page, picture, rows, running
from flint.sweeps.description import Sweep
from tests.post_execution.traces import Profile
from tests.support.command_line import failed, flint_here
from tests.support.written import places

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc for descriptors")

MODULE = Path(__file__).parent / "data/stablehlo/pipeline_ppermute_8x8.mlirbc"
#: Names as a file may have them for ranks, groups, programs, ops, tensors and layers.
HOSTILE = [
    "../../escaped", "/escaped", "a/../../../escaped", "..", "~/escaped", "nul\0byte", "$(id)\n",
    "x" * 5000, "con:stream", "trace.0.et", "ünï-\U0001f600",
]  # fmt: skip
#: One of them always, the others among all tests.
NAMES = [HOSTILE[0], *(pytest.param(name, marks=pytest.mark.thorough) for name in HOSTILE[1:])]


@pytest.fixture
def named(tmp_path, monkeypatch):
    """The folder that the user names, next to one with files that must not change."""
    for name in ("named", "temporary", "outside"):
        (tmp_path / name).mkdir()
    (tmp_path / "outside/precious").write_text("old")
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.setenv("MPLCONFIGDIR", str(tmp_path / "temporary"))
    return tmp_path / "named"


@pytest.fixture
def nowhere_else(named):
    """All that is written during the test lies in the user's folder, or is temporary."""
    with places() as found:
        yield
    allowed = (named, named.parent / "temporary", Path("/dev"), Path("/proc"))
    strays = [
        path
        for path in found
        if not any(path.is_relative_to(root) for root in allowed)
        and "__pycache__" not in path.parts  # Python's own
    ]
    assert strays == []
    assert sorted(p.name for p in (named.parent / "outside").iterdir()) == ["precious"]
    assert (named.parent / "outside/precious").read_text() == "old"


def hostile(name: str) -> flint.Workload:
    """A workload in which everything that has a name of its own has this one."""
    workload = flint.convert(MODULE, mesh=(8, 8), axes=("stage", "data"))
    program = workload.programs[0]
    tables = program.graph.tables
    tables = dataclasses.replace(
        tables,
        sources=tuple(dataclasses.replace(s, layer=name, file=name) for s in tables.sources),
        communications=tuple(
            dataclasses.replace(c, process_group=name) for c in tables.communications
        ),
    )
    program = dataclasses.replace(
        program,
        graph=with_tables(program.graph, tables),
        inputs=tuple(dataclasses.replace(i, name=name, sharding=name) for i in program.inputs),
        module=(b"", name),
    )
    return dataclasses.replace(
        workload,
        programs=(program,), options={"x": name}, input={"file": name}, warnings={name: 1},
    )  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.usefixtures("nowhere_else")
def test_folders_and_pictures_of_hostile_names_stay_where_they_belong(name, named):
    workload = hostile(name)
    workload.save(named / "out", ranks="0-1", annotate=True)
    flint.load(named / "out").save_programs(named / "again")
    for kind in ("dot", "graphml", "perfetto"):
        registry.converter(kind)(workload, named / f"graph.{kind}")
    pictures = ("--timeline", "t.json", "--html", "r.html", "--network", "n.svg")
    run = flint_here("simulate", "again", *pictures, cwd=named)
    assert run.returncode == 0, run.stderr
    assert {"t.json", "r.html", "n.svg"} <= {path.name for path in named.iterdir()}


@pytest.mark.parametrize("name", NAMES[:3])
@pytest.mark.usefixtures("nowhere_else")
def test_traces_of_hostile_names_stay_where_they_belong(name, named):
    for rank in (0, 1):
        trace = Profile(rank, 2, pg_config=[{"pg_name": name, "pg_desc": name, "ranks": [0, 1]}])
        trace.span(name, 0, 100)
        trace.work(10, 15, 10, name=name)
        trace.collective(30, 35, 10, **{"Process Group Name": name})
        trace.write(named / f"rank{rank}.json")
    run = flint_here("convert", "rank0.json", "rank1.json", "-o", "out", cwd=named)
    assert run.returncode == 0, run.stderr
    run = flint_here("validate", "out", "--trace", "rank0.json", "--html", "v.html", cwd=named)
    assert (named / "v.html").is_file(), run.stderr


@pytest.mark.usefixtures("nowhere_else")
def test_a_modules_own_name_is_none_of_a_file(named):
    text = (
        'HloModule "../../escaped", entry_computation_layout={(f32[4]{0})->f32[4]{0}}\n'
        "ENTRY %main (x: f32[4]) -> f32[4] {\n  %x = f32[4]{0} parameter(0)\n"
        "  ROOT %y = f32[4]{0} add(%x, %x)\n}\n"
    )
    (named / "m.hlo").write_text(text.replace('"', ""))
    flint_here("convert", "m.hlo", "-o", "out", cwd=named)  # read or refused


def links(folder: Path, outside: Path) -> None:
    """Every name that a sweep writes is a link out of its folder, left by another user."""
    folder.mkdir()
    for name in ("sweep.json", "results.json", "results.csv", "sweep.png", "sweep.html"):
        (folder / name).symlink_to(outside / "precious")


@pytest.mark.usefixtures("nowhere_else")
def test_a_sweep_follows_no_link_out_of_its_folder(named):
    folder = named / "sweep"
    links(folder, named.parent / "outside")
    sweep = Sweep(("step.py:step",), ("8",), ("dgx-h100",), folder)
    row = dict.fromkeys(rows.COLUMNS) | {"mesh": "8", "error": "../../escaped", "step": "s"}
    good = row | {
        "error": None, "step_seconds": 1.0, "compute_seconds": 1.0, "peak_memory_bytes": 1,
        "exposed_communication_seconds": 0.0, "mfu": 0.5, "device_seconds": 8.0, "fits": True,
        "pareto": True, "system": "../../escaped", "ranks": 8, "workload": "w", "notes": [],
    }  # fmt: skip
    running._claim(folder)
    rows.write(sweep, [row, good])
    picture.draw([row, good], folder / "sweep.png")
    page.write(sweep, [row, good], folder / "sweep.html", None)
    assert json.loads((folder / "results.json").read_text())["rows"]
    assert not (folder / "results.json").is_symlink()


@pytest.mark.parametrize("name", ["points", "workloads"])
@pytest.mark.usefixtures("nowhere_else")
def test_a_sweep_refuses_folders_that_are_links_out_of_it(name, named):
    (named / "sweep").mkdir()
    (named / "sweep/sweep.json").write_text("{}")
    (named / "sweep" / name).symlink_to(named.parent / "outside")
    with pytest.raises(FlintError, match="leads out of the folder"):
        running._claim(named / "sweep")


@pytest.mark.usefixtures("nowhere_else")
def test_a_capture_that_is_a_link_out_of_a_sweep_is_refused(named):
    (named / "step.py").write_text("def step(): pass\n")
    sweep = Sweep((f"{named}/step.py:step",), ("8",), ("dgx-h100",), named / "sweep")
    [point] = running.points(sweep)
    running._claim(sweep.folder)
    point.workload.symlink_to(named.parent / "outside")
    with pytest.raises(FlintError, match="leads out of the folder"):
        running._claim(sweep.folder, [point.workload])


@pytest.mark.usefixtures("nowhere_else")
def test_an_archive_is_unpacked_into_its_folder(named):
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as packed:
        for name in ("../escaped", "/escaped", "a/../../escaped"):
            packed.writestr(name, "evil")
        link = zipfile.ZipInfo("link")
        link.external_attr = (stat.S_IFLNK | 0o777) << 16
        packed.writestr(link, str(named.parent / "outside"))
    packing.unpack(archive.getvalue(), named / "copy")
    assert not (named / "copy/link").is_symlink()


@pytest.mark.usefixtures("nowhere_else")
def test_the_simulators_own_files_are_temporary(named, monkeypatch):
    """ASTRA-sim writes logs where it starts; its traces and settings are the folder's."""
    binary = named / "AstraSim_Analytical_Congestion_Unaware"
    binary.write_text("#!/bin/sh\npwd\n")
    binary.chmod(0o755)
    hostile("../../escaped").save(named / "out")
    run = flint_here(
        "simulate", "out", "--engine", "astra-sim", "--astra-sim", str(binary), cwd=named
    )
    assert str(named.parent / "temporary") in failed(run, 1)
    assert list((named.parent / "temporary").iterdir()) == []


@pytest.mark.parametrize(
    "name", ["../x", "/x", "a/../../x", "nul\0", "..", "", "link/x", "link/../x", "loop/x"]
)
def test_a_path_below_a_folder_does_not_leave_it(name, named):
    (named / "link").symlink_to(named.parent / "outside")
    (named / "loop").symlink_to(named / "loop")
    with pytest.raises(FlintError), replacing_in(named, name) as partial:
        partial.write_text("evil")
    assert sorted(path.name for path in named.iterdir()) == ["link", "loop"]


def test_a_path_below_a_folder_that_is_a_link_is_inside(named):
    (named.parent / "link").symlink_to(named)
    assert inside(named.parent / "link", "a/b") == named.parent / "link/a/b"


@pytest.mark.parametrize("write", [replacing, replacing_folder])
def test_a_null_byte_is_not_part_of_a_name(write, named):
    with pytest.raises(FlintError, match="null byte"), write(named / "a\0b"):
        pass


@pytest.mark.parametrize("write", [replacing, replacing_folder])
def test_the_longest_name_that_a_file_may_have_is_written(write, named):
    path = named / ("é" * 127)  # two bytes each, and 255 is the most
    with write(path) as partial:
        if write is replacing:
            partial.write_text("")
    assert [item.name for item in named.iterdir()] == [path.name]


def test_a_folder_that_is_a_link_keeps_its_link(named):
    """As a file that is one: the user named where it leads to."""
    workload = flint.convert(MODULE, mesh=(8, 8), axes=("stage", "data"))
    (named / "disk").mkdir()
    (named / "out").symlink_to(named / "disk")
    workload.save_programs(named / "out")
    workload.save_programs(named / "out")
    assert (named / "out").is_symlink()
    assert (named / "disk/workload.json").is_file()
    assert sorted(path.name for path in named.iterdir()) == ["disk", "out"]


def test_the_systems_name_leads_nowhere(named):
    with pytest.raises(FlintError):
        load_system("../../escaped")
