"""Workload graphs as networkx graphs.

The idea: one networkx node per node of the program, loop and branch bodies nested by name, and
every edge with its meaning, so that all of networkx can be used on a program.

    graph = workload.to_networkx()
    graph.nodes["12/3"]["op"], [v for _, v in graph.out_edges("12/3")]

Nodes are named by their path: ``12``, ``12/3`` (node 3 in the body of loop 12); ``in:0`` and
``12/in:0`` are inputs of the program and of a body, ``out:0`` and ``12/out:0`` outputs.  Edges
carry ``kind``:

    data     a value, with its ``value`` number, ``type`` and ``bytes``
    order    must come first, without a value;  stream  likewise, on the same stream
    enter    a loop passes its operand to its body
    carry    a loop's output becomes its input of the next iteration

Without the ``carry`` edges the graph has no cycle.  With ``unroll`` loops are opened: every
instance is a node named by its number, with its ``node`` and ``iteration``, and edges are those of
``flint.graph.unrolling``: values lose their numbers, loops their inputs and outputs.
"""

from __future__ import annotations

from typing import Any

import networkx as nx

from flint.graph.described import node_attributes
from flint.graph.graph import EdgeKind, WorkloadGraph
from flint.graph.nesting import ProgramBlock, blocks
from flint.graph.unrolling import unroll as unroll_graph
from flint.mesh.mesh import Mesh
from flint.mesh.ragged import row_of_entry
from flint.passes import apply
from flint.workload.programs import Program
from flint.workload.workload import Workload

MultiDiGraph = nx.MultiDiGraph


def to_networkx(
    workload: Workload,
    program: str | None = None,
    granularity: str | None = None,
    unroll: bool = False,
) -> MultiDiGraph[str]:
    """One program as a networkx graph.

    Args:
        workload: the workload.
        program: its name; may be left out when there is only one.
        granularity: "op", "kernel" or "region" as in execution traces; None for the workload's own
            graph.
        unroll: open the loops.

    Returns:
        A graph whose nodes carry op, kind, category, FLOPs, bytes, layer, phase, file, line and
        result types, communications also kind, reduction, group and bytes; attributes that do not
        apply are left out.

    Raises:
        FlintError: no such program, or too many instances to unroll.
        UsageError: an unknown granularity.
    """
    chosen = workload.program(program)
    graph = chosen.graph if granularity is None else apply(chosen.graph, granularity)
    drawn: MultiDiGraph[str] = nx.MultiDiGraph(
        name=chosen.name,
        mesh=str(workload.mesh),
        ranks=str(chosen.ranks),
        order=workload.order.value,
        granularity=granularity or "op",
    )
    if unroll:
        _add_instances(drawn, graph, workload.mesh)
    else:
        for block in blocks(graph):
            _add_block(drawn, block, workload.mesh, chosen)
    return drawn


def _add_block(drawn: MultiDiGraph[str], block: ProgramBlock, mesh: Mesh, program: Program) -> None:
    graph, prefix = block.graph, block.prefix
    types = [str(item) for item in graph.tables.types]
    place = {"block": block.owner, "times": block.times}
    value_name = [f"{prefix}in:{number}" for number in range(graph.inputs)]
    value_name += [f"{prefix}{node}" for node in graph.producer[graph.inputs :].tolist()]
    value_type, value_bytes = graph.value_type.tolist(), graph.value_bytes.tolist()

    def data(value: int) -> dict[str, Any]:
        kind = types[value_type[value]]
        return {"kind": "data", "value": value, "type": kind, "bytes": value_bytes[value]}

    for number in range(graph.inputs):
        attributes = {"kind": "input", "op": "input", "type": types[value_type[number]]}
        attributes |= {"bytes": value_bytes[number], **place}
        if not block.owner and number < len(program.inputs):
            described = program.inputs[number]
            attributes |= {"role": described.role, "name": described.name}
            if described.donated >= 0:
                attributes["donated"] = described.donated
        drawn.add_node(value_name[number], **attributes)
    drawn.add_nodes_from(
        (f"{prefix}{node}", attributes | place)
        for node, attributes in enumerate(node_attributes(graph, mesh))
    )
    for number, value in enumerate(graph.outputs.tolist()):
        name = f"{prefix}out:{number}"
        drawn.add_node(name, kind="output", op="output", type=types[value_type[value]], **place)
        drawn.add_edge(value_name[value], name, **data(value))
    consumers = graph.consumer.tolist()
    for consumer, value in zip(consumers, graph.operand.tolist(), strict=True):
        drawn.add_edge(value_name[value], f"{prefix}{consumer}", **data(value))
    waiting = row_of_entry(graph.order_ptr).tolist()
    before, kinds = graph.order_node.tolist(), graph.order_kind.tolist()
    for consumer, node, kind in zip(waiting, before, kinds, strict=True):
        name = EdgeKind(kind).name.lower()
        drawn.add_edge(f"{prefix}{node}", f"{prefix}{consumer}", kind=name)
    if block.owner:
        _tie_body(drawn, block, data)


def _tie_body(drawn: MultiDiGraph[str], block: ProgramBlock, data: Any) -> None:
    """The edges between a body and its loop or conditional node."""
    graph, prefix = block.graph, block.prefix
    for number in range(graph.inputs):
        drawn.add_edge(block.owner, f"{prefix}in:{number}", **(data(number) | {"kind": "enter"}))
    for number in range(drawn.nodes[block.owner]["carried"]):
        value = data(int(graph.outputs[number])) | {"kind": "carry"}
        drawn.add_edge(f"{prefix}out:{number}", f"{prefix}in:{number}", **value)


def _add_instances(drawn: MultiDiGraph[str], graph: WorkloadGraph, mesh: Mesh) -> None:
    unrolled = unroll_graph(graph)
    templates: list[dict[str, Any]] = []
    for block in blocks(graph):
        described = enumerate(node_attributes(block.graph, mesh))
        templates += [attributes | {"node": block.path(node)} for node, attributes in described]
    rows = zip(unrolled.template.tolist(), unrolled.iteration.tolist(), strict=True)
    drawn.add_nodes_from(
        (str(instance), templates[template] | {"iteration": iteration})
        for instance, (template, iteration) in enumerate(rows)
    )
    edges = zip(
        unrolled.consumer.tolist(), unrolled.deps.tolist(), unrolled.dep_kind.tolist(), strict=True
    )
    kinds = {int(kind): kind.name.lower() for kind in EdgeKind}
    drawn.add_edges_from(
        (str(producer), str(consumer), {"kind": kinds[kind]}) for consumer, producer, kind in edges
    )
