"""Layers in a row whose weights are gathered, to which passes are applied."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from flint.cost.hardware import System
from flint.cost.systems import load_system
from flint.graph.graph import EdgeKind, NodeKind, WorkloadGraph
from flint.graph.tensor_types import tensor_type
from flint.graph.work import Role, Unit, Work, WorkItem
from flint.mesh.mesh import Mesh
from flint.mesh.ranks import all_ranks
from flint.workload.programs import Program, ProgramInput, with_communicators
from flint.workload.workload import Workload
from tests.passes.building import Graph

EVERY = [
    "bucket:kind=all_gather,bytes=5kB",
    "bucket:kind=reduce_scatter,bytes=1MiB",
    "bucket:kind=all-reduce",
    "hoist:by=1",
    "hoist:by=100",
    "defer:by=1",
    "defer:by=100",
    "split:kind=all_gather,chunks=3",
    "split:kind=reduce_scatter,chunks=7",
]


def payload(graph: WorkloadGraph) -> Counter[str]:
    """Operand and result bytes by kind, loops multiplied."""
    total: Counter[str] = Counter()
    for block, times in graph.walk():
        for node in block:
            if node.kind == NodeKind.COMMUNICATION:
                item = graph.tables.communications[int(block.detail[node.index])]
                total[item.kind + " in"] += times * item.bytes_in
                total[item.kind + " out"] += times * item.bytes_out
    return total


def sizes(graph: WorkloadGraph) -> list[tuple[str, int]]:
    """Communications in issue order: kind and operand bytes."""
    table = graph.tables.communications
    chosen = graph.detail[graph.kind == NodeKind.COMMUNICATION].tolist()
    return [(table[i].kind, table[i].bytes_in) for i in chosen]


def needs(graph: WorkloadGraph) -> set[tuple[str, str]]:
    """Pairs of names of compute ops of which one follows from the other by data."""
    before: list[set[str]] = []
    found = set()
    for node in graph:
        mine: set[str] = set()
        low, high = graph.operand_ptr[node.index : node.index + 2]
        for value in graph.operand[low:high]:
            maker = int(graph.producer[value])
            if maker >= 0:
                mine |= before[maker]
                if graph.kind[maker] == NodeKind.COMPUTE:
                    mine.add(graph[maker].op)
        before.append(mine)
        if node.kind == NodeKind.COMPUTE:
            found |= {(other, node.op) for other in mine}
    return found


BIG = tensor_type((4096, 4096), "bf16")
PIECE = tensor_type((512, 4096), "bf16")
STACK = tensor_type((12, 512, 4096), "bf16")
MULTIPLY = Work(
    (WorkItem(Unit.MATMUL, "bf16", 2 * 4096**3, (1, 4096, 4096, 4096)),), 1 << 26, 1 << 25
)


def slowed(factor: float) -> System:
    """DGX H100 with so much of its bandwidth."""
    system = load_system("dgx-h100")
    tiers = tuple(replace(tier, bandwidth=tier.bandwidth * factor) for tier in system.network)
    return replace(system, network=tiers)


def sharded_layers(layers: int, held: bool = True) -> Workload:
    """Every layer gathers its weight, held back until the layer before it is done or not, and
    multiplies by it four times."""
    g = Graph()
    x = g.input(BIG)
    for number in range(layers):
        edge = ((g.last, EdgeKind.ORDER),) if number and held else ()
        weight = g.communicate("all_gather", g.input(PIECE), PIECE, BIG, edge)
        for _ in range(4):
            x = g.op("dot_general", Role.CONTRACTION, (x, weight), BIG, MULTIPLY)
    graph = g.finish(x)
    inputs = tuple(ProgramInput(graph.type_of(i), "parameter") for i in range(graph.inputs))
    program = Program("main", graph, all_ranks(8), inputs)
    return Workload(Mesh((8,), ("data",)), with_communicators((program,)))


def recorded(layers: int) -> WorkloadGraph:
    """A backward pass on two streams: each layer's gradient is made on the compute stream and
    reduced on the other one, and the compute stream waits for the reduction before last."""
    g = Graph()
    x, compute, reductions = g.input(BIG), -1, []
    for number in range(layers):
        edges = [(compute, EdgeKind.STREAM)] if number else []
        if len(reductions) > 1:
            edges.append((reductions[-2], EdgeKind.ORDER))
        x = g.op("dot_general", Role.CONTRACTION, (x,), BIG, MULTIPLY, order=edges)
        compute = g.last
        before = [(reductions[-1], EdgeKind.STREAM)] if reductions else []
        g.communicate("reduce_scatter", x, BIG, PIECE, tuple(before))
        reductions.append(g.last)
    return g.finish(x)
