"""PyTorch steps as recorded: the simulator and the consumer of their traces, in both orders."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

torch = pytest.importorskip("torch")

from typer.testing import CliRunner  # noqa: E402

from flint.cli import application  # noqa: E402
from flint.execution.chains import CommunicationOrder  # noqa: E402
from flint.models.torch.llama3 import TINY, training  # noqa: E402
from flint.passes import apply  # noqa: E402
from tests.simulation.test_against_consumer import actors_of, consumed, simulated  # noqa: E402
from tests.support.shared import quick  # noqa: E402

pytestmark = [pytest.mark.xdist_group("torch-communication-order"), pytest.mark.thorough]

CASES = {
    "sharded and tensor parallel": (TINY, (2, 2), ("dp", "tp")),
    "stages of sharded ranks": (replace(TINY, microbatches=2), (2, 2), ("pp", "dp")),
}


@pytest.fixture(scope="module", params=quick(CASES, "sharded and tensor parallel"))
def recorded(request):
    config, mesh, axes = CASES[request.param]
    return training(config, mesh=mesh, axes=axes).capture()


@pytest.mark.parametrize("order", CommunicationOrder)
@pytest.mark.parametrize("seed", quick(range(2), 0))
def test_ranks_are_done_at_the_tick_at_which_the_consumer_is(recorded, order, seed):
    programs = [
        (apply(program.graph, "kernel"), program.ranks.array()) for program in recorded.programs
    ]
    actors = actors_of(programs, recorded.mesh.size, seed, order)
    mesh = recorded.mesh
    assert simulated(actors).tolist() == consumed(programs, mesh, actors, order).tolist()


def test_the_options_of_the_commands(recorded, tmp_path):
    folder = tmp_path / "out"
    recorded.save(folder, communication_order="communicator")
    document = json.loads((folder / "workload.json").read_text())
    assert document["et"]["order"] == "one chain per communicator"
    seconds = {}
    for options in (
        (),
        ("--communication-order", "communicator"),
        ("--communication-order", "rank"),
    ):
        result = CliRunner().invoke(application(), ["simulate", str(folder), "--json", *options])
        assert result.exit_code == 0, result.output
        found = json.loads(result.stdout)
        seconds[options[1:]] = found["step_seconds"], found["communication_order"]
    assert seconds[()] == seconds["communicator",]
    assert [order for _, order in seconds.values()] == ["communicator", "communicator", "rank"]
