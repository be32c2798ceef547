"""Nodes and communications as pandas DataFrames.

The idea: a workload graph consists of columns, so a table of a program is those columns with names
in place of numbers.  Loop bodies occur once; ``times`` is how often they run:

    frame = workload.nodes_frame()
    (frame.flops * frame.times).groupby(frame.op).sum().nlargest(10)

FLOPs and bytes are those of one run of the node; products that pass 2**63 are the summary's part
(``flint.workload.inspection``).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from flint.graph.graph import NodeKind, Phase
from flint.graph.nesting import ProgramBlock, blocks
from flint.graph.partners import partners
from flint.graph.work import Role
from flint.host.environment import require
from flint.passes import apply
from flint.workload.workload import Workload


def nodes_frame(
    workload: Workload, program: str | None = None, granularity: str | None = None
) -> Any:
    """All nodes of one program; bodies of loops come after the graph that contains them.

    Args:
        workload: the workload.
        program: its name; may be left out when there is only one.
        granularity: "op", "kernel" or "region" as in execution traces; None for the workload's own
            graph.

    Returns:
        A ``pandas.DataFrame`` indexed by node path (``12/3``: node 3 in the body of loop 12) with
        op, kind, category, block, level, times, ops_merged, flops, transcendentals, bytes_read,
        bytes_written, bytes_aliased, results, layer, phase, file, line.

    Raises:
        UsageError: pandas is not installed.
    """
    pandas = require("pandas", "pandas", "a table of nodes as a DataFrame")
    found = list(_blocks(workload, program, granularity))
    tables = found[0].graph.tables
    sources = tables.sources
    categories = np.array([role.category for role in Role])
    kinds = np.array([kind.name.lower() for kind in NodeKind])
    types = np.array([str(item) for item in tables.types] or [""], dtype=object)
    parts = []
    for block in found:
        graph = block.graph
        exchanges = graph.kind == NodeKind.COMMUNICATION
        origin = graph.source
        result_types = types[graph.result_type].tolist()
        ends = graph.result_ptr.tolist()
        parts.append(
            pandas.DataFrame(
                {
                    "op": np.array(tables.ops, dtype=object)[graph.op],
                    "kind": kinds[graph.kind],
                    "category": np.where(exchanges, "communication", categories[graph.role]),
                    "block": block.owner,
                    "level": block.level,
                    "times": block.times,
                    "ops_merged": graph.ops_merged,
                    "flops": graph.flops_by_node(),
                    "transcendentals": graph.transcendentals_by_node(),
                    "bytes_read": graph.bytes_read,
                    "bytes_written": graph.bytes_written,
                    "bytes_aliased": graph.bytes_aliased,
                    "results": [
                        ";".join(result_types[ends[i] : ends[i + 1]]) for i in range(len(graph))
                    ],
                    "layer": np.array([s.layer for s in sources], dtype=object)[origin],
                    "phase": np.array([_phase(s.phase) for s in sources], dtype=object)[origin],
                    "file": np.array([s.file for s in sources], dtype=object)[origin],
                    "line": np.array([s.line for s in sources])[origin],
                },
                index=[block.path(node) for node in range(len(graph))],
            )
        )
    frame = pandas.concat(parts)
    frame.index.name = "node"
    return frame


def communications_frame(
    workload: Workload, program: str | None = None, granularity: str | None = None
) -> Any:
    """All communications of one program; arguments and errors as of ``nodes_frame``.

    Returns:
        A ``pandas.DataFrame`` indexed by node path with kind, reduction, group (in the mesh's
        axes), group_size, communicator, dtype, operand_bytes, result_bytes, times, origin,
        process_group, exact, layer, phase.
    """
    pandas = require("pandas", "pandas", "a table of communications as a DataFrame")
    rows: list[dict[str, Any]] = []
    paths: list[str] = []
    for block in _blocks(workload, program, granularity):
        graph = block.graph
        for node in np.flatnonzero(graph.kind == NodeKind.COMMUNICATION).tolist():
            item = graph.tables.communications[int(graph.detail[node])]
            source = graph.tables.sources[int(graph.source[node])]
            paths.append(block.path(node))
            rows.append(
                {
                    "kind": item.kind,
                    "reduction": item.reduction or "",
                    "group": partners(item, workload.mesh),
                    "group_size": item.groups.size if item.groups is not None else 0,
                    "communicator": item.communicator,
                    "dtype": "+".join(dict.fromkeys(item.dtypes)),
                    "operand_bytes": item.bytes_in,
                    "result_bytes": item.bytes_out,
                    "times": block.times,
                    "origin": item.origin,
                    "process_group": item.process_group,
                    "exact": item.exact,
                    "layer": source.layer,
                    "phase": _phase(source.phase),
                }
            )
    names = [
        "kind", "reduction", "group", "group_size", "communicator", "dtype", "operand_bytes",
        "result_bytes", "times", "origin", "process_group", "exact", "layer", "phase",
    ]  # fmt: skip
    return pandas.DataFrame(
        rows, index=pandas.Index(paths, name="node", dtype=object), columns=names
    )


def _blocks(workload: Workload, program: str | None, granularity: str | None) -> list[ProgramBlock]:
    graph = workload.program(program).graph
    return list(blocks(graph if granularity is None else apply(graph, granularity)))


def _phase(phase: Phase) -> str:
    return "" if phase == Phase.UNKNOWN else phase.name.lower()
