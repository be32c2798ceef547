"""Recordings whose composites are opened: what was issued one after another still runs so.

The truth is the recording with a kernel per op, whose streams are chains of edges.  Opened, it is
run by a device with one slot for kernels and one for communications, each as long as chance says:
whatever the chains say must come out.
"""

from __future__ import annotations

import functools
from unittest.mock import patch

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from flint.execution.node_types import NodeType  # noqa: E402
from flint.graph.graph import NodeKind  # noqa: E402
from flint.graph.work import Role  # noqa: E402
from flint.passes import apply  # noqa: E402
from flint.passes.order import predecessors  # noqa: E402
from flint.simulation.actor_columns import Actor  # noqa: E402
from flint.simulation.machine import run  # noqa: E402
from flint.stablehlo.options import WalkOptions  # noqa: E402
from flint.stablehlo.read.reader import read_mlir  # noqa: E402
from flint.stablehlo.recorded import fused_order  # noqa: E402
from flint.stablehlo.walker import walk  # noqa: E402
from tests.frontends.torch import small_models as small  # noqa: E402
from tests.frontends.torch.in_child import in_child  # noqa: E402
from tests.frontends.torch.test_data_parallel import accumulating_step, hooked  # noqa: E402
from tests.support.shared import quick  # noqa: E402

pytestmark = pytest.mark.xdist_group("opened-order")


def accumulating(model, optimizer, tokens):
    for part in (slice(0, 1), slice(1, 2)):
        loss = small.loss_of(model(tokens[0][part]), tokens[1][part])
        loss.backward()
    optimizer.step()


STEPS = {
    "ddp": (accumulating_step, hooked, (4,), ("dp",)),
    "fsdp": (accumulating, small.sharded, (4,), ("dp",)),
    "fsdp and tp": (accumulating, small.sharded, (2, 2), ("dp", "tp")),
    "pipeline": (small.pipeline_step, small.stages, (2,), ("pp",)),
}


#: "fsdp and tp" has all that "fsdp" has, and its streams more than those of a pipeline.
FEW = ("ddp", "fsdp and tp")


@functools.cache
def module(step):
    """A step as a module, written by a child."""

    def written():
        from flint.frontends.torch.emission import emitted
        from flint.frontends.torch.session import record

        return emitted(record(*STEPS[step], 0)).data.hex()

    return bytes.fromhex(in_child(written))


def walked(step, fuse):
    """The program, and the nodes of every recorded op by its number."""
    records = read_mlir(module(step))
    with (
        patch.object(
            fused_order, "issued_as_recorded", wraps=fused_order.issued_as_recorded
        ) as as_one,
        patch.object(fused_order, "issued_in_parts", wraps=fused_order.issued_in_parts) as in_parts,
    ):
        graph = walk(records, None, WalkOptions(fuse=fuse)).graph
    if fuse:
        _, ops = in_parts.call_args.args
        return graph, {item.issue.number: list(item.nodes) for item in ops}
    _, _, scope = as_one.call_args.args
    node_of = scope.builder.producer_of
    return graph, {
        issue.number: [node_of(scope.values[value])] for value, issue in records.issues.items()
    }


def graphs(step):
    """The program with a kernel per op, and opened."""
    return walked(step, False)[0], walked(step, True)[0]


def communications(graph):
    tables = graph.tables
    return [
        tables.communications[number]
        for number in graph.detail[graph.kind == NodeKind.COMMUNICATION].tolist()
    ]


def waited_for(graph):
    """Of every communication the earlier ones that it comes after, however far around."""
    sets = []
    found = []
    for node, before in enumerate(predecessors(graph)):
        mine = frozenset().union(*(sets[other] for other in before if other >= 0))
        if graph.kind[node] == NodeKind.COMMUNICATION:
            found.append(mine)
            mine |= {len(found) - 1}
        sets.append(mine)
    return found


def test_the_recordings_say_something():
    assert {step: len(communications(graphs(step)[0])) > 1 for step in FEW} == {
        "ddp": False, "fsdp and tp": True,
    }  # fmt: skip


@pytest.mark.parametrize("step", quick(STEPS, *FEW))
def test_communications_are_those_of_the_recording_in_its_order(step):
    whole, parts = graphs(step)
    assert communications(whole) == communications(parts)


@pytest.mark.parametrize("step", quick(STEPS, *FEW))
def test_a_communication_comes_after_those_that_the_streams_put_before_it(step):
    whole, parts = graphs(step)
    assert waited_for(whole) == waited_for(parts)


@pytest.mark.parametrize("step", quick(STEPS, *FEW))
def test_so_it_does_when_ops_are_fused(step):
    whole, parts = graphs(step)
    kernels = apply(parts, "kernel")
    for before, after in zip(waited_for(whole), waited_for(kernels), strict=True):
        assert before <= after


def ran(graph, seed):
    """When each node starts and ends, as long as chance makes it."""
    communicates = graph.kind == NodeKind.COMMUNICATION
    before = [sorted({other for other in found if other >= 0}) for found in predecessors(graph)]
    ticks = np.random.default_rng(seed).integers(1, 100, len(graph))
    ticks[communicates] *= 20
    actor = Actor(
        types=np.where(communicates, NodeType.COLL, NodeType.COMP).astype(np.int8),
        ptr=np.cumsum([0, *map(len, before)]),
        deps=np.array([other for found in before for other in found], np.int64),
        ticks=ticks,
        channel=np.where(communicates, 0, -1),
    )
    done = run([actor], members=[1])
    assert not done.stuck
    return done.start[0], done.end[0]


def has_a_place(graph, node):
    """Whether a node is no constant, view or broadcast: those are made where they are used."""
    if graph.role[node] in (Role.GENERATE, Role.ALIAS):
        return False
    made = graph[node]
    grows = 2 * sum(graph.type_of(v).bytes for v in made.operands) <= made.work.written
    return not (graph.role[node] == Role.MOVEMENT and len(made.operands) == 1 and grows)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("step", quick(STEPS, *FEW))
def test_however_long_ops_take_they_run_as_their_streams_say(step, seed):
    whole, one_of = walked(step, False)
    in_parts, parts_of = walked(step, True)
    start, end = ran(in_parts, seed)
    number_of = {node: number for number, (node,) in one_of.items() if number >= 0}
    bound, over = np.zeros(len(whole), np.int64), np.zeros(len(whole), np.int64)
    checked = 0
    for node, before in enumerate(predecessors(whole)):
        earlier = [other for other in before if other >= 0]
        bound[node] = max((max(bound[other], over[other]) for other in earlier), default=0)
        parts = parts_of[number_of[node]] if node in number_of else []
        placed = [part for part in parts if has_a_place(in_parts, part)]
        if placed:
            assert start[placed].min() >= bound[node], (whole[node].op, number_of[node])
            over[node] = end[placed].max()
            checked += 1
    assert checked > 20
