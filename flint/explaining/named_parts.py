"""Names of the parts of a step: classes of work, and their place in the user's code.

The idea: kernels are named by class and communications by kind and axes, as in a simulation's
tables; launches and gaps have their own names.  A part's source is the user's line, else the layer,
else the op.

    named = named_parts(played, workload.mesh)
    named.names[named.work[actor][node]].text
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

import numpy as np

from flint.cost.classes import SHOWN, shown_classes
from flint.execution.node_types import NodeType
from flint.graph.graph import Source, WorkloadGraph
from flint.graph.partners import partners
from flint.mesh.mesh import Mesh
from flint.mesh.ragged import Ints
from flint.passes.host_lane import launches, on_host
from flint.simulation.actor_columns import Actor
from flint.simulation.actors import ActorInfo
from flint.simulation.playing import Played

#: Up to this many ticks, a gap before a kernel counts as the launch's way to the device: 30 us, as
#: in ``flint.explaining.breakdown``.
LAUNCH_TICKS: Final = 30_000_000


class Sort(StrEnum):
    """Kinds of parts of a step."""

    KERNEL = "kernel"
    COMMUNICATION = "communication"
    HOST = "host"
    GAP = "gap"
    WAITING = "waiting"


@dataclass(frozen=True, slots=True)
class Name:
    """The name that parts of a step share."""

    sort: Sort
    text: str


HOST_NAME: Final = Name(Sort.HOST, "the host, until it has launched the next kernel")
SHORT_GAP: Final = Name(Sort.GAP, "gaps of less than 30 us before kernels")
LONG_GAP: Final = Name(Sort.GAP, "waits for something that the profile does not show")
BETWEEN_OPS: Final = Name(Sort.HOST, "the host, between ops")
#: The number of a repeated layer: "layers.3.mlp", "Block_3/Linear_1".
_NUMBER: Final = re.compile(r"(?<=[._/])\d+(?=[./]|$)")
LOCAL_COPY: Final = "copy in place of a communication"


@dataclass(frozen=True, eq=False, slots=True)
class NamedParts:
    """Names of all parts.

    Attributes:
        names: the names that ``work`` and ``gap`` index.
        work, gap: per actor, the name of each node and of the gap before it, shape [nodes].
        played: the step.
        launched: a cache by graph identity: the node that each node launches, or itself, shape
            [nodes].
    """

    names: tuple[Name, ...]
    work: list[Ints]
    gap: list[Ints]
    played: Played
    launched: dict[int, Ints] = field(default_factory=dict)

    def source(self, actor: int, node: int) -> str:
        """Where a node comes from, as text."""
        info = self.played.everyone.info[actor]
        graph, index, _ = info.unrolled.locate(int(info.emission.instance[node]))
        if id(graph) not in self.launched:
            self.launched[id(graph)] = _launched(graph)
        index = int(self.launched[id(graph)][index])
        source = graph.tables.sources[graph.source[index]]
        return _where(source, graph.tables.ops[graph.op[index]])


def _launched(graph: WorkloadGraph) -> Ints:
    """For each launch, the next node that is not a launch; other nodes map to themselves; shape
    [nodes].
    """
    host = on_host(graph)
    kernels = np.append(np.flatnonzero(~host), len(graph) - 1)
    return kernels[np.cumsum(~host) - ~host]


def _where(source: Source, op: str) -> str:
    """Line, layer and phase; layers that differ only in their number are the same."""
    phase = source.phase.name.lower() if source.phase else ""
    around = ", ".join(filter(None, (_NUMBER.sub("*", source.layer), phase)))
    if source.file:
        where = f"{source.file}:{source.line}"
        return f"{where} ({around})" if around else where
    return f"{op} ({around})" if around else op


def named_parts(played: Played, mesh: Mesh, alone: bool = False) -> NamedParts:
    """Names of all parts of a step.

    Args:
        played: the step.
        mesh: its ranks.
        alone: it was recorded on hosts without devices: what runs between ops is the host.
    """
    numbers: dict[Name, int] = {}
    work, gap = [], []
    for info, actor in zip(played.everyone.info, played.everyone.columns, strict=True):
        work.append(_work(info, numbers, mesh))
        gap.append(_gaps(actor, numbers, alone))
    return NamedParts(tuple(numbers), work, gap, played)


def _work(info: ActorInfo, numbers: dict[Name, int], mesh: Mesh) -> Ints:
    def number(name: Name) -> int:
        return numbers.setdefault(name, len(numbers))

    unrolled, emission = info.unrolled, info.emission
    template = unrolled.template[emission.instance]
    detail = unrolled.detail[emission.instance]
    classes = np.concatenate([_classes(graph, numbers) for graph in unrolled.graphs])
    table = unrolled.graphs[0].tables.communications
    of_detail = np.zeros(len(table) + 1, np.int64)
    for index in np.unique(detail[detail >= 0]).tolist():
        kind = table[index].kind.replace("_", "-")
        text = f"{kind} over {partners(table[index], mesh)}"
        of_detail[index] = number(Name(Sort.COMMUNICATION, text))
    found = np.where(detail >= 0, of_detail[detail], classes[template])
    copies = (detail >= 0) & (emission.type == NodeType.COMP)
    if copies.any():
        found[copies] = number(Name(Sort.KERNEL, LOCAL_COPY))
    return found


def _classes(graph: WorkloadGraph, numbers: dict[Name, int]) -> Ints:
    kinds = shown_classes(graph)
    of_kind = np.zeros(len(SHOWN), np.int64)
    for index in np.unique(kinds).tolist() if len(kinds) else ():
        name = Name(Sort.KERNEL, f"{SHOWN[index]} kernels")
        of_kind[index] = numbers.setdefault(name, len(numbers))
    found: Ints = of_kind[kinds]
    host = on_host(graph)
    if host.any():
        name = HOST_NAME if launches(graph) else BETWEEN_OPS
        found[host] = numbers.setdefault(name, len(numbers))
    return found


def _gaps(actor: Actor, numbers: dict[Name, int], alone: bool) -> Ints:
    if actor.delay is not None and alone:
        return np.full(len(actor), numbers.setdefault(BETWEEN_OPS, len(numbers)), np.int64)
    short = numbers.setdefault(SHORT_GAP, len(numbers))
    if actor.delay is None:
        return np.full(len(actor), short, np.int64)
    long = numbers.setdefault(LONG_GAP, len(numbers))
    return np.where(actor.delay < LAUNCH_TICKS, short, long).astype(np.int64)
