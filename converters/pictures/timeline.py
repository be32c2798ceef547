"""Timelines of simulated steps for Perfetto and Chrome.

The idea: the simulator records when every node of the first rank of each program ran; each becomes
a slice on that rank's compute or communication stream, and each wait across streams or ranks an
arrow.

    write_timeline(record(workload, "dgx-h100"), Path("step.json.gz"))

The file opens in ui.perfetto.dev and chrome://tracing (Trace Event Format, "JSON Object Format":
complete events ``X`` with ``ts`` and ``dur`` in microseconds, here with all digits of the
simulator's picoseconds; flow events ``s`` and ``f``; receives as nestable asynchronous events ``b``
and ``e``, because several may wait at once).  Nodes that take no time are left out and counted in
``otherData``.
"""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TextIO, cast

import numpy as np
from numpy.typing import NDArray

from flint.converters.pictures.streams import stream_of, streams
from flint.errors import FlintError
from flint.execution.node_types import NodeType
from flint.graph.described import node_attributes
from flint.graph.nesting import blocks
from flint.host.writing import replacing
from flint.mesh.mesh import Mesh
from flint.mesh.ragged import row_of_entry
from flint.simulation.durations import TICKS_PER_SECOND
from flint.simulation.recording import RankRecord, Recording

_TICKS_PER_US: Final = TICKS_PER_SECOND // 10**6

#: Viewers load about this many slices.
MAX_SLICES: Final = 2_000_000
#: The default maximum number of arrows.
MAX_FLOWS: Final = 5_000


@dataclass(frozen=True, slots=True)
class _Flow:
    """An arrow between two slices, each (process, node); lower orders and more ticks first."""

    order: int
    ticks: int
    source: tuple[int, int]
    target: tuple[int, int]


def write_timeline(recording: Recording, path: Path, max_flows: int = MAX_FLOWS) -> None:
    """Write a recorded step; gzipped when the name ends with ``.gz``.

    Args:
        recording: the recording.
        path: the file.
        max_flows: maximum number of arrows; messages between programs come first, then waits of and
            for the longest communication.

    Raises:
        FlintError: too many slices for any viewer, a file that cannot be written.
    """
    drawn = [_drawn(item) for item in recording.ranks]
    slices = sum(int(shown.sum()) for shown in drawn)
    if slices > MAX_SLICES:
        raise FlintError(
            f"the timeline would have {slices:,} slices, but viewers load about {MAX_SLICES:,}: "
            "choose a coarser granularity (region)"
        )
    flows = _flows(recording, drawn)
    notes = {
        "what": "a simulated step; each rank shown represents all ranks that run its program",
        "system": recording.system.name,
        "mesh": str(recording.mesh),
        "granularity": recording.granularity,
        "step_us": recording.step / _TICKS_PER_US,
        "slices": slices,
        "without_duration": sum(len(shown) for shown in drawn) - slices,
        "flows": min(len(flows), max_flows),
        "flows_left_out": max(0, len(flows) - max_flows),
    }
    with replacing(path) as partial:
        if path.name.endswith(".gz"):
            packed = gzip.open(partial, "wt", encoding="utf-8", compresslevel=5)  # noqa: SIM115
            with packed:
                _write(recording, drawn, flows[:max_flows], notes, cast(TextIO, packed))
        else:
            with partial.open("w", encoding="utf-8") as out:
                _write(recording, drawn, flows[:max_flows], notes, out)


def _drawn(record: RankRecord) -> NDArray[np.bool_]:
    """Nodes that are slices: those that take time, except receives."""
    shown: NDArray[np.bool_] = (record.end > record.start) & (record.type != NodeType.RECV)
    return shown


def _write(
    recording: Recording,
    drawn: list[NDArray[np.bool_]],
    flows: list[_Flow],
    notes: dict[str, Any],
    out: TextIO,
) -> None:
    out.write('{"displayTimeUnit": "ns", "traceEvents": [\n')
    comma = ""
    for record, shown in zip(recording.ranks, drawn, strict=True):
        for event in _heads(record, recording.mesh):
            out.write(comma + json.dumps(event))
            comma = ",\n"
        out.writelines(comma + event for event in _slices(record, shown, recording.mesh))
    out.writelines(comma + event for event in _arrows(recording, flows))
    out.write('\n], "otherData": ' + json.dumps(notes) + "}\n")


def _heads(record: RankRecord, mesh: Mesh) -> Iterator[dict[str, Any]]:
    head = {"ph": "M", "pid": record.rank}
    yield head | {
        "name": "process_name",
        "args": {"name": f"rank {record.rank} ({record.program})"},
    }
    for stream, name in streams(record, mesh).items():
        yield head | {"tid": stream, "name": "thread_name", "args": {"name": name}}
        order = {"sort_index": stream}
        yield head | {"tid": stream, "name": "thread_sort_index", "args": order}


def _slices(record: RankRecord, shown: NDArray[np.bool_], mesh: Mesh) -> Iterator[str]:
    templates = [
        _slice_template(block.path(node), fields)
        for block in blocks(record.graph)
        for node, fields in enumerate(node_attributes(block.graph, mesh))
    ]
    received = (record.type == NodeType.RECV) & (record.end > record.start)
    chosen = np.flatnonzero(shown | received)
    chosen = chosen[np.argsort(record.start[chosen], kind="stable")]
    instance = record.instance[chosen]
    columns = (
        record.unrolled.template[instance], record.unrolled.iteration[instance],
        record.type[chosen], stream_of(record)[chosen], record.start[chosen], record.end[chosen],
    )  # fmt: skip
    rows = zip(*(column.tolist() for column in columns), strict=True)
    for number, (template, iteration, kind, stream, start, end) in enumerate(rows):
        text = templates[template].replace("@", str(iteration))
        if kind == NodeType.RECV:
            # Viewers combine events with one id, even from different processes.
            place = f'"pid": {record.rank}, "id": "{record.rank}.{number}", '
            yield f'{{"ph": "b", {place}"ts": {_us(start)}, {text}}}'
            yield f'{{"ph": "e", {place}"ts": {_us(end)}, {text}}}'
            continue
        yield (
            f'{{"ph": "X", "pid": {record.rank}, "tid": {stream}, "ts": {_us(start)}, '
            f'"dur": {_us(end - start)}, {text}}}'
        )


def _us(ticks: int) -> str:
    """Microseconds, with every digit."""
    whole, part = divmod(ticks, _TICKS_PER_US)
    return f"{whole}.{part:06d}"


def _flows(recording: Recording, drawn: list[NDArray[np.bool_]]) -> list[_Flow]:
    """Arrows, the most informative first."""
    found = _messages(recording, drawn)
    for process, (record, shown) in enumerate(zip(recording.ranks, drawn, strict=True)):
        found += _waits(process, record, shown)
    found.sort(key=lambda flow: (flow.order, -flow.ticks, flow.source, flow.target))
    return found


def _waits(process: int, record: RankRecord, shown: NDArray[np.bool_]) -> list[_Flow]:
    """For each node, the last node of another stream that it waited for."""
    consumer = row_of_entry(record.ptr)
    producer = record.deps
    crosses = shown[consumer] & shown[producer]
    stream = stream_of(record)
    crosses &= stream[consumer] != stream[producer]
    consumer, producer = consumer[crosses], producer[crosses]
    order = np.lexsort((record.end[producer], consumer))
    consumer, producer = consumer[order], producer[order]
    last = np.append(consumer[1:] != consumer[:-1], True)[: len(consumer)]
    talks = record.communicates
    ticks = record.end - record.start
    return [
        _Flow(1, int(ticks[a if talks[a] else b]), (process, a), (process, b))
        for a, b in zip(producer[last].tolist(), consumer[last].tolist(), strict=True)
    ]


def _messages(recording: Recording, drawn: list[NDArray[np.bool_]]) -> list[_Flow]:
    """From a send to the first slice that needed its message, between recorded ranks.

    The n-th send of a message number that ends meets the n-th receive.
    """
    sent = _by_channel(recording, NodeType.SEND)
    received = _by_channel(recording, NodeType.RECV)
    needed = [
        _first_needing(record, shown) for record, shown in zip(recording.ranks, drawn, strict=True)
    ]
    found = []
    for channel, sends in sent.items():
        receives = received.get(channel, [])
        if len(sends) != len(receives):
            continue
        for (process, node), (other, receive) in zip(sends, receives, strict=True):
            reader = needed[other].get(receive)
            # Ranks that behave alike send each other messages, which would seem to stay on one
            # rank.
            if process != other and reader is not None and drawn[process][node]:
                record = recording.ranks[process]
                ticks = int(record.end[node] - record.start[node])
                found.append(_Flow(0, ticks, (process, node), (other, reader)))
    return found


def _by_channel(recording: Recording, kind: NodeType) -> dict[int, list[tuple[int, int]]]:
    """Message number -> (process, node) in the order of their ends."""
    found: dict[int, list[tuple[int, int, int]]] = defaultdict(list)
    for process, record in enumerate(recording.ranks):
        for node in np.flatnonzero(record.type == kind).tolist():
            found[int(record.channel[node])].append((int(record.end[node]), process, node))
    return {
        channel: [(process, node) for _, process, node in sorted(items)]
        for channel, items in found.items()
    }


def _first_needing(record: RankRecord, shown: NDArray[np.bool_]) -> dict[int, int]:
    """Receive -> the first slice that waits for it."""
    consumer = row_of_entry(record.ptr)
    waits = (record.type[record.deps] == NodeType.RECV) & shown[consumer]
    found: dict[int, int] = {}
    for receive, node in zip(record.deps[waits].tolist(), consumer[waits].tolist(), strict=True):
        known = found.setdefault(receive, node)
        if record.start[node] < record.start[known]:
            found[receive] = node
    return found


def _arrows(recording: Recording, flows: list[_Flow]) -> Iterator[str]:
    """Flow events, each bound to the slice at its instant."""
    streams = [stream_of(record) for record in recording.ranks]
    for number, flow in enumerate(flows):
        for phase, (process, node) in (("s", flow.source), ("f", flow.target)):
            record = recording.ranks[process]
            stream = int(streams[process][node])
            start, end = int(record.start[node]), int(record.end[node])
            # An arrow starts inside its slice, because at the end the next slice may have begun.
            at = start + (end - start) // 2 if phase == "s" else start
            bound = ', "bp": "e"' if phase == "f" else ""
            yield (
                f'{{"ph": "{phase}", "id": {number}, "pid": {record.rank}, "tid": {stream}, '
                f'"ts": {_us(at)}, "name": "waits for", "cat": "dependency"{bound}}}'
            )


def _slice_template(path: str, fields: dict[str, Any]) -> str:
    """The part of an event that is the same for all instances of a node; ``@`` is the iteration."""
    shown = {key: value for key, value in fields.items() if value not in (0, "", ())}
    name, category = shown.pop("op"), shown.pop("category")
    shown.pop("kind", None)
    if "group" in shown:
        name = f"{name} ({shown['group']})"
    # The only bare @ of the text is ours: JSON may write any character as an escape.
    described = json.dumps({"node": path, **shown})[1:-1].replace("@", "\\u0040")
    title = json.dumps(name).replace("@", "\\u0040")
    return f'"name": {title}, "cat": "{category}", "args": {{"iteration": @, {described}}}'
