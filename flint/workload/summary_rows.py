"""The rows of a summary's tables, one class per table."""

from __future__ import annotations

from dataclasses import dataclass

from flint.graph.stated import UNKNOWN


@dataclass(frozen=True, slots=True)
class WorkRow:
    """FLOPs of one unit (matmul, vector, transcendental) in one element type."""

    unit: str
    dtype: str
    flops: int


@dataclass(frozen=True, slots=True)
class OpRow:
    """All nodes of one op.

    Attributes:
        op: StableHLO op name, or the kernel's.
        category: compute, movement, free or communication.
        count: nodes.
        stablehlo_ops: ops that these nodes stand for.
        work: FLOPs and transcendentals by unit and element type.
        bytes_read, bytes_written: memory traffic; 0 for communications.
        measured: nanoseconds that they took in a measured run; None if nothing was measured.
        work_stated: False if ``work`` is unknown.
        does: what a compiled fusion does: "reduction", "transpose" ...; else empty.

    Unknown figures are not a number, and null in JSON.
    """

    op: str
    category: str
    count: int
    stablehlo_ops: int
    work: tuple[WorkRow, ...]
    bytes_read: float
    bytes_written: float
    measured: int | None = None
    work_stated: bool = True
    does: str = ""

    @property
    def traffic(self) -> float:
        """Bytes read and written."""
        return self.bytes_read + self.bytes_written

    @property
    def flops(self) -> float:
        """FLOPs without transcendentals."""
        return _flops(self.work) if self.work_stated else UNKNOWN

    @property
    def transcendentals(self) -> float:
        """Transcendental evaluations."""
        return _transcendentals(self.work) if self.work_stated else UNKNOWN


@dataclass(frozen=True, slots=True)
class GemmRow:
    """All contractions (or convolutions seen as one) of one size and element type."""

    batch: int
    m: int
    n: int
    k: int
    dtype: str
    count: int
    flops: int


@dataclass(frozen=True, slots=True)
class CollectiveRow:
    """All communications of one kind among the same partners.

    Attributes:
        kind, reduction: StableHLO op name and the reducing op.
        group: the partners in the mesh's axes (see ``flint.mesh.group_names``).
        group_size: ranks per group, None for point to point.
        dtype: element type; several joined by ``+``.
        origin: what a recognised collective was written as ("all_reduce"), "" if as it is.
        process_group: the framework's name for the group, "" if it has none.
        count: calls; ``once`` of them outside loops and ``in_loops`` inside.
        operand_bytes, result_bytes: bytes of all calls.
        smallest, largest: operand bytes of one call.
        exact: False if sizes depend on data and are upper bounds.
    """

    kind: str
    reduction: str | None
    group: str
    group_size: int | None
    dtype: str
    origin: str
    process_group: str
    count: int
    once: int
    in_loops: int
    operand_bytes: int
    result_bytes: int
    smallest: int
    largest: int
    exact: bool


@dataclass(frozen=True, slots=True)
class KindRow:
    """All communications of one kind."""

    kind: str
    count: int
    operand_bytes: int
    result_bytes: int


@dataclass(frozen=True, slots=True)
class InputRow:
    """The program's inputs of one role, and how many of them (and bytes) outputs reuse."""

    role: str
    count: int
    bytes: int
    donated: int
    donated_bytes: int


@dataclass(frozen=True, slots=True)
class LoopRow:
    """One loop.

    Attributes:
        node: its path (see ``flint.graph.nesting``).
        level: loops around it.
        entered: how often it is started.
        trip_count, known_by: iterations each time, and how that is known.
        lookahead: iterations that may overlap, None for no limit.
        carried: values carried from iteration to iteration.
        nodes, communications, flops: of one iteration, with inner loops unrolled.
        layer, file, line: where it comes from ("" and 0 unknown).
    """

    node: str
    level: int
    entered: int
    trip_count: int
    known_by: str
    lookahead: int | None
    carried: int
    nodes: int
    communications: int
    flops: int
    layer: str
    file: str
    line: int


@dataclass(frozen=True, slots=True)
class PhaseRow:
    """One part of the training step."""

    phase: str
    nodes: int
    flops: float
    bytes: float
    communications: int
    communication_bytes: int


@dataclass(frozen=True, slots=True)
class LayerRow:
    """One layer path of the source ("" is unknown)."""

    layer: str
    nodes: int
    flops: float
    bytes: float


def _flops(work: tuple[WorkRow, ...]) -> int:
    return sum(row.flops for row in work if row.unit != "transcendental")


def _transcendentals(work: tuple[WorkRow, ...]) -> int:
    return sum(row.flops for row in work if row.unit == "transcendental")
