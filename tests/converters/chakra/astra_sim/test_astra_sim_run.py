"""The runner believes "finished" lines only; stand-in binaries show each way to fail."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from flint.converters.chakra.astra_sim.run import (
    BINARY_VARIABLE,
    astra_sim_binary,
    astra_sim_command,
    run_astra_sim,
)
from flint.errors import FlintError, UsageError
from tests.converters.chakra.check.traces import coll, comp, recv, send, write

GOOD = [comp(0), coll(1, [0])]
SYSTEM = {
    "scheduling-policy": "LIFO",
    "endpoint-delay": 10,
    "active-chunks-per-dimension": 1,
    "preferred-dataset-splits": 1,
    "all-reduce-implementation": ["ring"],
    "all-gather-implementation": ["ring"],
    "reduce-scatter-implementation": ["ring"],
    "all-to-all-implementation": ["ring"],
    "collective-optimization": "localBWAware",
    "roofline-enabled": 0,
    "peak-perf": 1,
    "local-mem-bw": 1,
    "replay-only": 0,
    "trace-enabled": 0,
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return workload(tmp_path / "w", [GOOD, GOOD])


def workload(where: Path, ranks) -> Path:
    made = write(where, ranks, npus=[2], system=SYSTEM)
    (made / "astra-sim" / "network.yml").write_text(
        "topology: [Ring]\nnpus_count: [2]\nbandwidth: [50.0]\nlatency: [500.0]\n"
    )
    memory = made / "astra-sim" / "remote_memory.json"
    memory.write_text('{"memory-type": "NO_MEMORY_EXPANSION"}')
    return made


def stand_in(tmp_path: Path, script: str) -> Path:
    path = tmp_path / "simulator"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def test_all_ranks_finished(folder, tmp_path):
    binary = stand_in(
        tmp_path, 'echo "sys[1] finished, 70 cycles"; echo "x sys[0] finished, 60 cycles, y"'
    )
    assert run_astra_sim(folder, binary=binary).cycles == (60, 70)


def test_status_0_with_a_lost_rank_is_an_error(folder, tmp_path):
    binary = stand_in(tmp_path, 'echo "sys[0] finished, 60 cycles"')
    with pytest.raises(FlintError, match=r"status 0, but 1 of 2 ranks .*rank 1"):
        run_astra_sim(folder, binary=binary)


def test_crash_tells_the_last_line(folder, tmp_path):
    binary = stand_in(tmp_path, 'echo "assertion failed: xyz"; exit 3')
    with pytest.raises(FlintError, match=r"status 3.*assertion failed: xyz"):
        run_astra_sim(folder, binary=binary)


def test_time_limit(folder, tmp_path):
    binary = stand_in(tmp_path, 'echo "sys[0] finished"; exec sleep 60')
    with pytest.raises(FlintError, match=r"stopped after 0.2 s, \d of 2 ranks"):
        run_astra_sim(folder, binary=binary, time_limit=0.2)


def test_absent_binary(monkeypatch, tmp_path):
    monkeypatch.delenv(BINARY_VARIABLE, raising=False)
    with pytest.raises(UsageError, match=BINARY_VARIABLE):
        astra_sim_binary()
    monkeypatch.setenv(BINARY_VARIABLE, str(tmp_path / "nothing"))
    with pytest.raises(UsageError, match="not an executable"):
        astra_sim_binary()


def test_missing_configuration(folder, tmp_path):
    (folder / "astra-sim" / "system.json").unlink()
    with pytest.raises(FlintError, match=r"system\.json is missing"):
        run_astra_sim(folder, binary=stand_in(tmp_path, "true"))


def test_command_has_the_folders_files(folder):
    (folder / "astra-sim" / "comm_groups.json").write_text("{}")
    binary = Path("/bin/simulator")
    command = astra_sim_command(folder, binary)
    assert command[0] == str(binary)
    assert f"--workload-configuration={folder.resolve()}/et/trace" in command
    assert not any("comm-group" in part for part in command)  # an empty table is left out
    (folder / "astra-sim" / "comm_groups.json").write_text('{"1": [0, 1]}')
    command = astra_sim_command(folder, binary)
    assert command[-1].startswith("--comm-group-configuration=")


needs_binary = pytest.mark.skipif(
    not os.environ.get(BINARY_VARIABLE), reason=f"{BINARY_VARIABLE} names no ASTRA-sim binary"
)


@needs_binary
def test_real_simulator_finishes_what_the_checker_accepts(folder):
    assert len(run_astra_sim(folder, time_limit=60).cycles) == 2


@needs_binary
def test_real_simulator_hangs_on_what_the_checker_refuses(tmp_path):
    ranks = [
        [comp(1, micros=1000), send(2, 1, [1]), coll(3)],
        [recv(1, 0), coll(2, [1])],
    ]
    with pytest.raises(FlintError, match="did not finish"):
        run_astra_sim(workload(tmp_path / "hang", ranks), time_limit=60)
