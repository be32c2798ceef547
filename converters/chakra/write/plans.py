"""The programs of a workload as encoded classes of files."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from flint.converters.chakra.astra_sim.forecast import messages_in, messages_of
from flint.converters.chakra.comm_groups import GroupIds
from flint.converters.chakra.schema import COLLECTIVE_KIND, NodeType
from flint.converters.chakra.write.columns import node_columns, placeholder
from flint.converters.chakra.write.manifest import StructureSummary, symbolic
from flint.converters.chakra.write.node_table import NodeTable, texts_of
from flint.converters.chakra.write.rank_classes import Stamps, classes, stamps_of
from flint.converters.chakra.write.records import NodeColumns, Template, encode, stamp_bytes
from flint.converters.chakra.write.starts import one_after_another
from flint.converters.chakra.write.trace_files import FileClass
from flint.cost.hardware import System
from flint.execution.chains import CommunicationOrder, chains
from flint.execution.emission import Emission, emit, presence_of
from flint.execution.structures import Structure, structures, used_communications
from flint.execution.tags import Side, Tags, side_of
from flint.graph.communication import Communication
from flint.graph.graph import WorkloadGraph
from flint.graph.unrolling import Lookahead, Unrolled, unroll
from flint.mesh.groups import Groups
from flint.mesh.network_dims import NetworkDims
from flint.mesh.ragged import Ints


@dataclass(frozen=True, eq=False, slots=True)
class Plan:
    """One program.

    Attributes:
        graph: the graph that runs.
        ranks: the ranks that run it.
        written: the ranks whose traces are written.
        used: entries of the communication table that it issues.
        structures: the written ranks by what they do.
        chains: which communications are issued one after another.
    """

    graph: WorkloadGraph
    ranks: Ints
    written: Ints
    used: list[int]
    structures: list[Structure]
    chains: Ints | None

    @property
    def communications(self) -> tuple[Communication, ...]:
        return self.graph.tables.communications

    def collective_groups(self) -> list[Groups]:
        items = [self.communications[index] for index in self.used]
        return [i.groups for i in items if i.kind in COLLECTIVE_KIND and i.groups is not None]


def plan_of(
    graph: WorkloadGraph, members: Ints, wanted: Ints | None, order: CommunicationOrder
) -> Plan:
    """The plan of a program for some ranks; None: for all."""
    written = members if wanted is None else members[np.isin(members, wanted)]
    used = used_communications(graph)
    found = structures(graph.tables.communications, used, written) if len(written) else []
    return Plan(graph, members, written, used, found, chains(graph.tables.communications, order))


@dataclass(slots=True)
class Build:
    """Turns plans into encoded classes, program by program."""

    plans: list[Plan]
    ids: GroupIds
    dims: NetworkDims
    system: System
    head: bytes
    annotate: bool
    lookahead: Lookahead
    world: int
    unordered_starts: bool
    files: list[FileClass] = field(default_factory=list)
    summaries: list[StructureSummary] = field(default_factory=list)
    table: NodeTable = field(default_factory=NodeTable)
    ordered_starts: int = 0
    nodes: int = 0
    messages: int = 0
    tags: Tags = field(init=False)
    _last: tuple[WorkloadGraph, bytes, Unrolled] | None = None

    def __post_init__(self) -> None:
        # Who is absent changes edges only: any rank's unrolling knows the program's messages.
        sides = [side_of(self._unroll(plan, None), plan.ranks) for plan in self.plans]
        self.tags = Tags(sides)
        for number, (plan, side) in enumerate(zip(self.plans, sides, strict=True)):
            self._program(number, plan, side)

    def _unroll(self, plan: Plan, structure: Structure | None) -> Unrolled:
        """The program as it unrolls for a structure; the last result is kept."""
        if structure is None and plan.structures:
            structure = plan.structures[0]
        presence = presence_of(structure.parts) if structure is not None else None
        key = b"" if presence is None else presence.tobytes()
        if self._last is None or self._last[0] is not plan.graph or self._last[1] != key:
            unrolled = unroll(plan.graph, self.lookahead, presence=presence, chains=plan.chains)
            self._last = plan.graph, key, unrolled
        return self._last[2]

    def _program(self, number: int, plan: Plan, side: Side) -> None:
        tags = self.tags.of(side, number)
        messages = messages_of(plan.communications, self.dims)
        texts, notes = None, None
        for structure in plan.structures:
            unrolled = self._unroll(plan, structure)
            if texts is None:
                texts = texts_of(unrolled.graphs)
                notes = texts.notes() if self.annotate else None
            emission = emit(unrolled, plan.communications, structure.parts, plan.chains)
            if not self.unordered_starts:
                emission, ordered = one_after_another(emission)
                self.ordered_starts += ordered
            stamps = stamps_of(structure, plan.communications, plan.used, self.ids)
            nodes = node_columns(
                unrolled, emission, structure.parts, stamps, tags, self.system, notes
            )
            ranks = len(structure.ranks)
            self.nodes += ranks * len(emission)
            detail = unrolled.detail[emission.instance]
            self.messages += ranks * messages_in(emission, detail, messages)
            self.table.add(len(self.summaries), unrolled, emission, texts)
            found = self._classes(structure, stamps, nodes if len(nodes) else placeholder())
            self.files.extend(found)
            self.summaries.append(self._summary(number, structure, emission, found))

    def _classes(self, structure: Structure, stamps: Stamps, nodes: NodeColumns) -> list[FileClass]:
        found = []
        for ranks, file, values in classes(stamps, structure.ranks):
            first = np.array([column[0] for column in values], np.int64)
            template = encode(nodes, first, self.ids.digits, self.head)
            found.append(_file_class(template, ranks, file, values, len(stamps.peers)))
        return found

    def _summary(
        self, number: int, structure: Structure, emission: Emission, found: list[FileClass]
    ) -> StructureSummary:
        counts = np.bincount(emission.type, minlength=len(NodeType))
        return StructureSummary(
            program=number,
            structure=len(self.summaries),
            ranks=symbolic(structure.ranks, self.world),
            rank_count=len(structure.ranks),
            nodes={kind.name: int(counts[kind]) for kind in NodeType if counts[kind]},
            removed=emission.removed,
            classes=len(found),
            files=sum(item.files for item in found),
        )


def _file_class(
    template: Template, ranks: Ints, file: Ints, values: list[Ints], peers: int
) -> FileClass:
    """The class's buffer and what to stamp for each distinct file."""
    at, column, stamped, width = [], [], [], 0
    for places in template.stamps:
        if not places.at.size:
            continue
        count, bytes_ = places.at.shape
        at.append(places.at.reshape(-1))
        column.append(np.tile(np.arange(bytes_) + width, count))
        stamped.append(stamp_bytes(values[places.stamp], bytes_, places.stamp >= peers))
        width += bytes_
    files = int(file.max()) + 1
    empty = np.zeros(0, np.int64)
    return FileClass(
        ranks,
        file,
        template.data,
        np.concatenate(at) if at else empty,
        np.concatenate(column) if column else empty,
        np.concatenate(stamped, axis=1) if stamped else np.zeros((files, 0), np.uint8),
    )
