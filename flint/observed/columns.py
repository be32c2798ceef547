"""What a profiler recorded, as columns: one row per op that ran.

The idea: traces differ in format, not in content.  Every reader returns the same columns: which
rank ran which op, when, and inside which other op; properties that do not change from step to step
(class, name, shapes, bytes, group) are interned in ``facts``.  Facts that a trace does not record
are None or -1 there, never guessed.

    trace = read_trace(Path("kineto_rank0.json.gz"))
    trace.facts[trace.op[0]].kind, trace.start[0]
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

import numpy as np

from flint.graph.distinct import distinct
from flint.graph.graph import Phase, Source
from flint.graph.work import WorkItem
from flint.mesh.ragged import Ints
from flint.observed.classes import OpClass

#: A tensor: its shape and its element type by the StableHLO name ("" if the trace has none).
Tensor: TypeAlias = tuple[tuple[int, ...], str]
#: (batch, m, n, k) of a contraction.
Gemm: TypeAlias = tuple[int, int, int, int]
#: An op of an XLA program by the framework's name: layer, phase, op ("mlp", forward, "tanh").
NamedOp: TypeAlias = tuple[str, Phase, str]

#: Note about a trace that does not name its rank.
UNKNOWN_RANK = "the trace does not name its rank: rank 0 is assumed"
#: Notes about a trace without step marks.
UNMARKED = "no step marks in the trace: a step ends with an optimizer step"
REPEATED = "no step marks in the trace: a step is one repetition of its ops"
#: Note about kernels of a step that stand alone.
NO_OP = "kernels that no op of the trace launched"
#: Note about a file that ends within its list of events.
CUT_OFF = "the file ends within its list of events: the rest is missing"


@dataclass(frozen=True, slots=True)
class OpFacts:
    """Properties of an op that are equal each time it runs.

    Attributes:
        kind: its class.
        name: the profiler's name for it.
        operands: tensors that it reads; None if not recorded.
        parts: bytes of each buffer that a collective sends on one rank; None if not recorded.
        dtype: element type of a collective's buffers or of a contraction's operands ("" unknown).
        group: ranks of a collective, ascending; None if not recorded.
        gemms: contractions of an op, one entry each; None if not recorded.
        source: the user's line, ``file:line`` ("" unknown).
        origin: layer and phase, as ``origin_of`` writes them ("" unknown).
        peer: the other rank of a send or a recv; -1 for other ops, or if unknown.
        root: for a broadcast, the sender's position among the ranks of its group, ascending; -1 if
            unknown.
        members: number of ranks in a collective's group, if the trace records only the number; -1
            if unknown.
        stored: per operand of a contraction or a collective, narrower element types that it had
            before it was converted; () unknown.
        compared: the element type in which it is compared, if not ``dtype``.
        reduction: the reducing op of an all-reduce or a reduce-scatter, by its StableHLO name;
            "computation" for more than one op, "" if unknown.
        convolved: for XLA's convolutions, the number of results and the FLOPs from XLA's cost
            analysis, which distinguish windows with other offsets, strides or dilations; () if
            unknown.
        work: its FLOPs by unit, if ``flint.cost.aten_work`` knows them; None otherwise, and for
            contractions.
        moved: bytes that it reads and writes, if not those of all operands, as for a lookup in a
            cache; (0, 0) if unknown; None if they are.
        lacks: what the trace does not record, so that ``work`` is a bound or unknown; "" if
            nothing.
        blocks: whether a collective of a host is over when its op is; others are only started.
    """

    kind: OpClass
    name: str
    operands: tuple[Tensor, ...] | None = None
    parts: tuple[int, ...] | None = None
    dtype: str = ""
    group: tuple[int, ...] | None = None
    gemms: tuple[Gemm, ...] | None = None
    source: str = ""
    origin: str = ""
    peer: int = -1
    root: int = -1
    members: int = -1
    stored: tuple[tuple[str, ...], ...] = ()
    compared: str = ""
    reduction: str = ""
    convolved: tuple[int, ...] = ()
    work: tuple[WorkItem, ...] | None = field(default=None, hash=False)
    moved: tuple[int, int] | None = field(default=None, hash=False)
    lacks: str = field(default="", hash=False)
    blocks: bool = field(default=False, hash=False)

    @property
    def bytes(self) -> int:
        """Bytes that a collective sends; -1 if unknown."""
        return -1 if self.parts is None else sum(self.parts)

    @property
    def elements(self) -> int:
        """Elements of all known operands."""
        return sum(math.prod(shape) for shape, _ in self.operands or ())

    @property
    def of_no_captured_type(self) -> bool:
        """Whether ``compared`` is a text instead of the type of a captured op."""
        return " " in self.compared


def origin_of(source: Source) -> str:
    """Layer and phase of an op: "mlp, backward".

    The optimizer's phase is left out: captures find it by the use of gradients, traces cannot.
    """
    known = source.phase in (Phase.FORWARD, Phase.BACKWARD, Phase.RECOMPUTE)
    return ", ".join(filter(None, (source.layer, source.phase.name.lower() if known else "")))


class Hints(NamedTuple):
    """How a kind of profile can record more, as text; "" if it cannot.

    Attributes:
        sizes: how to record the bytes of collectives.
        beside: what else from the same run may have what this profile lacks.
    """

    sizes: str = ""
    beside: str = ""


class Fault(NamedTuple):
    """An op that ran another number of times than those that always run with it."""

    rank: int
    step: int
    facts: OpFacts
    times: int
    others: int


class Taken(NamedTuple):
    """How often a conditional took each of its branches.

    ``inside`` are the ops in its branches that must match one by one, whether they ran or not.
    """

    rank: int
    step: int
    name: str
    times: tuple[int, ...]
    inside: tuple[OpFacts, ...] = ()


class Functions(NamedTuple):
    """Light ops in the executed part of an XLA program.

    Attributes:
        rank, step: of the run.
        found: (opcode, layer) of element-wise ops on floats, sorts and Fourier transforms.
        layers: all layers that the program names.
        named: (layer, phase, op) of all light ops, as the framework named them.
        traces: (layer, op) of everything that ran and bears a framework's name, such as a loop.
    """

    rank: int
    step: int
    found: frozenset[tuple[str, str]]
    layers: frozenset[str]
    named: frozenset[NamedOp] = frozenset()
    traces: frozenset[tuple[str, str]] = frozenset()


class Iterated(NamedTuple):
    """How often the bodies of loops ran."""

    rank: int
    step: int
    times: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Observed:
    """The rows of one trace, by rank and then by start; an op comes before those inside it.

    Attributes:
        path: the file or folder.
        form: "kineto", "pytorch-et", "xplane" or "chakra".
        backend: "cpu", "gpu", "tpu", or "" if not recorded.
        world: number of ranks of the run; None if not recorded.
        facts: the facts that the column ``op`` indexes.
        op, rank, step: per row, shape [rows]; a step is an index into ``steps``, -1 outside all
            steps.
        start, duration: nanoseconds on the device if kernels are known, else on the host (for
            gloo's collectives, the duration on gloo's own thread); -1 if the trace has no times.
        end: when its work ended, nanoseconds: later than start + duration if kernels have pauses
            between them or another thread did the work; -1 if unknown.
        stream: device stream or host thread, numbered within the trace.
        parent: row that encloses this one, -1 for none.
        launches: number of kernels that the row itself launched; -1 if the trace has no device.
        steps: names of the steps in the trace, in order.
        notes: text -> count: what was left out or is unknown, for the report.
        faults: contradictions in the trace, which mean that something did not run or was not
            recorded.
        taken: the branches of conditionals, as far as recorded.
        iterated: how often the bodies of loops ran, as far as recorded.
        functions: the element-wise ops in the executed part of an XLA program.
        parameters: arguments of the executed program on one rank; () if not recorded.
        results: what it returns, likewise.
        device: the driver's name for the device; "" if not recorded.
        host: the name of the machine whose clock it has; "" if not recorded.
        hints: how profiles of this kind can record more.
        alone: kernels that no op launched, by rank and step; 0 where none are named.
        workers: row of a collective -> the thread of gloo's that ran it, numbered for each rank; it
            belongs to one process group.  Only rows for which it is certain.
        devices: the id of each rank's device, if the executed XLA program states them; else ().
        version: of the JAX that ran; "" if not recorded.
    """

    path: str
    form: str
    backend: str
    world: int | None
    facts: tuple[OpFacts, ...]
    op: Ints
    rank: Ints
    step: Ints
    start: Ints
    duration: Ints
    end: Ints
    stream: Ints
    parent: Ints
    launches: Ints
    steps: tuple[str, ...]
    notes: dict[str, int] = field(default_factory=dict)
    faults: tuple[Fault, ...] = ()
    taken: tuple[Taken, ...] = ()
    parameters: tuple[Tensor, ...] = ()
    results: tuple[Tensor, ...] = ()
    iterated: tuple[Iterated, ...] = ()
    functions: tuple[Functions, ...] = ()
    device: str = ""
    host: str = ""
    hints: Hints = field(default_factory=Hints)
    alone: Mapping[tuple[int, int], int] = field(default_factory=dict)
    workers: Mapping[int, int] = field(default_factory=dict)
    devices: tuple[int, ...] = ()
    version: str = ""

    def __len__(self) -> int:
        return len(self.op)

    @property
    def ranks(self) -> tuple[int, ...]:
        """Ranks that have rows, ascending."""
        return tuple(distinct(self.rank).tolist())

    @property
    def timed(self) -> bool:
        """Whether rows have times."""
        return bool(len(self.op)) and bool((self.duration >= 0).any())

    def rows(self, rank: int, step: int) -> Ints:
        """Rows of a rank in a step, in order."""
        return np.flatnonzero((self.rank == rank) & (self.step == step))
