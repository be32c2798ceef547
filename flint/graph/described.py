"""Descriptions of nodes: names and values for tables, drawings and documents.

The idea: every view of a program (networkx, pandas, a timeline, ``flint inspect --nodes``) shows
the same facts about a node, so they are collected once, from the graph's columns.

    for fields in node_attributes(graph, mesh):
        print(fields["op"], fields["flops"], fields.get("layer"))
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from flint.graph.graph import NodeKind, WorkloadGraph
from flint.graph.partners import partners
from flint.graph.work import Role
from flint.mesh.mesh import Mesh

_CATEGORY = {int(role): role.category for role in Role}


def node_attributes(graph: WorkloadGraph, mesh: Mesh) -> Iterator[dict[str, Any]]:
    """The description of each node of one block, in order."""
    tables = graph.tables
    types = [str(item) for item in tables.types]
    layers = [_source_fields(source) for source in tables.sources]
    results, ends = graph.result_type.tolist(), graph.result_ptr.tolist()
    groups: dict[tuple[int, int], str] = {}
    columns = (
        graph.kind, graph.op, graph.role, graph.detail, graph.source, graph.ops_merged,
        graph.flops_by_node(), graph.transcendentals_by_node(), graph.bytes_read,
        graph.bytes_written, graph.bytes_aliased,
    )  # fmt: skip
    rows = zip(*(column.tolist() for column in columns), strict=True)
    for node, (kind, op, role, detail, source, merged, flops, special, *moved) in enumerate(rows):
        attributes: dict[str, Any] = {
            "op": tables.ops[op],
            "kind": NodeKind(kind).name.lower(),
            "category": "communication" if kind == NodeKind.COMMUNICATION else _CATEGORY[role],
            "flops": flops,
            "transcendentals": special,
            "bytes_read": moved[0],
            "bytes_written": moved[1],
            "bytes_aliased": moved[2],
            "ops_merged": merged,
            "results": tuple(types[t] for t in results[ends[node] : ends[node + 1]]),
            **layers[source],
        }
        if op < len(tables.heroes) and tables.heroes[op]:
            attributes["does"] = tables.heroes[op]
        if kind == NodeKind.COMMUNICATION:
            item = tables.communications[detail]
            place = (id(item.groups), id(item.permutation))
            if place not in groups:
                groups[place] = partners(item, mesh)
            attributes |= {
                "collective": item.kind,
                "group": groups[place],
                "communicator": item.communicator,
                "operand_bytes": item.bytes_in,
                "result_bytes": item.bytes_out,
                "dtype": "+".join(dict.fromkeys(item.dtypes)),
            }
            optional = {
                "reduction": item.reduction,
                "group_size": item.groups.size if item.groups is not None else None,
                "origin": item.origin or None,
                "process_group": item.process_group or None,
                "channel": item.channel or None,
                "exact": None if item.exact else False,
            }
            attributes |= {key: value for key, value in optional.items() if value is not None}
        elif kind == NodeKind.LOOP:
            loop = graph.loops[detail]
            attributes |= {"trip_count": loop.trip_count, "known_by": loop.known_by}
            attributes |= {"carried": loop.carried}
            attributes["lookahead"] = "no limit" if loop.lookahead is None else loop.lookahead
        yield attributes


def _source_fields(source: Any) -> dict[str, Any]:
    fields = {"layer": source.layer, "file": source.file, "line": source.line}
    if source.phase:
        fields["phase"] = source.phase.name.lower()
    return {key: value for key, value in fields.items() if value}
