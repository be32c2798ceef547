"""Process groups that PyTorch records in a trace, in a METADATA node at its start.

The idea: the node's input is the text of a list with one text in it, JSON as PyTorch writes it.  A
group without ranks has all of them.

    ['[{"pg_name": "1", "ranks": [0, 2], "group_size": 2}, ...]']
"""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

import numpy as np

from flint.converters.chakra import et_def_pb2 as pb
from flint.converters.chakra.read.framing import load_bytes, split_records
from flint.converters.chakra.read.trace import Trace
from flint.converters.chakra.read.trace_set import TraceSet
from flint.converters.chakra.schema import NodeType
from flint.mesh.mesh import MAX_RANKS

#: The longest list of groups, in characters.
_LONGEST = 1 << 24
#: PyTorch's name for the op that it records instead of the groups' creation.
_NAME = "process_group:init"


def recorded_groups(traces: TraceSet) -> dict[str, tuple[int, ...]]:
    """Name of a process group -> its ranks, as far as the traces have it."""
    found: dict[str, tuple[int, ...]] = {}
    for trace in traces.traces:
        for text in _texts(trace):
            for item in _items(text):
                ranks = _ranks(item, traces.size)
                if ranks:
                    found.setdefault(str(item.get("pg_name")), ranks)
    return found


def _texts(trace: Trace) -> list[str]:
    """The inputs of the nodes that record groups."""
    named = [number for number, name in enumerate(trace.names) if _NAME in name]
    rows = np.flatnonzero((trace.type == NodeType.METADATA) & np.isin(trace.name, named)).tolist()
    if not rows:
        return []
    data = load_bytes(Path(trace.path))
    starts, ends = split_records(data, trace.path)
    # The first record is the file's metadata.
    records = (data[starts[row + 1] : ends[row + 1]] for row in rows)
    texts = (pb.Node.FromString(record).inputs.values for record in records)
    return [text for text in texts if len(text) <= _LONGEST]


def _items(text: str) -> list[dict[str, Any]]:
    try:
        (inner,) = ast.literal_eval(text)
        found = json.loads(inner)
    except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
        return []
    whole = isinstance(found, list)
    return [item for item in found if isinstance(item, dict)] if whole else []


def _ranks(item: dict[str, Any], known: int) -> tuple[int, ...]:
    ranks, size = item.get("ranks"), item.get("group_size", known)
    if ranks == [] and type(size) is int and 0 < size <= MAX_RANKS:
        return tuple(range(size))
    if not isinstance(ranks, list) or len(set(map(repr, ranks))) < len(ranks):
        return ()
    whole = all(type(rank) is int and 0 <= rank < MAX_RANKS for rank in ranks)
    return tuple(ranks) if whole else ()
