"""What a profiler saw, as columns: one row per op that ran.

The idea: traces differ in form, not in what they can tell.  Every reader gives the same columns:
who ran what, when, and inside of which other op; what does not change from step to step (class,
name, shapes, bytes, group) is interned in ``facts``.  What a trace does not tell is None or -1
there, and never a guess.

    trace = read_trace(Path("kineto_rank0.json.gz"))
    trace.facts[trace.op[0]].kind, trace.start[0]
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

import numpy as np

from flint.graph.distinct import distinct
from flint.graph.graph import Phase, Source
from flint.graph.work import WorkItem
from flint.mesh.ragged import Ints
from flint.observed.classes import OpClass

#: A tensor: its shape and its element type by the StableHLO name ("" where the trace has none).
Tensor: TypeAlias = tuple[tuple[int, ...], str]
#: (batch, m, n, k) of a contraction.
Gemm: TypeAlias = tuple[int, int, int, int]

#: Note of a trace that does not say whose it is.
UNTOLD_RANK = "the trace does not name its rank: rank 0 is assumed"
#: Note of a trace whose steps nothing marks.
UNMARKED = "no marks of steps in the trace: they are told apart by the optimizers' steps"
#: Note of a file that ends within its list of events.
CUT_OFF = "the file ends within its list of events: the rest is missing"


@dataclass(frozen=True, slots=True)
class OpFacts:
    """What is the same each time an op runs.

    Attributes:
        kind: its class.
        name: the profiler's name of it.
        operands: tensors that it reads; None where the trace does not say.
        parts: bytes of each buffer that a collective sends on one rank; None where it does not say.
        dtype: element type of a collective's buffers or of a contraction's operands ("" unknown).
        group: ranks of a collective, ascending; None where it does not say.
        gemms: contractions, one entry each, of an op that has such; None where it does not say.
        source: the user's line, ``file:line`` ("" unknown).
        origin: layer and phase, as ``origin_of`` writes them ("" unknown).
        peer: the other rank of a send or a recv; -1 of anything else, or unknown.
        members: ranks in a collective's group, where the trace tells how many but not which; -1
            unknown.
        stored: per operand of a contraction or a collective, narrower element types that it had
            before it was converted; () unknown.
        compared: the element type in which it is compared, where that is not ``dtype``.
        reduction: what an all-reduce or a reduce-scatter reduces with, by its StableHLO name;
            "computation" for more than one op, "" unknown.
        convolved: of a convolution of XLA's how many numbers it makes, and its FLOPs by XLA's cost
            analysis, so that windows that begin, step or spread otherwise are different; ()
            unknown.
        work: its FLOPs by unit, where ``flint.cost.aten_work`` knows them; None elsewhere, and of
            contractions.
        moved: bytes that it reads and writes, where those are not all of its operands, as of a
            cache that it looks into; (0, 0) unknown; None where they are.
        lacks: what the trace does not tell, so that ``work`` is a bound or unknown; "" nothing.
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
    members: int = -1
    stored: tuple[tuple[str, ...], ...] = ()
    compared: str = ""
    reduction: str = ""
    convolved: tuple[int, ...] = ()
    work: tuple[WorkItem, ...] | None = field(default=None, hash=False)
    moved: tuple[int, int] | None = field(default=None, hash=False)
    lacks: str = field(default="", hash=False)

    @property
    def bytes(self) -> int:
        """Bytes that a collective sends; -1 unknown."""
        return -1 if self.parts is None else sum(self.parts)

    @property
    def elements(self) -> int:
        """Elements of all operands that are known."""
        return sum(math.prod(shape) for shape, _ in self.operands or ())

    @property
    def of_no_captured_type(self) -> bool:
        """Whether ``compared`` is no type of a captured op but words that say so."""
        return " " in self.compared


def origin_of(source: Source) -> str:
    """Layer and phase of an op: "mlp, backward".

    The optimizer's phase is left out: captures know it by what uses gradients, traces do not.
    """
    known = source.phase in (Phase.FORWARD, Phase.BACKWARD, Phase.RECOMPUTE)
    return ", ".join(filter(None, (source.layer, source.phase.name.lower() if known else "")))


class Hints(NamedTuple):
    """How a profile of a kind is made to tell more, in words; "" where nothing does.

    Attributes:
        sizes: how the bytes of collectives are recorded.
        beside: what else of the same run may tell what this profile does not.
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

    ``inside`` is what must match one by one of all that stands in its branches, whether it ran.
    """

    rank: int
    step: int
    name: str
    times: tuple[int, ...]
    inside: tuple[OpFacts, ...] = ()


class Functions(NamedTuple):
    """Light ops in what ran of an XLA program: (opcode, layer), and all layers that it names."""

    rank: int
    step: int
    found: frozenset[tuple[str, str]]
    layers: frozenset[str]


class Iterated(NamedTuple):
    """How often the bodies of loops ran."""

    rank: int
    step: int
    times: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Observed:
    """The rows of one trace, by rank and then by start; an op comes before those inside of it.

    Attributes:
        path: the file or folder.
        form: "kineto", "pytorch-et", "xplane" or "chakra".
        backend: "cpu", "gpu", "tpu" or "" where the trace does not say.
        world: number of ranks of the run; None where the trace does not say.
        facts: what the column ``op`` points into.
        op, rank, step: per row, shape [rows]; a step is an index into ``steps``, -1 outside of all.
        start, duration: nanoseconds on the device where kernels are known, else on the host (of
            gloo's collectives the duration is that of gloo's own thread); -1 where the trace has
            no times.
        end: when its work was over, nanoseconds: a later one than start + duration where kernels
            have pauses between them or another thread did the work; -1 unknown.
        stream: device stream or host thread, numbered within the trace.
        parent: row that encloses this one, -1 for none.
        launches: kernels that the row launched itself; -1 where the trace has no device.
        steps: names of the steps in the trace, in order.
        notes: text -> count: what was left out or is not known, for the report.
        faults: where the trace contradicts itself, so that something did not run, or was not
            recorded.
        taken: what conditionals chose, as far as the trace tells.
        iterated: how often the bodies of loops ran, as far as the trace tells.
        functions: the element-wise ops inside of what ran of an XLA program.
        parameters: what the executed program is called with on one rank; () where it does not say.
        results: what it returns, likewise.
        device: what the driver calls the device; "" where the trace does not say.
        hints: how profiles of this kind tell more.
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
    hints: Hints = field(default_factory=Hints)

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
