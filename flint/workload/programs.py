"""The parts of a workload: programs, their level and the origin of their order.

programs = with_communicators((Program("main", graph, all_ranks(8), inputs),))
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from flint.errors import FlintError
from flint.graph.allocations import Allocations
from flint.graph.communication import Communication
from flint.graph.graph import WorkloadGraph, with_tables
from flint.graph.tensor_types import TensorType
from flint.graph.timing import Timing
from flint.mesh.ranks import RankSet

if TYPE_CHECKING:
    from flint.passes.in_sequence import Origin


#: A module, and its file suffix.
Form = tuple[bytes, str]
#: Makes a module's text for people when it is asked for; None where there is none.
Listing = Callable[[], Form | None]


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
            "unknown" if the source does not show it.
        name: the source's name for it ("" unknown).
        donated: the output that reuses its buffer, -1 for none.
        sharding: the sharding as the module writes it ("" unknown).
    """

    type: TensorType
    role: str = "unknown"
    name: str = ""
    donated: int = -1
    sharding: str = ""


#: Option of a workload: the programs whose run a profile shows, one after another, as one program.
#: What they hand to each other is not recorded, so memory is unknown.
PROFILED_SEQUENCE: Final = "programs"
#: Option of a workload that was read from execution traces. They have no values, so memory is
#: unknown, and nothing launches their nodes.
EXECUTION_TRACES: Final = "execution_traces"
#: Option of a workload: the id of each rank's device, where its programs run on several meshes.
DEVICES: Final = "devices"
#: Prefix of the names of programs that stand for ranks without a trace.
UNTRACED: Final = "untraced"


@dataclass(frozen=True, slots=True)
class HostRead:
    """A value that the host reads before it continues.

    Attributes:
        value: where the value comes from.
        file, line: the line of the user's code that reads it ("" and 0 if unknown).
    """

    value: Origin
    file: str = ""
    line: int = 0


@dataclass(frozen=True, slots=True)
class Call:
    """One of the compiled programs that a step calls in sequence.

    Attributes:
        name: distinct within the program.
        inputs: its inputs, donated to its own outputs.
        operands: where each input comes from, shape [inputs].
        outputs: number of values that it returns.
        reads: values that the host reads before the next program is called.
        file, line: the line of the user's code that calls it ("" and 0 if unknown).
        jitted: whether it is a jitted function, not an op outside of one.
        module: as in ``Program``.
        listing: as in ``Program``.
        ranks: the ranks that run it, in the order of its own devices; () for all.
    """

    name: str
    inputs: tuple[ProgramInput, ...]
    operands: tuple[Origin, ...]
    outputs: int
    reads: tuple[HostRead, ...] = ()
    file: str = ""
    line: int = 0
    jitted: bool = True
    module: Form | None = None
    listing: Listing | None = field(default=None, compare=False)
    ranks: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Program:
    """What a rank runs: one per-device program, or several in sequence.

    Attributes:
        name: distinct within the workload.
        graph: at op granularity, in issue order.
        ranks: the ranks that run it.
        inputs: one entry per graph input.
        module: the module as captured, with its file suffix; None when there is none.
        listing: makes the same module for people to read; None when there is none.
        calls: the compiled programs that it runs in sequence, whose graphs
            ``flint.passes.in_sequence`` has joined; empty if it is a single compiled program.
        timing: when its nodes began in the recorded run; None if it was not recorded, or a profile
            does not show it.
        allocations: the memory that it took from its framework's allocator, in ops as captured;
            None if the source does not show it.
        graphed: share of its ops that CUDA graphs launch.
    """

    name: str
    graph: WorkloadGraph
    ranks: RankSet
    inputs: tuple[ProgramInput, ...]
    module: Form | None = None
    listing: Listing | None = field(default=None, compare=False)
    calls: tuple[Call, ...] = ()
    timing: Timing | None = None
    allocations: Allocations | None = None
    graphed: float = 0.0

    @property
    def traced(self) -> bool:
        """False for a stand-in for ranks without a trace, whose work is unknown."""
        return not self.name.startswith(UNTRACED)

    def __repr__(self) -> str:
        return f"Program({self.name!r} on {self.ranks.size:,} ranks, {self.graph})"


def verify_calls(program: Program) -> None:
    """Check that a program's calls are those that its graph joins, each with inputs from earlier
    ones.

    Raises:
        FlintError: they are not.
    """
    if not program.calls:
        return
    from flint.passes.one_of_sequence import ends  # few programs have calls

    graph, last = program.graph, ends(program.graph)
    where = f"program {program.name}"
    if len(last) != len(program.calls):
        raise FlintError(
            f"{where} joins {len(last)} programs in sequence and names {len(program.calls)}"
        )
    returns = {-1: graph.inputs}
    for number, (call, end) in enumerate(zip(program.calls, last.tolist(), strict=True)):
        read = int(graph.operand_ptr[end + 1] - graph.operand_ptr[end])
        fed = len(call.operands) == len(call.inputs) and all(
            0 <= origin.number < returns.get(origin.program, 0) for origin in call.operands
        )
        returns[number] = call.outputs
        donated = all(item.donated < call.outputs for item in call.inputs)
        known = all(
            0 <= item.value.number < returns.get(item.value.program, 0) for item in call.reads
        )
        if not (fed and donated and known and call.outputs <= read):
            raise FlintError(f"{where}, {call.name}: what it takes or returns is not in its graph")


def with_communicators(programs: tuple[Program, ...]) -> tuple[Program, ...]:
    """The programs with communicator ids, assigned over all of them in order of first use."""
    ids: dict[tuple[object, str], int] = {}
    known: dict[int, Communication] = {}  # by identity: programs of one profile share many

    def numbered(item: Communication) -> Communication:
        found = known.get(id(item))
        if found is None:
            number = ids.setdefault((item.groups, item.process_group), len(ids))
            found = known[id(item)] = replace(item, communicator=number)
        return found

    numbered_programs = []
    for program in programs:
        tables = program.graph.tables
        communications = tuple(numbered(item) for item in tables.communications)
        graph = with_tables(program.graph, replace(tables, communications=communications))
        numbered_programs.append(replace(program, graph=graph))
    return tuple(numbered_programs)
