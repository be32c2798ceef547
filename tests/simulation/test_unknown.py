"""Unknown values are unknown: not zero in text, null in JSON, and not part of a mean."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from flint.post_execution.converting import convert_traces
from flint.workload.differences import differences
from flint.workload.inspection import summarise
from tests.support.command_line import flint_here

#: Rank 0 of two; a Kineto trace without shapes: it has times, and no FLOPs, bytes or tensors.
PROFILE = Path(__file__).parents[1] / "data" / "traces" / "resnet50_ddp_nccl_rank0.json.gz"
TINY = Path(__file__).parents[1] / "data" / "folders" / "ring_attention"


@pytest.fixture(scope="module")
def profile():
    return convert_traces([PROFILE])


def test_a_profile_without_shapes_has_no_flops_mfu_or_memory(profile) -> None:
    document = json.loads(json.dumps(profile.simulate().to_json(), allow_nan=False))
    unknown = ("flops", "model_flops", "mfu", "peak_memory_bytes", "fits")
    assert [document[name] for name in unknown] == [None] * len(unknown)
    assert all(document["programs"][0][name] is None for name in unknown[:-1])
    rows = [row for row in document["programs"][0]["classes"] if row["name"] != "host"]
    kernels = [row for row in rows if not row["communicates"]]
    assert {row["bytes"] for row in kernels} == {None}


def test_means_leave_out_a_rank_that_was_not_traced(profile) -> None:
    result = profile.simulate()
    traced, untraced = result.programs
    assert (traced.ranks, untraced.ranks) == ("0", "1")
    assert result.compute_seconds == traced.figures.compute_seconds
    assert result.figures.idle_seconds == traced.figures.idle_seconds
    assert "means leave out 1 rank without kernels (untraced)" in result.notes
    assert result.to_json()["programs"][1]["compute_seconds"] is None


def test_the_tables_of_a_profile_say_unknown(profile, tmp_path) -> None:
    profile.save(tmp_path / "out")
    simulated = flint_here("simulate", "out", cwd=tmp_path).stdout
    for line in ("peak memory per rank    unknown", "FLOPs of 1 rank         unknown",
                 "model FLOPs utilisation unknown"):  # fmt: skip
        assert line in simulated
    inspected = flint_here("inspect", "out", cwd=tmp_path).stdout
    assert "memory           unknown read, unknown written" in inspected
    assert "0 FLOP" not in inspected


def test_a_summary_has_null_for_what_a_profile_does_not_tell(profile) -> None:
    document = json.loads(json.dumps(summarise(profile).to_json(), allow_nan=False))
    assert document["cluster_flops"] is None
    for program in document["programs"]:
        assert [program[key] for key in ("flops", "matmul_flops", "bytes_read")] == [None] * 3


def test_copies_of_a_profile_compute_nothing(profile) -> None:
    (program, _) = summarise(profile).programs
    copies = [row for row in program.ops if "Memcpy" in row.op]
    assert copies and all(row.flops == 0 for row in copies)


def test_kernels_per_rank_are_those_of_traced_ranks(profile) -> None:
    found = differences(profile, profile)
    assert (found.before.ranks, found.before.traced) == (2, 1)
    assert json.dumps(found.to_json(), allow_nan=False)


def test_a_program_has_its_numbers(tmp_path) -> None:
    document = json.loads(flint_here("simulate", TINY, "--json", cwd=tmp_path).stdout)
    assert document["fits"] is True
    assert all(document[name] > 0 for name in ("flops", "mfu", "peak_memory_bytes"))


def test_times_of_one_device_have_no_mfu_against_the_peak_of_another(tmp_path) -> None:
    dims = {"Input Dims": [[64, 32], [32, 16]], "Input type": ["float", "float"]}
    event = {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "args": dims}
    (tmp_path / "cpu.json").write_text(
        json.dumps({"traceEvents": [event | {"ts": start, "dur": 5} for start in (0, 10)]})
    )
    result = convert_traces([tmp_path / "cpu.json"]).simulate()
    assert result.figures.model_flops == 2 * 2 * 64 * 32 * 16
    assert math.isnan(result.mfu) and math.isnan(result.programs[0].figures.mfu)
    assert any(note.startswith("the profile is of CPU: peaks") for note in result.notes)
