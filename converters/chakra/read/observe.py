"""Chakra execution traces -> observed ops: traces that other tools made of real runs, or ours.

The idea: collectives and exchanges have sizes there, compute has a name and a duration.  If the
names are PyTorch's, a control dependency is the enclosing op (as written by the converter of the
Chakra tools).  The ranks of groups are in a table next to the file; without it a group stays
unknown, as does that of a collective that names none.

    observe(Path("trace.0.et")).facts
"""

from __future__ import annotations

import re
from pathlib import Path

from flint.converters.chakra.network import read_json_object
from flint.converters.chakra.read.kinds import collective_kind
from flint.converters.chakra.read.reader import read_trace
from flint.converters.chakra.read.trace import Trace
from flint.converters.chakra.schema import CollectiveKind, NodeType
from flint.converters.profilers.torch_collectives import ranks_of
from flint.errors import FlintError
from flint.observed.classes import OpClass, aten_class
from flint.observed.columns import UNKNOWN_RANK, Observed, OpFacts
from flint.observed.rows import ObservedRows

_RANK = re.compile(r"\.(\d{1,7})\.et(\.gz)?$")
_COLLECTIVES = {
    CollectiveKind.ALL_REDUCE: OpClass.ALL_REDUCE,
    CollectiveKind.ALL_GATHER: OpClass.ALL_GATHER,
    CollectiveKind.BROADCAST: OpClass.BROADCAST,
    CollectiveKind.ALL_TO_ALL: OpClass.ALL_TO_ALL,
    CollectiveKind.REDUCE_SCATTER: OpClass.REDUCE_SCATTER,
}
#: Types of nodes that are not kernels.
_SILENT = frozenset({NodeType.METADATA, NodeType.MEM_LOAD, NodeType.MEM_STORE})
#: Longer durations, in microseconds, count as unknown.
_LONGEST = 1 << 50


def observe(path: Path) -> Observed:
    """The nodes of one rank's file, in its order.

    Raises:
        FlintError: it cannot be read, or has no nodes.
    """
    trace = read_trace(path)
    if not len(trace):
        raise FlintError(f"{path}: no nodes in it")
    rows = ObservedRows(str(path))
    named = _RANK.search(path.name)
    if named is None:
        rows.note(UNKNOWN_RANK + "; name the file NAME.<rank>.et")
    rank = int(named[1]) if named else 0
    groups = _groups(path, rows)
    on_device = (trace.field["is_cpu_op"] > 0) & (trace.is_cpu_op == 0)
    launches = 0 if on_device.any() else -1
    place: dict[int, int] = {}
    ids = trace.id.tolist()
    for i in range(len(trace)):
        facts = _facts(trace, i, groups, rows)
        kernel = bool(on_device[i])
        outer = _outer(trace, i, place, kernel) if kernel or "::" in facts.name else -1
        micros = int(trace.duration[i])
        if micros > _LONGEST:
            rows.note("durations of centuries: treated as unknown")
            micros = 0
        if kernel and outer >= 0 and not facts.kind.must_match:
            facts = OpFacts(OpClass.FREE, facts.name)
            _launched(rows, outer, micros)
        number = rows.add(
            facts,
            rank=rank,
            step=0,
            duration=micros * 1000,
            parent=outer,
            launches=max(launches, int(kernel and facts.kind != OpClass.FREE)),
        )
        if "::" in facts.name and not facts.kind.collective:
            place[ids[i]] = number
    rows.note("compute of a Chakra trace is compared by name, if the names are PyTorch's")
    return rows.finish(form="chakra", backend="", world=None, steps=("whole trace",))


def _outer(trace: Trace, i: int, place: dict[int, int], kernel: bool) -> int:
    """The op that encloses or launched a node; -1 if not recorded."""
    lists = (trace.ctrl_deps, trace.data_deps) if kernel else (trace.ctrl_deps,)
    for deps in lists:
        around = deps.ids[deps.start[i] : deps.start[i + 1]].tolist()
        if found := [place[number] for number in around if number in place]:
            return max(found)
    return -1


def _launched(rows: ObservedRows, number: int, micros: int) -> None:
    """Assign a kernel to its op, whose time is then that of its kernels."""
    launches, durations = rows.columns["launches"], rows.columns["duration"]
    if launches[number] == 0:
        durations[number] = 0
    launches[number] += 1
    durations[number] += micros * 1000


#: Tables of groups, in a trace's folder or one folder above (Flint's own).
_TABLES = ("comm_group.json", "comm_groups.json", "../astra-sim/comm_groups.json")
_MAX_RANK = 1 << 24


def _groups(path: Path, rows: ObservedRows) -> dict[str, tuple[int, ...]]:
    """Name of a process group -> its ranks, from the table next to a trace.

    Raises:
        FlintError: the table is not a JSON object.
    """
    tables = [path.parent / name for name in _TABLES if (path.parent / name).is_file()]
    found: dict[str, tuple[int, ...]] = {}
    for key, listed in read_json_object(tables[0]) if tables else ():
        ranks = ranks_of(listed)
        if ranks and len(set(ranks)) == len(ranks) and ranks[-1] < _MAX_RANK and key not in found:
            found[key] = ranks
        else:
            rows.note(f"groups in {tables[0].name} that are not lists of ranks: left out")
    return found


def _facts(trace: Trace, i: int, groups: dict[str, tuple[int, ...]], rows: ObservedRows) -> OpFacts:
    name, kind = trace.names[trace.name[i]], int(trace.type[i])
    size = int(trace.comm_size[i])
    parts = (size,) if trace.field["comm_size"][i] and size >= 0 else None
    if kind == NodeType.COLL:
        number = int(trace.pg_name[i])
        group = groups.get(trace.pg_names[number]) if number >= 0 else None
        if groups and number >= 0 and group is None:
            rows.note("collectives of a group that is not in the table of groups")
        return OpFacts(_collective(trace, i, rows), name, None, parts, group=group)
    if kind in (NodeType.SEND, NodeType.RECV):
        other = "comm_dst" if kind == NodeType.SEND else "comm_src"
        peer = int(getattr(trace, other)[i]) if trace.field[other][i] else -1
        message = OpClass.SEND if kind == NodeType.SEND else OpClass.RECV
        return OpFacts(message, name, None, parts, peer=max(peer, -1))
    if kind == NodeType.COMP:
        return OpFacts(aten_class(name) if "::" in name else OpClass.OTHER, name)
    if kind not in _SILENT:
        rows.note("nodes of a type that is not in the schema: left out")
    return OpFacts(OpClass.FREE, name)


def _collective(trace: Trace, i: int, rows: ObservedRows) -> OpClass:
    """The kind of a collective node: its attribute's, else its name's; never a default."""
    kind = collective_kind(trace, i, rows.note)
    if kind == CollectiveKind.BARRIER:
        return OpClass.FREE
    other = OpClass.OTHER_COLLECTIVE
    return other if kind is None else _COLLECTIVES.get(kind, other)
