"""What ASTRA-sim is expected to need, against runs of it."""

from __future__ import annotations

import numpy as np
import pytest

from flint.cli.saving import expect
from flint.converters.chakra.astra_sim.forecast import forecast
from flint.mesh.groups import along_axes
from flint.mesh.mesh import Mesh
from tests.converters.chakra.write.cases import chain, communication, write_all

#: Steps of Llama 3 8B through AstraSim_Analytical_Congestion_Unaware (-O2): ranks, nodes and
#: messages of all ranks, seconds of processor time, MB of memory.
RUNS = (
    (8, 39_888, 24_168, 0.83, 62),
    (16, 79_776, 101_264, 1.51, 114),
    (64, 319_040, 611_968, 9.07, 424),
    (128, 638_080, 2_069_760, 30.84, 838),
    (512, 2_552_320, 28_578_816, 314.9, 3332),
)


@pytest.mark.parametrize(("ranks", "nodes", "messages", "seconds", "megabytes"), RUNS)
def test_it_is_near_what_was_measured(ranks, nodes, messages, seconds, megabytes):
    found = forecast(nodes, messages)
    assert found.seconds == pytest.approx(seconds, rel=0.35)
    assert found.bytes / 2**20 == pytest.approx(megabytes, rel=0.1)
    assert found.much is (ranks == 512)


def test_messages_are_those_of_rings(tmp_path):
    """Rings of 4 and 2: an all-reduce over both dims is 2 (3 + 1) messages of a rank, a gather over
    4 ranks is 3."""
    mesh = Mesh((2, 4), ("data", "model"))
    both, one = along_axes(mesh, ("data", "model")), along_axes(mesh, ("model",))
    graph = chain(
        communication("all_reduce", groups=both),
        communication("all_gather", groups=one),
    )
    manifest = write_all(tmp_path, graph, mesh)
    assert manifest.forecast is not None
    assert (manifest.forecast.nodes, manifest.forecast.messages) == (8 * 4, 8 * (8 + 3))
    assert manifest.to_json()["forecast"]["messages"] == 88


def test_some_ranks_cannot_be_simulated(tmp_path):
    graph = chain(communication("all_reduce", groups=along_axes(Mesh((8,), ("x",)), ("x",))))
    manifest = write_all(tmp_path, graph, Mesh((8,), ("x",)), ranks=np.arange(2))
    assert manifest.forecast is None and manifest.to_json()["forecast"] is None


@pytest.mark.parametrize(
    ("nodes", "messages", "much"),
    [(10**6, 10**6, False), (10**6, 3 * 10**7, True), (7 * 10**6, 0, True)],
)
def test_what_takes_minutes_or_gigabytes_is_worth_a_word(nodes, messages, much):
    assert forecast(nodes, messages).much is much


def test_the_word_stands_on_stderr(capsys):
    """28.6 million messages at 10 us and 2.55 million nodes at 12 us: 316 s."""
    expect(forecast(2_552_320, 28_578_816))
    said = capsys.readouterr()
    assert said.err.startswith("flint: ASTRA-sim will need about 5 minutes and 3.1 GiB of memory")
    assert not said.out
    expect(forecast(1000, 1000))
    assert not capsys.readouterr().err
