"""What a user can get wrong with ``flint simulate`` and ``flint systems``: one clear line each."""

from __future__ import annotations

import json
import shutil

import pytest

from flint.cli import main
from flint.cost.systems import load_system, system_names
from flint.graph.building import GraphBuilder, TableBuilder
from flint.graph.graph import with_tables
from flint.graph.work import Role, Work
from flint.mesh.mesh import Mesh
from tests.simulation.test_simulate import BIG, overlapped, workload_of


def run(capsys, *arguments):
    with pytest.raises(SystemExit) as stopped:
        main([str(argument) for argument in arguments])
    said = capsys.readouterr()
    return stopped.value.code, said.out, said.err


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    place = tmp_path_factory.mktemp("saved") / "out"
    overlapped(Mesh((8, 8), ("data", "model")), "data").save_programs(place)
    return place


@pytest.fixture
def folder(saved, tmp_path):
    return shutil.copytree(saved, tmp_path / "out")


@pytest.mark.parametrize("name", system_names())
def test_a_system_can_be_written_out_changed_and_used(tmp_path, capsys, name):
    status, text, _ = run(capsys, "systems", name, "--toml")
    assert status == 0
    mine = tmp_path / "mine.toml"
    mine.write_text(text)
    assert load_system(mine) == load_system(name)
    assert run(capsys, "systems", mine, "--toml")[1] == text


def test_a_users_system_gives_what_the_same_named_one_gives(folder, tmp_path, capsys):
    mine = tmp_path / "mine.toml"
    mine.write_text(run(capsys, "systems", "dgx-h100", "--toml")[1])
    ours, theirs = (
        json.loads(run(capsys, "simulate", folder, "--system", system, "--json")[1])
        for system in ("dgx-h100", mine)
    )
    assert ours == theirs
    document = json.loads(run(capsys, "systems", mine, "--json")[1])
    assert document[0]["name"] == "dgx-h100" and len(document[0]["figures"]) > 20


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ('"3.35 TB/s"', '"3.35"', "accelerator.memory_bandwidth: '3.35' has no unit"),
        ('"450 GB/s"', '"-450 GB/s"', "network[0].bandwidth must be above 0"),
        ('name = "dgx-h100"', "name = 3", "name must be a string"),
        ("[[network]]", "[[networks]]", "network is missing"),
    ],
)
def test_a_faulty_system_is_one_line(folder, tmp_path, capsys, before, after, message):
    text = run(capsys, "systems", "dgx-h100", "--toml")[1]
    assert before in text
    (tmp_path / "mine.toml").write_text(text.replace(before, after))
    status, _, error = run(capsys, "simulate", folder, "--system", tmp_path / "mine.toml")
    assert status == 2
    assert "mine.toml" in error and message in error and error.count("\n") == 1


def test_a_system_on_which_a_step_takes_for_ever_is_one_line(folder, tmp_path, capsys):
    """Ticks are picoseconds in 64 bits: 16 MB at one byte per second are 2e19 of them."""
    text = run(capsys, "systems", "dgx-h100", "--toml")[1]
    (tmp_path / "mine.toml").write_text(text.replace('"400 Gb/s"', '"1 B/s"'))
    status, _, error = run(capsys, "simulate", folder, "--system", tmp_path / "mine.toml")
    assert status == 1 and "would take more than 1,000,000 seconds" in error
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    ("options", "status", "message"),
    [
        (("--system", "dgx-h200"), 2, "unknown system 'dgx-h200'"),
        (("--system", "dgx-h10"), 2, "did you mean dgx-h100?"),
        (("--system", "."), 2, "cannot be read"),
        (("--system", ""), 2, "cannot be read"),  # of a variable that is not set
        (("--granularity", ""), 2, "granularity ''"),
        (("--system", "/dev/zero"), 2, "too large"),
        (("--durations", "/dev/zero"), 2, "too large"),
        (("--html", "page", "--network", "./page"), 2, "--html and --network name the same file"),
        (("--timeline", "page", "--html", "out/../page"), 2, "--timeline and --html name the same"),
        (("--durations", "absent.csv"), 2, "absent.csv: cannot be read"),
        (("--pass", "hoist:by=0"), 2, "hoist"),
        (("--timeline", "absent/step.json"), 2, "there is no folder"),
        (("--html", "."), 2, "is a folder"),
        (("--engine", "astra-sin"), 2, "unknown engine 'astra-sin'"),
        (("--colour", "red"), 2, "--colour"),
    ],
)
def test_a_faulty_option_is_one_line(folder, capsys, monkeypatch, options, status, message):
    monkeypatch.chdir(folder.parent)
    found, out, error = run(capsys, "simulate", "out", *options)
    assert (found, out) == (status, "")
    assert message in error and error.count("\n") == 1


@pytest.mark.parametrize("linked", ["page", "pages"])
def test_two_pictures_in_one_file_by_way_of_a_link_are_refused(folder, tmp_path, capsys, linked):
    """A link is written through, so that the second picture would be all that is left."""
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "page").touch()
    (tmp_path / "page").symlink_to(tmp_path / "real" / "page")
    (tmp_path / "pages").symlink_to(tmp_path / "real")
    link = {"page": tmp_path / "page", "pages": tmp_path / "pages" / "page"}[linked]
    status, out, error = run(
        capsys, "simulate", folder, "--html", tmp_path / "real" / "page", "--network", link
    )
    assert (status, out) == (2, "")
    assert "--html and --network name the same file" in error
    assert not (tmp_path / "real" / "page").read_text()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the first line must be op,result,seconds"),
        ("name,time\nmatmul,3\n", "the first line must be op,result,seconds"),
        ("op,result,seconds\ndot_general,4096x4096xbf16\n", ":2: expected op,result,seconds"),
        ("op,result,seconds\ndot_general,4096x4096xbf16,fast\n", ":2: expected op,result"),
        ("op,result,seconds\ndot_general,4096x4096xbf16,-1\n", ":2: seconds must be at least 0"),
        ("op,result,seconds\na,b,1\na,b,2\n", ":3: a b has two durations"),
        ("\0\udcff", "cannot be read"),
    ],
)
def test_faulty_durations_are_one_line(folder, tmp_path, capsys, text, message):
    file = tmp_path / "kernels.csv"
    file.write_bytes(text.encode(errors="surrogateescape"))
    status, _, error = run(capsys, "simulate", folder, "--durations", file)
    assert status == 2
    assert "kernels.csv" in error and message in error and error.count("\n") == 1


@pytest.mark.parametrize(
    ("mesh", "system", "message"),
    [
        ((73, 2), "gb200-nvl72", "146 ranks do not map to gb200-nvl72"),
        ((13, 2), "dgx-h100", "26 ranks do not map to dgx-h100"),
    ],
)
def test_a_mesh_that_does_not_map_is_one_line(tmp_path, capsys, mesh, system, message):
    overlapped(Mesh(mesh, ("data", "model")), "model").save_programs(tmp_path / "out")
    status, _, error = run(capsys, "simulate", tmp_path / "out", "--system", system)
    assert status == 2 and message in error and error.count("\n") == 1


def test_a_graph_without_costs_is_one_line(tmp_path, capsys):
    tables = TableBuilder()
    builder = GraphBuilder(tables)
    value = builder.input(tables.type(BIG))
    (value,) = builder.compute("mystery", Role.OPAQUE, (value,), (BIG,), Work((), 0, 0))
    graph = with_tables(builder.finish((value,)), tables.finish())
    workload_of(graph, mesh=Mesh((2,), ("x",))).save_programs(tmp_path / "out")
    status, _, error = run(capsys, "simulate", tmp_path / "out")
    assert status == 1
    assert "none of its nodes has work" in error and error.count("\n") == 1


@pytest.mark.parametrize("damage", ["{", '{"schema": 1}', "[]"])
def test_a_damaged_folder_is_one_line(folder, capsys, damage):
    (folder / "workload.json").write_text(damage)
    status, _, error = run(capsys, "simulate", folder)
    assert status == 1 and "workload.json" in error and error.count("\n") == 1


def test_no_folder_is_one_line(tmp_path, capsys):
    status, _, error = run(capsys, "simulate", tmp_path)
    assert status == 1 and "not a workload folder" in error and error.count("\n") == 1


def test_a_folder_of_chakra_traces_is_called_one(tmp_path, capsys):
    (tmp_path / "trace.0.et").write_bytes(b"")
    status, _, error = run(capsys, "simulate", tmp_path)
    assert status == 1 and error.count("\n") == 1
    assert "only Chakra execution traces, which flint check reads" in error


def test_a_path_that_is_not_there_is_usage(tmp_path, capsys):
    status, _, error = run(capsys, "simulate", tmp_path / "nothing")
    assert status == 2 and "nothing: no such file" in error and error.count("\n") == 1
