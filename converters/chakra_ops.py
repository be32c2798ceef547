"""Chakra execution traces -> observed ops: traces that other tools made of real runs, or ours.

The idea: collectives and exchanges have sizes there, compute has a name and a duration.  Who takes
part stands in another file, so groups stay unknown.

    observe(Path("trace.0.et")).facts
"""

from __future__ import annotations

import re
from pathlib import Path

from flint.converters.chakra.reader import read_trace
from flint.converters.chakra.schema import CollectiveKind, NodeType
from flint.converters.chakra.trace import Trace
from flint.errors import FlintError
from flint.validation.classes import OpClass, aten_class
from flint.validation.observed import Observed, ObservedRows, OpFacts

_RANK = re.compile(r"\.(\d{1,7})\.et(\.gz)?$")
_COLLECTIVES = {
    CollectiveKind.ALL_REDUCE: OpClass.ALL_REDUCE,
    CollectiveKind.ALL_GATHER: OpClass.ALL_GATHER,
    CollectiveKind.BROADCAST: OpClass.BROADCAST,
    CollectiveKind.ALL_TO_ALL: OpClass.ALL_TO_ALL,
    CollectiveKind.REDUCE_SCATTER: OpClass.REDUCE_SCATTER,
}


def observe(path: Path) -> Observed:
    """The nodes of one rank's file, in its order.

    Raises:
        FlintError: it cannot be read, or is not called ``NAME.<rank>.et``.
    """
    named = _RANK.search(path.name)
    if named is None:
        raise FlintError(f"{path}: the rank must stand in the name, NAME.<rank>.et")
    trace = read_trace(path)
    rows = ObservedRows(str(path))
    for i in range(len(trace)):
        facts = _facts(trace, i)
        rows.add(facts, rank=int(named[1]), step=0, duration=int(trace.duration[i]) * 1000)
    rows.note("Chakra traces do not tell groups; compute is compared where names are PyTorch's")
    return rows.finish(form="chakra", backend="", world=None, steps=("whole trace",))


def _facts(trace: Trace, i: int) -> OpFacts:
    name, kind = trace.names[trace.name[i]], int(trace.type[i])
    parts = (int(trace.comm_size[i]),) if trace.field["comm_size"][i] else None
    if kind == NodeType.COLL:
        found = _COLLECTIVES.get(CollectiveKind(int(trace.comm_type[i])))
        return OpFacts(found or OpClass.OTHER, name, None, parts)
    if kind in (NodeType.SEND, NodeType.RECV):
        return OpFacts(OpClass.SEND if kind == NodeType.SEND else OpClass.RECV, name, None, parts)
    return OpFacts(aten_class(name) if "::" in name else OpClass.OTHER, name)
