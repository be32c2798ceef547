"""What a workload is made of: programs, the level they are at and where their order is from.

programs = with_communicators((Program("main", graph, all_ranks(8), inputs),))
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from flint.graph.building import with_tables
from flint.graph.communication import Communication
from flint.graph.graph import WorkloadGraph
from flint.graph.tensor_types import TensorType
from flint.mesh.ranks import RankSet


class Level(StrEnum):
    """How far the compiler has taken the program."""

    LOGICAL = "logical"
    PARTITIONED = "partitioned"
    OPTIMIZED = "optimized"


class Order(StrEnum):
    """Where the issue order comes from."""

    MODELLED = "modelled"
    COMPILED = "compiled"
    RECORDED = "recorded"


@dataclass(frozen=True, slots=True)
class ProgramInput:
    """One input of a program.

    Attributes:
        type: its tensor type on one rank.
        role: "parameter", "optimizer state", "batch", "cache" (of an inference step) or "constant";
            "unknown" where the source does not say.
        name: the source's name for it ("" unknown).
        donated: the output that reuses its buffer, -1 for none.
        sharding: the sharding as the module writes it ("" unknown).
    """

    type: TensorType
    role: str = "unknown"
    name: str = ""
    donated: int = -1
    sharding: str = ""


#: How the names of programs begin that stand for ranks without a trace.
UNTRACED: Final = "untraced"


@dataclass(frozen=True, slots=True)
class Program:
    """One per-device program.

    Attributes:
        name: distinct within the workload.
        graph: at op granularity, in issue order.
        ranks: who runs it.
        inputs: one entry per graph input.
        module: the module as captured, with its file suffix; None when there is none.
        listing: the same module for people to read, with its file suffix; None when there is none.
    """

    name: str
    graph: WorkloadGraph
    ranks: RankSet
    inputs: tuple[ProgramInput, ...]
    module: tuple[bytes, str] | None = None
    listing: tuple[bytes, str] | None = None

    @property
    def traced(self) -> bool:
        """False for a stand-in of ranks without a trace: it says nothing of their work."""
        return not self.name.startswith(UNTRACED)

    def __repr__(self) -> str:
        return f"Program({self.name!r} on {self.ranks.size:,} ranks, {self.graph})"


def with_communicators(programs: tuple[Program, ...]) -> tuple[Program, ...]:
    """The programs with communicator ids given out over all of them, in order of first use."""
    ids: dict[tuple[object, str], int] = {}

    def numbered(item: Communication) -> Communication:
        key = (item.groups, item.process_group)
        return replace(item, communicator=ids.setdefault(key, len(ids)))

    numbered_programs = []
    for program in programs:
        tables = program.graph.tables
        communications = tuple(numbered(item) for item in tables.communications)
        graph = with_tables(program.graph, replace(tables, communications=communications))
        numbered_programs.append(replace(program, graph=graph))
    return tuple(numbered_programs)
