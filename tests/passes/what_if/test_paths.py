"""What-if passes lose no dependency: every path between kernels that they must keep is there."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

from flint.graph.graph import EdgeKind, NodeKind, WorkloadGraph, with_tables
from flint.graph.work import Role
from flint.passes.what_if import parse_pass, transform
from flint.passes.what_if.gathers import weight_gathers
from tests.passes.building import SHARD, WEIGHT, Graph

TEXTS = [
    *(f"hoist:by={k}" for k in (1, 2, 3, 100)),
    *(f"split:kind={kind},chunks=3" for kind in ("all_gather", "reduce_scatter")),
    "bucket:kind=all_gather,bytes=6kB",
    "bucket:bytes=1GiB",
]


def any_graph(seed: int) -> WorkloadGraph:
    """Gathers, scatters and kernels with any edges; every kernel has a different name."""
    pick = random.Random(seed)
    g = Graph()
    weights, shards = [g.input(WEIGHT), g.input(WEIGHT)], [g.input(SHARD), g.input(SHARD)]
    for number in range(pick.randint(4, 25)):
        edges = [
            (pick.randint(0, g.last), pick.choice([EdgeKind.ORDER, EdgeKind.STREAM]))
            for _ in range(pick.choice([0, 0, 1, 1, 2]) if number else 0)
        ]
        what = pick.choice(["gather", "scatter", "scatter", "small", "large"])
        if what == "gather":
            weights.append(
                g.communicate("all_gather", pick.choice(shards), SHARD, WEIGHT, tuple(edges))
            )
        elif what == "scatter":
            shards.append(
                g.communicate("reduce_scatter", pick.choice(weights), WEIGHT, SHARD, tuple(edges))
            )
        elif what == "small":
            shards.append(g.op("add", Role.ELEMENTWISE, (pick.choice(shards),), SHARD, order=edges))
        else:
            pair = (pick.choice(weights), pick.choice(weights))
            weights.append(g.op("dot", Role.CONTRACTION, pair, WEIGHT, order=edges))
    graph = g.finish(weights[-1], shards[-1])
    ops = graph.tables.ops
    names = tuple(f"kernel {i}" for i in range(len(graph)))
    graph = with_tables(graph, replace(graph.tables, ops=(*ops, *names)))
    kernels = graph.kind == NodeKind.COMPUTE
    return replace(graph, op=np.where(kernels, len(ops) + np.arange(len(graph)), graph.op))


def paths(graph: WorkloadGraph, moved: set[int], early: bool) -> dict[str, set[str]]:
    """The kernels that come before each kernel.

    Args:
        graph: the program.
        moved: who waits for these by an order edge waits for what they wait for so instead.
        early: these wait for their operands alone.
    """

    def waits(node: int, seen: set[int]) -> set[int]:
        found = set()
        row = graph.order_node[graph.order_ptr[node] : graph.order_ptr[node + 1]]
        for before in row.tolist():
            if before not in moved:
                found.add(before)
            elif before not in seen:
                seen.add(before)
                found |= waits(before, seen)
        return found

    before: list[set[int]] = []
    for node in range(len(graph)):
        row = graph.operand[graph.operand_ptr[node] : graph.operand_ptr[node + 1]]
        near = set(graph.producer[row].tolist()) - {-1}
        if not (early and node in moved):
            near |= waits(node, set())
        before.append(near.union(*(before[other] for other in near)))
    kernels = np.flatnonzero(graph.kind == NodeKind.COMPUTE).tolist()
    names = {node: graph[node].op for node in kernels}
    return {names[node]: {names[b] for b in before[node] if b in names} for node in kernels}


@pytest.mark.parametrize("text", TEXTS)
def test_every_path_between_kernels_stays(text):
    """By data in any case; by order edges through what does not move, and past what does: a gather
    that is hoisted, with what prepares it, waits for its operands alone, and members of a bucket
    hold nobody up behind whom the bucket stands."""
    chosen = parse_pass(text)
    for seed in range(60):
        graph = any_graph(seed)
        table = graph.tables.communications
        moved: set[int] = set()
        if chosen.name == "hoist":
            gathers = weight_gathers(graph, 0)
            moved = set(gathers).union(*gathers.values())
        elif chosen.name == "bucket":
            talks = np.flatnonzero(graph.kind == NodeKind.COMMUNICATION).tolist()
            wanted = chosen.options["kind"]
            moved = {n for n in talks if table[int(graph.detail[n])].kind == wanted}
        free = {graph[node].op for node in moved}
        kept = paths(graph, moved, chosen.name == "hoist")
        found = paths(transform(graph, [text]), set(), False)
        assert kept.keys() == found.keys()
        for kernel, before in kept.items():
            assert kernel in free or before - free <= found[kernel], (seed, kernel)
