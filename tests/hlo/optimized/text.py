"""HLO text as a graph."""

from __future__ import annotations

from flint.graph.graph import EdgeKind
from flint.hlo.reader import read_hlo
from flint.hlo.text import proto_of_text
from flint.stablehlo.walker import walk

REDUCTION = """
add { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT s = f32[] add(a, b) }
"""


def module_of(body, header=""):
    text = f"HloModule m, is_scheduled=true, num_partitions=4{header}\n{REDUCTION}\n{body}"
    return read_hlo(proto_of_text(text.encode()))


def graph_of(body, header=""):
    return walk(module_of(body, header)).graph


def names(graph):
    return [node.op for node in graph]


def edges(graph):
    """(waiting node, earlier node, kind) of order and stream edges."""
    return {
        (node, int(graph.order_node[i]), EdgeKind(graph.order_kind[i]))
        for node in range(len(graph))
        for i in range(graph.order_ptr[node], graph.order_ptr[node + 1])
    }
