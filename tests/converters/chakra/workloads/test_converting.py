"""Execution traces as workloads: what other tools write, by hand, and times by hand."""

from __future__ import annotations

import json

import numpy as np
import pytest

import flint
from flint.cli import main
from flint.converters.chakra.check.checker import check
from flint.converters.chakra.schema import CollectiveKind, NodeType
from flint.cost.prices import Prices
from flint.cost.simplified import without
from flint.cost.systems import load_system
from flint.errors import FlintError, UsageError
from flint.graph.graph import NodeKind
from flint.graph.transfers import TO_DEVICE, TO_HOST
from tests.converters.chakra.check.traces import AG, RS, coll, comp, encode, node, recv, send

SYSTEM = without(load_system("dgx-h100"), ("contention",))


def written(folder, *ranks, name="step", **tables):
    folder.mkdir()
    for rank, nodes in enumerate(ranks):
        (folder / f"{name}.{rank}.et").write_bytes(encode(nodes))
    for table, content in tables.items():
        (folder / f"{table}.json").write_text(json.dumps(content))
    return folder


def seconds(workload):
    return workload.simulate(SYSTEM).step_seconds


def issues(program):
    """Kind and bytes of what a program exchanges, in order."""
    graph = program.graph
    table = graph.tables.communications
    found = graph.detail[graph.kind == NodeKind.COMMUNICATION].tolist()
    return [(table[i].kind, table[i].bytes_in, table[i].bytes_out) for i in found]


@pytest.mark.parametrize(
    ("nodes", "micros"),
    [
        ([comp(0, micros=5)], 5),
        ([comp(0, micros=5), comp(1, micros=5)], 10),  # one kernel at a time
        ([comp(0, micros=5), comp(1, [0], micros=5)], 10),
        ([comp(9, [3], micros=5), comp(3, micros=7)], 12),  # the file's order does not matter
        ([node(0, NodeType.METADATA, micros=0), comp(1, [0], micros=5)], 5),
        ([node(0, NodeType.METADATA, micros=0), comp(2, micros=4), comp(1, [0, 2], micros=5)], 9),
        ([comp(0, micros=5), comp(1, ctrl=[0], micros=3)], 8),
    ],
)
def test_kernels_take_their_time_one_after_another(tmp_path, nodes, micros):
    """As in ASTRA-sim, for which chakra's generator makes the first three."""
    workload = flint.convert_traces([written(tmp_path / "et", nodes, nodes)])
    assert seconds(workload) == pytest.approx(micros * 1e-6)
    assert len(workload.programs) == 1


def test_flops_without_a_time_are_priced_on_the_system(tmp_path):
    """2 x 8192^3 FLOPs: as long as such a product, not a round number of microseconds."""
    flops = 2 * 8192**3
    nodes = [comp(0, micros=0, num_ops=flops, tensor_size=3 * 2 * 8192**2)]
    workload = flint.convert_traces([written(tmp_path / "et", nodes, nodes)])
    peak = flops / 989.4e12  # an H100's, of its data sheet
    assert peak < seconds(workload) < 2 * peak
    assert workload.simulate(SYSTEM).flops == 2 * flops
    assert np.isnan(workload.simulate(SYSTEM).peak_memory_bytes)
    assert any("no unit and no element type" in text for text in workload.warnings)


def test_copies_to_remote_memory(tmp_path):
    size = 1 << 26
    nodes = [
        node(0, NodeType.MEM_STORE, is_cpu_op=False, tensor_size=size, micros=0),
        node(1, NodeType.MEM_LOAD, [0], is_cpu_op=False, tensor_size=size, micros=0),
    ]
    workload = flint.convert_traces([written(tmp_path / "et", nodes, nodes)])
    ops = workload.programs[0].graph.tables.ops
    assert [ops[i] for i in workload.programs[0].graph.op] == [TO_HOST, TO_DEVICE]
    alone = size / SYSTEM.accelerator.host_bandwidth
    assert 2 * alone < seconds(workload) < 2 * alone + 1e-4


def test_sizes_are_what_a_rank_contributes(tmp_path):
    nodes = [coll(0), coll(1, [0], AG, 64), coll(2, [1], RS, 64), coll(3, [2], 6, 64)]
    nodes.append(coll(4, [3], CollectiveKind.REDUCE, 64))
    workload = flint.convert_traces([written(tmp_path / "et", *[nodes] * 4)])
    assert issues(workload.programs[0]) == [
        ("all_reduce", 64, 64),
        ("all_gather", 64, 256),
        ("reduce_scatter", 64, 16),
        ("all_to_all", 64, 64),
        ("all_reduce", 64, 64),
    ]


def test_a_collective_takes_its_modelled_time(tmp_path):
    nodes = [comp(0, micros=5), coll(1, [0], size=1 << 24), comp(2, [1], micros=5)]
    workload = flint.convert_traces([written(tmp_path / "et", *[nodes] * 8)])
    item = workload.programs[0].graph.tables.communications[0]
    alone = Prices(SYSTEM).collective(item, 0) + SYSTEM.accelerator.launch_overhead
    assert seconds(workload) == pytest.approx(1e-5 + alone)


GROUPED = [[coll(i, pg_name=str(1 + i // 2), size=1 << 20)] for i in range(4)]


@pytest.mark.parametrize("table", ["comm_group", "comm_groups", "step"])
def test_groups_are_those_of_the_table(tmp_path, table):
    """chakra's, ASTRA-sim's and that of the symbolic tensor graph generator, named as the traces;
    ids that count on over the ranks' files, as in chakra's generator."""
    folder = written(tmp_path / "et", *GROUPED, **{table: {"1": [0, 1], "2": [2, 3]}})
    workload = flint.convert_traces([folder])
    (communicator,) = workload.communicators
    assert communicator.groups.table().tolist() == [[0, 1], [2, 3]]
    assert len(workload.programs) == 1


def test_groups_are_asked_for(tmp_path):
    folder = written(tmp_path / "et", *GROUPED)
    with pytest.raises(UsageError, match=r"process group '1'.*--group 1=0-7"):
        flint.convert_traces([folder])
    workload = flint.convert_traces([folder], groups={"1": [0, 1], "2": [2, 3]})
    assert workload.communicators[0].groups.table().tolist() == [[0, 1], [2, 3]]
    with pytest.raises(FlintError, match="rank 1 is not in group '1'"):
        flint.convert_traces([folder], groups={"1": [0, 2], "2": [1, 3]})


def test_network_dims_are_those_of_the_mesh(tmp_path):
    """npus_count [2, 4] is the mesh (4, 2): the first dim joins 0 and 1."""
    inner = [coll(0, involved_dim=[True, False])]
    folder = written(tmp_path / "et", *[inner] * 8)
    with pytest.raises(UsageError, match="sizes are not given: give the mesh with --mesh"):
        flint.convert_traces([folder])
    workload = flint.convert_traces([folder], mesh=(4, 2), axes=("dp", "tp"))
    assert workload.communicators[0].groups.members(5).tolist() == [4, 5]
    everyone = written(tmp_path / "all", *[[coll(0, involved_dim=[True] * 4)]] * 8)
    assert flint.convert_traces([everyone]).communicators[0].groups.size == 8


def test_one_order_for_all_ranks(tmp_path):
    """Rank 1 needs rank 0's message before it can join; ids alone would put the collective first,
    and consumers of what is written would hang."""
    zero = [coll(1, size=64), send(2, 1, size=8)]
    one = [recv(1, 0, size=8), coll(2, [1], size=64)]
    workload = flint.convert_traces([written(tmp_path / "et", zero, one)])
    assert [kind for kind, *_ in issues(workload.programs[0])] == ["send", "all_reduce"]
    workload.save(tmp_path / "out")
    assert check(tmp_path / "out").ok


def test_messages_are_matched_by_tag(tmp_path):
    """Rank 1 receives the second message first: 16 bytes arrive before it computes."""
    zero = [send(0, 1, tag=1, size=8), send(1, 1, [0], tag=2, size=16)]
    one = [recv(0, 0, tag=2, size=16), recv(1, 0, [0], tag=1, size=8), comp(2, [1])]
    workload = flint.convert_traces([written(tmp_path / "et", zero, one)])
    assert seconds(workload) > 5e-6
    workload.save(tmp_path / "out")
    assert check(tmp_path / "out").ok


def test_ranks_without_a_trace_only_answer(tmp_path):
    nodes = [comp(0), send(1, 3, [0]), coll(2, [1], pg_name="7")]
    folder = written(tmp_path / "et", nodes, comm_group={"7": [0, 2]})
    workload = flint.convert_traces([folder])
    assert workload.mesh.size == 4
    assert [program.traced for program in workload.programs] == [True, False, False, False]
    assert seconds(workload) > 5e-6


@pytest.mark.parametrize(
    ("other", "reason"),
    [
        ([coll(0, size=64, pg_name="7")], "is all_reduce of 32 bytes on the one"),
        ([comp(0)], "1 and 0 communications among the ranks 0, 1, 2"),
    ],
)
def test_ranks_that_disagree_beside_one_without_a_trace(tmp_path, other, reason):
    """One step is all that such files hold: no other can be chosen."""
    nodes = [coll(0, size=32, pg_name="7")]
    folder = written(tmp_path / "et", nodes, other, comm_group={"7": [0, 1, 2]})
    with pytest.raises(FlintError, match=reason + r".*\(give traces of one step of one run\)"):
        flint.convert_traces([folder])


def test_scaled_out(tmp_path):
    nodes = [comp(0), coll(1, [0], AG, 1 << 20), comp(2, [1])]
    folder = written(tmp_path / "et", *[nodes] * 4)
    workload = flint.convert_traces([folder], scale_out={"dp": 64})
    assert workload.mesh.shape == (64,)
    # The whole of 4 MiB stays, so a rank contributes a 64th of it.
    assert issues(workload.programs[0]) == [("all_gather", (4 << 20) // 64, 4 << 20)]


@pytest.mark.parametrize(
    ("nodes", "reason"),
    [
        ([comp(0, [1]), comp(1, [0])], "in a circle"),
        ([comp(0), comp(0)], "more than one node has the id 0"),
        ([node(0, NodeType.METADATA)], "all are metadata"),
    ],
)
def test_what_never_runs_is_refused(tmp_path, nodes, reason):
    with pytest.raises(FlintError, match=reason):
        flint.convert_traces([written(tmp_path / "et", nodes)])


def test_what_is_not_said_stays_a_kernel(tmp_path):
    """chakra's generator gives its messages neither a rank nor a size."""
    nodes = [
        node(0, NodeType.SEND, is_cpu_op=False, micros=3),
        node(1, NodeType.COLL, [0], is_cpu_op=False, comm_type=int(CollectiveKind.BARRIER)),
        node(2, NodeType.COLL, [1], comm_type=int(CollectiveKind.GATHER), comm_size=8, micros=4),
        comp(3, [2, 99]),
    ]
    folder = written(tmp_path / "et", nodes, nodes)
    workload = flint.convert_traces([folder])
    assert issues(workload.programs[0]) == []
    assert seconds(workload) == pytest.approx((3 + 5 + 4 + 5) * 1e-6)
    for said in ("without bytes", "no form for simulators", "does not have"):
        assert any(said in text for text in workload.warnings)
    with pytest.raises(FlintError, match="--strict: "):
        flint.convert_traces([folder], strict=True)


def test_a_prefix_as_simulators_take_it(tmp_path, capsys):
    folder = written(tmp_path / "et", [comp(0)], [comp(0)])
    (folder / "other.0.et").write_bytes(encode([comp(0)]))
    with pytest.raises(SystemExit) as stopped:
        main(["convert", str(folder), "-o", str(tmp_path / "out")])
    assert stopped.value.code == 2
    assert "several prefixes (other, step)" in capsys.readouterr().err
    with pytest.raises(SystemExit) as stopped:
        main(["convert", str(folder / "step"), "-o", str(tmp_path / "out")])
    assert not stopped.value.code
    with pytest.raises(SystemExit) as stopped:
        main(["explain", str(tmp_path / "out")])
    assert not stopped.value.code
    assert "critical path" in capsys.readouterr().out


def test_steps_and_other_files_are_refused(tmp_path):
    folder = written(tmp_path / "et", [comp(0)], [comp(0)])
    with pytest.raises(UsageError, match="it has no other steps"):
        flint.convert_traces([folder], step="3")
    with pytest.raises(UsageError, match=r"both for rank 0"):
        flint.convert_traces([folder / "step.0.et", folder / ".." / "et" / "step.0.et"])
