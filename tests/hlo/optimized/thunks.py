"""XLA's thunk sequence: what a GPU executable issues, in order, as its runtime sees it.

XLA writes it (``xla_dump_to``) after everything that this project reads: from the scheduled module
it has made what the runtime executes.  One line per thunk, nested by indentation:

    001: kCustomKernel [source | next=004 (2)] input_transpose_fusion_3 grid: [4, 1, 1] ...
    004: kAsyncStart   [prev=002 (1) | ...] stream=communication_stream[0], async_id=4
        003: kAllGather [source | sink] kAllGather
    020: kWhile [...]
    condition:
        021: kCustomKernel ...
      body:
        022: ...
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from flint.graph.graph import NodeKind
from flint.graph.work import Role

_LINE = re.compile(r"^( *)\d+: (k\w+)\s+\[[^\]]*\] ?(\S*)")
_NUMBERED = re.compile(r"(?:_\d+|_double_buffer_clone)+$")
_KINDS = {
    "kAllGather": "all_gather",
    "kAllReduce": "all_reduce",
    "kAllToAll": "all_to_all",
    "kCollectivePermute": "collective_permute",
    "kRecv": "recv",
    "kReduceScatter": "reduce_scatter",
    "kSend": "send",
}
#: Thunks that are kernels or transfers but do not say what of.
ANY = "*"


@dataclass
class Loop:
    """A while loop: what its condition and its body issue."""

    condition: list = field(default_factory=list)
    body: list = field(default_factory=list)


def parse(text):
    """Issued things in order: kernel names, "start KIND", "done", ``ANY``, ``Loop``."""
    lines = [line for line in text.splitlines() if line.strip()]
    found, rest = _block(lines, 0, _indent(lines[0]))
    assert rest == len(lines), lines[rest]
    return found


def _indent(line):
    return len(line) - len(line.lstrip(" "))


def _block(lines, at, indent):
    found = []
    while at < len(lines) and _indent(lines[at]) == indent and _LINE.match(lines[at]):
        _, kind, name = _LINE.match(lines[at]).groups()
        at += 1
        inner = []
        if at < len(lines) and lines[at].strip() == "condition:":
            loop = Loop()
            loop.condition, at = _block(lines, at + 1, _indent(lines[at + 1]))
            assert lines[at].strip() == "body:"
            loop.body, at = _block(lines, at + 1, _indent(lines[at + 1]))
            found.append(loop)
            continue
        if at < len(lines) and _LINE.match(lines[at]) and _indent(lines[at]) > indent:
            inner, at = _block(lines, at, _indent(lines[at]))
        if kind == "kAsyncStart":
            found.append(inner[0])  # without the end that it would have by itself
        elif kind == "kAsyncDone":
            found.append("done")
        elif kind in _KINDS:
            found += [f"start {_KINDS[kind]}", "done"]
        elif kind == "kCustomKernel":
            found.append(_NUMBERED.sub("", name))
        elif kind == "kPartitionId":
            found.append("partition_id")
        else:
            found.append(ANY)
    return found, at


def issued(graph):
    """The same of a graph at op granularity."""
    found = []
    for node in graph:
        if node.kind == NodeKind.COMMUNICATION:
            found.append(f"start {node.op}")
        elif node.op == "async_done":
            found.append("done")
        elif node.kind == NodeKind.LOOP:
            found.append(Loop(body=issued(node.loop.body)))
        elif node.role != Role.ALIAS and node.op not in ("constant", "create_token"):
            found.append(node.op)
    return found
