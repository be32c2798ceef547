"""GraphML and DOT files of a program.

The idea: both formats are text that can be written node by node, so they are, from the networkx
graph that ``flint.converters.graphs.networkx`` makes; drawing programs (Gephi, yEd, Cytoscape;
graphviz) read them.

    write_graphml(workload, Path("step.graphml"))
    write_dot(workload, Path("step.dot"), granularity="region")     # dot -Tsvg step.dot

GraphML keeps every attribute, with its type; lists become text joined by ``;``.  DOT keeps only
what a drawing shows; loop and branch bodies are clusters.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, TextIO
from xml.sax.saxutils import escape, quoteattr

import networkx as nx

from flint.converters.graphs.networkx import to_networkx
from flint.host.writing import replacing
from flint.workload.workload import Workload

_NAMESPACE = "http://graphml.graphdrawing.org/xmlns"
_SCHEMA = f"{_NAMESPACE}/1.0/graphml.xsd"
#: GraphML's names for our attribute types; mixed types become text.
_TYPES: dict[type, str] = {bool: "boolean", int: "long", float: "double", str: "string"}
#: Characters that XML 1.0 cannot contain.
_UNWRITABLE = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")

_SHAPES = {
    "communication": 'shape=ellipse, style=filled, fillcolor="#f6c28b"',
    "loop": 'shape=box3d, style=filled, fillcolor="#d9d9d9"',
    "input": "shape=plaintext",
    "output": "shape=plaintext",
}
_LINES = {
    "order": "style=dashed",
    "stream": "style=dashed, color=gray",
    "enter": "style=dotted",
    "carry": 'style=bold, color="#c0392b", constraint=false, label=carry',
}


def write_graphml(
    workload: Workload,
    path: Path,
    program: str | None = None,
    granularity: str | None = None,
    unroll: bool = False,
) -> None:
    """Write one program as GraphML; arguments and errors as of ``to_networkx``."""
    graph = to_networkx(workload, program, granularity, unroll)
    with replacing(path) as partial, partial.open("w", encoding="utf-8") as out:
        out.writelines(_graphml(graph))


def write_dot(
    workload: Workload,
    path: Path,
    program: str | None = None,
    granularity: str | None = None,
    unroll: bool = False,
) -> None:
    """Write one program as a DOT file; arguments and errors as of ``to_networkx``."""
    graph = to_networkx(workload, program, granularity, unroll)
    with replacing(path) as partial, partial.open("w", encoding="utf-8") as out:
        _write_dot(graph, out)


def _graphml(graph: nx.MultiDiGraph[str]) -> Iterator[str]:
    node_keys = _keys("node", "n", (fields for _, fields in graph.nodes(data=True)))
    edge_keys = _keys("edge", "e", (fields for _, _, fields in graph.edges(data=True)))
    graph_keys = _keys("graph", "g", [graph.graph])
    yield '<?xml version="1.0" encoding="utf-8"?>\n'
    yield (
        f'<graphml xmlns="{_NAMESPACE}" xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" '
        f'xsi:schemaLocation="{_NAMESPACE} {_SCHEMA}">\n'
    )
    for scope, keys in (("graph", graph_keys), ("node", node_keys), ("edge", edge_keys)):
        for name, (key, kind) in keys.items():
            shown = quoteattr(_writable(name))
            yield f'<key id="{key}" for="{scope}" attr.name={shown} attr.type="{kind}"/>\n'
    yield '<graph edgedefault="directed">\n'
    yield _data(graph.graph, graph_keys) + "\n"
    for name, fields in graph.nodes(data=True):
        yield f"<node id={quoteattr(name)}>{_data(fields, node_keys)}</node>\n"
    for number, (source, target, fields) in enumerate(graph.edges(data=True)):
        ends = f"source={quoteattr(source)} target={quoteattr(target)}"
        yield f'<edge id="edge{number}" {ends}>{_data(fields, edge_keys)}</edge>\n'
    yield "</graph>\n</graphml>\n"


def _keys(scope: str, prefix: str, rows: Iterable[dict[str, Any]]) -> dict[str, tuple[str, str]]:
    """Attribute -> (key id, GraphML type)."""
    kinds: dict[str, set[str]] = defaultdict(set)
    for row in rows:
        for name, value in row.items():
            kinds[name].add(_TYPES.get(type(value), "string"))
    return {
        name: (f"{prefix}{number}", found.pop() if len(found) == 1 else "string")
        for number, (name, found) in enumerate(kinds.items())
    }


def _data(fields: dict[str, Any], keys: dict[str, tuple[str, str]]) -> str:
    return "".join(
        f'<data key="{keys[name][0]}">{escape(_writable(_text(value)))}</data>'
        for name, value in fields.items()
    )


def _text(value: Any) -> str:
    if isinstance(value, tuple):
        return ";".join(map(str, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


def _writable(text: str) -> str:
    return _UNWRITABLE.sub("\ufffd", text)


def _write_dot(graph: nx.MultiDiGraph[str], out: TextIO) -> None:
    inside: dict[str, list[str]] = defaultdict(list)
    for name, fields in graph.nodes(data=True):
        inside[fields.get("block", "")].append(name)
    bodies: dict[str, list[str]] = defaultdict(list)
    for owner in inside:
        if owner:
            bodies[_enclosing(owner)].append(owner)
    out.write(f"digraph {_quoted(str(graph.graph['name']))} {{\n")
    out.write('  node [shape=box, fontname="Helvetica"];\n')
    # The stack holds blocks to open and lines that close them.
    todo: list[tuple[str, bool]] = [("", True)]
    while todo:
        owner, opening = todo.pop()
        if not opening:
            out.write("  }\n")
            continue
        if owner:
            out.write(f"  subgraph {_quoted('cluster_' + owner)} {{\n")
            out.write(f"  label={_quoted(_body_label(graph, owner))};\n")
            todo.append((owner, False))
        for name in inside[owner]:
            fields = graph.nodes[name]
            shape = _SHAPES.get(fields["kind"], "")
            label = _quoted(_label(name, fields))
            out.write(f"  {_quoted(name)} [label={label}{', ' if shape else ''}{shape}];\n")
        todo += [(body, True) for body in reversed(bodies[owner])]
    for source, target, fields in graph.edges(data=True):
        style = _LINES.get(fields["kind"], "")
        tooltip = f"tooltip={_quoted(fields['type'])}" if "type" in fields else ""
        shown = ", ".join(part for part in (style, tooltip) if part)
        out.write(f"  {_quoted(source)} -> {_quoted(target)}{f' [{shown}]' if shown else ''};\n")
    out.write("}\n")


def _enclosing(owner: str) -> str:
    """The block that contains a body's loop."""
    return owner.rpartition("/")[0]


def _body_label(graph: nx.MultiDiGraph[str], owner: str) -> str:
    return f"body of loop {owner}, {graph.nodes[owner]['trip_count']} times"


def _label(name: str, fields: dict[str, Any]) -> str:
    lines = [f"{name} {fields['op']}"]
    if fields["kind"] in ("input", "output"):
        lines = [" ".join(part for part in (name, fields.get("name", "")) if part), fields["type"]]
    elif fields["kind"] == "communication":
        lines.append(f"{fields['group']}, {fields['operand_bytes']} B")
    elif fields["kind"] == "loop":
        lines.append(f"{fields['trip_count']} times")
    elif fields.get("flops"):
        lines.append(f"{fields['flops']} FLOP")
    lines += fields.get("results", ())[:4]
    return "\n".join(lines)


def _quoted(text: str) -> str:
    r"""A DOT string: quotes and backslashes escaped, line ends as ``\n``."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + escaped.replace("\r", " ").replace("\x00", "").replace("\n", "\\n") + '"'
