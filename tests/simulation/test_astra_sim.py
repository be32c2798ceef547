"""``--engine astra-sim`` against a stand-in that speaks ASTRA-sim's command line and lines."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import yaml

import flint
from flint.cli import main
from flint.converters.chakra.read.reader import read_trace
from flint.converters.chakra.schema import NodeType
from flint.cost.simplified import without
from flint.cost.systems import load_system
from flint.graph.building import GraphBuilder, TableBuilder
from flint.graph.graph import with_tables
from flint.mesh.mesh import Mesh
from flint.models.jax.llama3 import train_tiny
from tests.simulation.test_simulate import BIG, overlapped, product, workload_of

ROOT = Path(__file__).parents[2]
MESH = Mesh((2, 2), ("data", "model"))
EMBEDDED_KEYS = {
    "step_seconds", "compute_seconds", "communication_seconds", "exposed_communication_seconds",
    "idle_seconds", "peak_memory_bytes", "flops", "mfu", "fits", "programs", "notes", "engine",
}  # fmt: skip


@pytest.fixture
def folder(tmp_path):
    overlapped(MESH, "data", products=3).save(tmp_path / "out")
    return tmp_path / "out"


def run(capsys, *arguments):
    with pytest.raises(SystemExit) as stopped:
        main(["simulate", *map(str, arguments)])
    said = capsys.readouterr()
    return stopped.value.code, said.out, said.err


def test_the_network_file_is_json_and_yaml(folder):
    """Newer ASTRA-sims come with JSON networks, older ones read YAML."""
    text = (folder / "astra-sim" / "network.yml").read_text()
    assert json.loads(text) == yaml.safe_load(text)
    assert json.loads(text)["npus_count"] == [2, 2]


def compute_in_traces(folder):
    """Nanoseconds of rank 0's kernels."""
    trace = read_trace(folder / "et" / "trace.0.et")
    return int(trace.duration[trace.type == NodeType.COMP].sum()) * 1000


def test_its_times_are_read_and_a_cycle_is_a_nanosecond(folder, binary, capsys):
    """The gather of 4 MiB from a neighbour, 3.4 us and 4 MiB / 351 GB/s, is behind the products."""
    status, out, _ = run(capsys, folder, "--engine", "astra-sim", "--astra-sim", binary, "--json")
    assert status == 0
    document = json.loads(out)
    assert document.keys() >= EMBEDDED_KEYS
    assert document["programs"][0].keys() >= EMBEDDED_KEYS - {"programs", "notes", "engine", "fits"}
    compute = compute_in_traces(folder)
    assert document["compute_seconds"] == pytest.approx(compute * 1e-9)
    assert document["step_seconds"] == pytest.approx(compute * 1e-9)
    assert document["exposed_communication_seconds"] == 0
    gather = 3.4e-6 + (1 << 22) / 351e9
    assert document["communication_seconds"] == pytest.approx(gather, abs=3e-9)
    assert any("1 cycle is 1 ns" in note for note in document["notes"])
    assert document["idle_seconds"] == 0  # all ranks are done together
    ours = flint.load(folder).simulate(without(load_system("dgx-h100"), ("contention",)))
    assert (document["flops"], document["peak_memory_bytes"]) == (
        ours.flops,
        ours.peak_memory_bytes,
    )
    assert document["mfu"] * document["step_seconds"] == pytest.approx(ours.mfu * ours.step_seconds)
    # Traces hold whole microseconds, with the remainders carried on.
    assert document["compute_seconds"] == pytest.approx(ours.compute_seconds, abs=1e-6)


def test_what_an_older_one_does_not_say_is_null(folder, binary, capsys, monkeypatch):
    monkeypatch.setenv("STAND_IN", "old")
    monkeypatch.setenv("FLINT_ASTRA_SIM", str(binary))
    _, out, _ = run(capsys, folder, "--engine", "astra-sim", "--json")
    document = json.loads(out)
    assert document["step_seconds"] > 0 and document["exposed_communication_seconds"] is None
    _, out, _ = run(capsys, folder, "--engine", "astra-sim")
    assert "unknown" in out and "of dgx-h100 (kernel granularity, astra-sim)" in out


def test_one_on_the_path_or_in_a_checkout_is_found(folder, binary, capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(binary.parent), prepend=os.pathsep)
    assert run(capsys, folder, "--engine", "astra-sim")[0] == 0
    built = tmp_path / "checkout" / "build" / "astra_analytical" / "build" / "bin"
    built.mkdir(parents=True)
    binary.rename(built / binary.name)
    checkout = tmp_path / "checkout"
    assert run(capsys, folder, "--engine", "astra-sim", "--astra-sim", checkout)[0] == 0


@pytest.mark.parametrize(
    "options",
    [(), ("--system", "gb200-nvl72"), ("--granularity", "op"), ("--pass", "scale:factor=2")],
)
def test_traces_are_written_where_the_folders_do_not_fit(
    tmp_path, binary, capsys, monkeypatch, options
):
    monkeypatch.setenv("FLINT_ASTRA_SIM", str(binary))
    workload = overlapped(MESH, "data")
    workload.save(tmp_path / "out", ranks="0" if not options else "all")
    options = ["dgx-a100" if part == "gb200-nvl72" else part for part in options]
    before = sorted(tmp_path.rglob("*"))
    status, out, error = run(capsys, tmp_path / "out", "--engine", "astra-sim", "--json", *options)
    assert status == 0, error
    assert "traces of all ranks were written for it and removed" in json.loads(out)["notes"]
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize(
    ("how", "options", "message"),
    [
        ("lose", (), "did not finish (ranks 1-2; first: rank 1); rank 1 waits in node 2 (comm"),
        ("crash", (), "ended by SIGABRT and no rank finished; its last line: AstraSim: Workload"),
        ("hang", ("--time-limit", "1"), "was stopped after 1 s, 4 of 4 ranks unfinished"),
        ("one-dim", (), "use AstraSim_Analytical_Congestion_Unaware"),
    ],
)  # fmt: skip
def test_its_failures_are_one_line(folder, binary, capsys, monkeypatch, how, options, message):
    monkeypatch.setenv("STAND_IN", how)
    status, out, error = run(
        capsys, folder, "--engine", "astra-sim", "--astra-sim", binary, *options
    )
    assert (status, out) == (1, "")
    assert message in error and error.count("\n") == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ((), "no ASTRA-sim binary: build its analytical simulator"),
        (("--astra-sim", "absent"), "absent is not an executable file"),
        (("--time-limit", "0"), "--time-limit 0: expected a positive number"),
        (("--algorithm", "ring"), "--algorithm is for --engine embedded, not for astra-sim"),
        (("--system", "dgx-h10"), "unknown system 'dgx-h10'"),
    ],
)
def test_what_cannot_be_meant_is_one_line(folder, capsys, monkeypatch, options, message):
    monkeypatch.delenv("FLINT_ASTRA_SIM", raising=False)
    if "--system" in options:
        monkeypatch.setenv("FLINT_ASTRA_SIM", "/bin/true")
    monkeypatch.setenv("PATH", "")
    status, _, error = run(capsys, folder, "--engine", "astra-sim", *options)
    assert status == 2 and message in error and error.count("\n") == 1


def test_the_embedded_engine_refuses_its_options(folder, capsys):
    status, _, error = run(capsys, folder, "--time-limit", "3")
    assert status == 2 and "--time-limit is for --engine astra-sim" in error


def test_traces_for_a_system_of_ones_own_need_its_file(tmp_path, binary, capsys, monkeypatch):
    monkeypatch.setenv("FLINT_ASTRA_SIM", str(binary))
    ours = (ROOT / "flint/cost/systems/dgx-h100.toml").read_text()
    mine = tmp_path / "mine.toml"
    mine.write_text(ours.replace('name = "dgx-h100"', 'name = "mine"'))
    overlapped(MESH, "data").save(tmp_path / "out", system=str(mine))
    status, _, error = run(capsys, tmp_path / "out", "--engine", "astra-sim")
    assert status == 2 and "give its file with --system" in error
    status, out, _ = run(
        capsys, tmp_path / "out", "--engine", "astra-sim", "--system", mine, "--json"
    )
    assert status == 0 and json.loads(out)["system"] == "mine"


def test_the_system_is_by_default_that_of_the_traces(tmp_path, capsys):
    overlapped(MESH, "data").save(tmp_path / "out", system="gb200-nvl72", ranks="0")
    for options in ((), ("--granularity", "op")):
        _, out, _ = run(capsys, tmp_path / "out", "--json", *options)
        assert json.loads(out)["system"] == "gb200-nvl72"


def test_a_single_rank_is_refused(tmp_path, capsys):
    tables = TableBuilder()
    builder = GraphBuilder(tables)
    last = product(builder, builder.input(tables.type(BIG)))
    graph = with_tables(builder.finish((last,)), tables.finish())
    workload_of(graph, mesh=Mesh((1,), ("x",))).save_programs(tmp_path / "one")
    status, _, error = run(capsys, tmp_path / "one", "--engine", "astra-sim")
    assert status == 2 and "at least 2 ranks" in error


@pytest.mark.thorough
def test_kernels_last_as_long_as_in_the_embedded_engine(binary):
    """Attention included, which the program spells out: where it is asked for, traces that are
    written for it hold the fused kernel.  The stand-in runs a rank's kernels one after another."""
    workload = train_tiny.at((2, 2)).capture()
    ours = workload.simulate("tpu-v5e-pod", attention="fused")
    theirs = workload.simulate("tpu-v5e-pod", engine="astra-sim", binary=binary, attention="fused")
    # Kernels are slower during communication, which is not in traces.
    kernels = sum(row.seconds for row in ours.programs[0].classes if not row.communicates)
    written = workload.simulate("tpu-v5e-pod", attention="as-written")
    assert theirs.compute_seconds < written.compute_seconds - 1e-6
    assert ours.compute_seconds * 0.6 - 1e-6 <= theirs.compute_seconds <= kernels + 1e-6
    assert "kernels last as long as in the embedded engine" in theirs.notes
    gpu = workload.simulate("dgx-h100", engine="astra-sim", binary=binary)
    embedded = workload.simulate(without(load_system("dgx-h100"), ("contention",)))
    assert gpu.compute_seconds == pytest.approx(embedded.compute_seconds, abs=1e-6)


def test_means_leave_out_a_rank_without_a_trace(binary):
    """Rank 0's kernels take as long in both engines; what rank 1 computes is unknown."""
    profile = flint.convert_traces(
        [ROOT / "tests" / "data" / "traces" / "resnet50_ddp_nccl_rank0.json.gz"]
    )
    theirs = profile.simulate("dgx-h100", engine="astra-sim", binary=binary)
    ours = profile.simulate("dgx-h100")
    assert theirs.compute_seconds == pytest.approx(ours.compute_seconds, rel=0.01)
    document = theirs.to_json()
    assert document["programs"][1]["compute_seconds"] is None
    assert document["mfu"] is None
