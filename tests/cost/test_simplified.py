"""Systems without launches, protocols and reductions in switches."""

from __future__ import annotations

import json

import numpy as np
import pytest

import flint
from flint.cli import main
from flint.cost.collectives import collective_cost
from flint.cost.placement import place
from flint.cost.simplified import PARTS, without
from flint.cost.systems import load_system
from flint.errors import UsageError
from flint.mesh.groups import StridedGroups
from flint.mesh.mesh import Mesh
from tests.simulation.test_simulate import overlapped

H100 = load_system("dgx-h100")
NODE = StridedGroups(8, ((8, 1),))


def cost(parts, kind, size):
    [profile] = place(NODE, without(H100, parts)).profiles
    return collective_cost(kind, size, profile)


def test_without_protocols_a_small_message_has_the_latency_of_a_large_one():
    """An all-gather of 16 KiB over 8 ranks: 7 messages of 0.6 us (LL), of 3.4 us without."""
    assert cost((), "all_gather", 1 << 14).seconds == pytest.approx(7 * 0.6e-6, rel=0.05)
    alone = cost(("protocols",), "all_gather", 1 << 14).seconds
    assert alone == pytest.approx(7 * 3.4e-6 + 7 / 8 * 2**14 / 351e9)


def test_without_in_network_an_all_reduce_moves_nearly_twice_its_size():
    """1 GiB over 8 ranks: (1 + 1/8) S in the switch, 2 x 7/8 S in a ring or 2 S in trees."""
    size = 1 << 30
    inside = cost((), "all_reduce", size)
    assert inside.algorithm == "in-network"
    assert inside.seconds == pytest.approx(9 / 8 * size / 351e9, rel=0.01)
    ring = cost(("in-network",), "all_reduce", size)
    assert ring.algorithm == "ring"
    assert ring.seconds == pytest.approx(7 / 4 * size / 351e9, rel=0.01)


def test_without_contention_kernels_during_a_communication_are_as_fast_as_alone():
    """Four of five kernels run during a gather that takes longer than all of them."""
    workload = overlapped(Mesh((8, 8), ("data", "model")), "data", 4)

    def kernels(graph, system):
        return np.full(len(graph), 2e-6)

    whole = workload.simulate(H100, kernels=kernels).compute_seconds
    bare = workload.simulate(without(H100, ("contention",)), kernels=kernels).compute_seconds
    speed = H100.network[-1].beside_communication  # the gather goes from node to node
    assert speed < 1
    assert (whole, bare) == pytest.approx((4 * 2e-6 / speed + 2e-6, 5 * 2e-6))


def test_without_launches_kernels_and_communications_are_shorter_by_them():
    workload = overlapped(Mesh((8, 8), ("data", "model")), "model", 4)
    launch = H100.accelerator.launch_overhead
    system = without(H100, ("contention",))
    whole, bare = workload.simulate(system), workload.simulate(without(system, ("launches",)))
    assert whole.compute_seconds - bare.compute_seconds == pytest.approx(5 * launch)
    assert whole.communication_seconds - bare.communication_seconds == pytest.approx(launch)
    assert "dgx-h100 is simulated without launches, contention" in bare.notes
    assert not any("without" in note for note in workload.simulate(H100).notes)


def test_the_folder_remembers_what_its_system_is_without(tmp_path, capsys):
    overlapped(Mesh((4, 2), ("data", "model")), "data").save(
        tmp_path / "out", system=without(H100, tuple(PARTS))
    )
    with pytest.raises(SystemExit) as stopped:
        main(["simulate", str(tmp_path / "out"), "--json"])
    document = json.loads(capsys.readouterr().out)
    assert stopped.value.code == 0
    assert f"dgx-h100 is simulated without {', '.join(PARTS)}" in document["notes"]
    bare = flint.load(tmp_path / "out").simulate(without(H100, tuple(PARTS)))
    assert document["step_seconds"] == bare.step_seconds


def test_traces_hold_the_durations_without_launches(tmp_path):
    workload = overlapped(Mesh((4, 2), ("data", "model")), "data", 9)
    sums = []
    for number, system in enumerate((H100, without(H100, ("launches",)))):
        saved = workload.save(tmp_path / str(number), system=system, granularity="op")
        sums.append(sum(_micros(tmp_path / str(number))))
        assert saved.without == (("launches",) if number else ())
    assert sums[0] - sums[1] == pytest.approx(10 * H100.accelerator.launch_overhead * 1e6, abs=1)


def _micros(folder):
    from flint.converters.chakra.read.reader import read_trace

    return read_trace(folder / "et" / "trace.0.et").duration.tolist()


def test_unknown_parts_are_refused(tmp_path, capsys):
    with pytest.raises(
        UsageError, match="unknown part 'jitter' of a system; choose from: launches"
    ):
        without(H100, ("launches", "jitter"))
    overlapped(Mesh((4, 2), ("data", "model")), "data").save_programs(tmp_path / "out")
    with pytest.raises(SystemExit) as stopped:
        main(["simulate", str(tmp_path / "out"), "--without", "launches,jitter"])
    assert stopped.value.code == 2
    assert "unknown part 'jitter' of a system" in capsys.readouterr().err


def test_parts_can_be_left_out_one_by_one():
    every = without(H100, tuple(PARTS))
    one_by_one = H100
    for part in reversed(tuple(PARTS)):
        one_by_one = without(one_by_one, (part,))
    assert one_by_one == every and every.without == tuple(PARTS)
