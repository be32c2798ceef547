"""What the configuration that Flint writes makes of a collective, by the stand-in and by hand.

A link of 100 GiB/s (107.37 bytes per ns) and 500 ns through a switch: a message takes 1,000 ns and
its bytes, and its receiver waits for the endpoint delay.
"""

from __future__ import annotations

import json

import pytest

from flint.converters.chakra.astra_sim.files import write_astra_sim_files
from flint.cost.systems import load_system
from flint.mesh.mesh import Mesh
from flint.mesh.network_dims import network_dims
from tests.simulation.astra_sim_model import AG, AR, RS, Model

#: What Flint wrote before: four pieces one after another, the whole buffer in every dim.
OLD = {
    "preferred-dataset-splits": 4,
    "active-chunks-per-dimension": 1,
    "endpoint-delay": 10,
    "collective-optimization": "baseline",
    "local-mem-bw": 3350.0,
}
RATE = 100 * 2**30 / 1e9  # bytes per nanosecond


def written(tmp_path, *shape: int) -> dict[str, object]:
    """The system file for a mesh of H100."""
    write_astra_sim_files(tmp_path, network_dims(Mesh(shape)), load_system("dgx-h100"), {})
    content = json.loads((tmp_path / "system.json").read_text())
    assert isinstance(content, dict)
    return content


def network(*count: int) -> dict[str, object]:
    dims = len(count)
    return {
        "topology": ["Switch"] * dims, "npus_count": list(count), "bandwidth": [100.0] * dims,
        "latency": [500.0] * dims,
    }  # fmt: skip


def test_a_small_reduction_waits_for_each_message_once(tmp_path):
    """16 KiB over 8 ranks: 14 messages of 2 KiB.

    New: 1 + 14 (1000 + 19 + 1) = 14.28 us.  Old: four times 14 of 512 bytes, with 10 ns each and
    the time of nothing (0.15 ns, cut) at the memory: 4 (10 + 14 (1000 + 4 + 10)) = 56.82 us.
    The embedded engine's ring: 14 (1000 ns + 19.07 ns) = 14.27 us.
    """
    system = written(tmp_path, 8)
    new = Model(system, network(8)).collective(AR, 1 << 14, [True])
    old = Model(system | OLD, network(8)).collective(AR, 1 << 14, [True])
    ours = 14 * (1000 + 2048 / RATE)
    assert new == 1 + 14 * (1000 + 19 + 1) == 14_281
    assert old == 4 * (10 + 14 * (1000 + 4 + 10)) == 56_824
    assert new == pytest.approx(ours, rel=0.02) and old > 3.9 * ours


def test_a_reduction_over_two_dims_leaves_less_to_the_outer_one(tmp_path):
    """64 MiB over (4, 2) ranks: 3/4 of it scattered and gathered inside, 1/4 of it reduced outside.

    Bytes that pass a rank's link: 2 (3/4 S + 1/2 S/4) = 7/4 S, against 2 (3/4 S + 1/2 S) = 5/2 S of
    "baseline"; 8 and as many messages.
    """
    system = written(tmp_path, 2, 4)
    size = 1 << 26
    new = Model(system, network(4, 2)).collective(AR, size, [True, True])
    assert new == pytest.approx(8 * 1000 + 7 / 4 * size / RATE, rel=1e-3)
    whole = system | {"collective-optimization": "baseline"}
    old = Model(whole, network(4, 2)).collective(AR, size, [True, True])
    assert old == pytest.approx(8 * 1000 + 5 / 2 * size / RATE, rel=1e-3)


def test_reducing_adds_no_time_to_messages(tmp_path):
    """1 GiB over 8 ranks: 7 pieces of 128 MiB pass memory of 3,350 GB/s three times, 0.84 ms."""
    system = written(tmp_path, 8)
    size = 1 << 30
    for kind, rounds in ((AR, 2), (RS, 1)):
        new = Model(system, network(8)).collective(kind, size, [True])
        assert new == pytest.approx(rounds * 7 * (1000 + size / 8 / RATE), rel=1e-5)
        slow = Model(system | {"local-mem-bw": 3350.0}, network(8)).collective(kind, size, [True])
        assert slow - new == pytest.approx(7 * 3 * size / 8 / 3350, rel=1e-3)
    gather = Model(system, network(8)).collective(AG, size // 8, [True])
    assert gather == pytest.approx(7 * (1000 + size / 8 / RATE), rel=1e-5)


def test_the_endpoint_delay_is_not_0(tmp_path):
    """With 0 ASTRA-sim aborts at the first collective, or waits for it forever."""
    system = written(tmp_path, 8)
    assert system["endpoint-delay"] == 1
    with pytest.raises(ValueError, match="assertion"):
        Model(system | {"endpoint-delay": 0}, network(8)).collective(AR, 1 << 14, [True])
