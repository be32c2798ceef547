"""Small StableHLO programs as text: walked by us, run by StableHLO's reference interpreter."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from jaxlib.mlir.dialects import stablehlo

from flint.graph.graph import EdgeKind, NodeKind, WorkloadGraph
from flint.graph.nodes import Node
from flint.graph.verification import verify
from flint.mesh.mesh import Mesh
from flint.stablehlo.options import WalkOptions
from flint.stablehlo.read.bindings import ir, make_context
from flint.stablehlo.read.elements import integer_array
from flint.stablehlo.read.reader import read_mlir
from flint.stablehlo.walker import Walked, walk

#: What an all-reduce of everybody along a 4-device world needs after its operand.
SUM = """({
    ^bb0(%l: tensor<f32>, %r: tensor<f32>):
      %s = stablehlo.add %l, %r : tensor<f32>
      stablehlo.return %s : tensor<f32>
    }) {replica_groups = dense<GROUPS> : tensor<SHAPExi64>,
        channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>,
        use_global_device_ids}"""


def all_reduce(result: str, operand: str, size: int = 8, groups: Any = ((0, 1, 2, 3),)) -> str:
    """``result = all_reduce(operand)``, both tensor<SIZExf32>."""
    rows = [list(row) for row in groups]
    region = SUM.replace("GROUPS", str(rows)).replace("SHAPE", f"{len(rows)}x{len(rows[0])}")
    kind = f"tensor<{size}xf32>"
    return f'{result} = "stablehlo.all_reduce"({operand}) {region} : ({kind}) -> {kind}'


def walked(
    text: str,
    mesh: tuple[int, ...] | None = None,
    values: Mapping[int, int] | None = None,
    **options: Any,
) -> Walked:
    """Read and walk a module; the graph is verified."""
    module = read_mlir(text.encode(), "test.mlir")
    grid = Mesh(mesh, ()) if mesh is not None else None
    result = walk(module, grid, WalkOptions(**options), values=values)
    verify(result.graph)
    return result


def interpreted(text: str, arguments: Iterable[str] = ()) -> list[Any]:
    """The integer results that the reference interpreter computes; arguments as MLIR attributes."""
    context = make_context()
    stablehlo.register_interpreter_dialect(context)
    with context, ir.Location.unknown():
        module = ir.Module.parse(text)
        values = [ir.Attribute.parse(argument) for argument in arguments]
        return [integer_array(item) for item in stablehlo.eval_module(module, values)]


def exchanged(graph: WorkloadGraph) -> dict[str, tuple[int, int, int]]:
    """Kind -> (number, operand bytes, result bytes) on one rank, loops multiplied out."""
    total: dict[str, Any] = {}
    for part, times in graph.walk():
        for index in np.flatnonzero(part.kind == NodeKind.COMMUNICATION).tolist():
            item = part.tables.communications[int(part.detail[index])]
            n, operand, result = total.get(item.kind, (0, 0, 0))
            total[item.kind] = (
                n + times,
                operand + times * item.bytes_in,
                result + times * item.bytes_out,
            )
    return total


def executions(graph: WorkloadGraph, name: str) -> int:
    """How often nodes called ``name`` run."""
    return sum(
        times * sum(node.op == name and node.kind != NodeKind.LOOP for node in part)
        for part, times in graph.walk()
    )


def named(graph: WorkloadGraph, name: str) -> Node:
    """The only node called ``name`` (free aliases of the same name left aside)."""
    (found,) = [n for n in graph if n.op == name and n.category != "free"]
    return found


def waits_for(graph: WorkloadGraph, later: Node, earlier: Node) -> bool:
    """Whether ``later`` waits for ``earlier`` over any path of edges."""
    pending, seen = [later.index], {later.index}
    while pending:
        for node in graph.predecessors(pending.pop()):
            if node == earlier.index:
                return True
            if node not in seen:
                seen.add(node)
                pending.append(node)
    return False


def order_edges(graph: WorkloadGraph) -> Counter[tuple[str, str]]:
    """(earlier op, later op) of every order edge."""
    return Counter(
        (graph[edge.producer].op, node.op)
        for node in graph
        for edge in node.edges
        if edge.kind == EdgeKind.ORDER
    )
