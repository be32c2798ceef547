"""The records of a summary, which ``flint.workload.inspection.summarise`` makes from a workload.

The idea: plain frozen records of exact integers, one class per table, so that reports can print
them, tests can compare them and JSON can store them without loss.  Everything is per rank of its
program (at the logical level, of the program before it is partitioned), for one run of it, loops
unrolled.  Bytes are bytes, FLOPs are FLOPs; nothing is scaled.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from flint.graph.stated import UNKNOWN, without_unknown
from flint.mesh.mesh import Mesh
from flint.workload.call_rows import CallRow
from flint.workload.compiler_report import CompilerReport
from flint.workload.programs import Level
from flint.workload.summary_rows import (
    CollectiveRow,
    GemmRow,
    InputRow,
    KindRow,
    LayerRow,
    LoopRow,
    OpRow,
    PhaseRow,
    WorkRow,
)


@dataclass(frozen=True, slots=True)
class ProgramSummary:
    """One program, per rank.

    Attributes:
        name: the program.
        ranks, rank_count: the ranks that run it.
        stored_nodes: nodes as stored, loop bodies once.
        nodes: compute and communication nodes that run.
        stablehlo_ops: ops that they stand for.
        work: FLOPs and transcendentals by unit and element type.
        bytes_read, bytes_written: memory traffic.
        bytes_aliased: bytes of results that share an operand's buffer and are not moved.
        ops: largest share of FLOPs or of memory traffic first.
        gemms, layers: sorted by FLOPs; layers and phases are empty if the source names none.
        collectives: most bytes first.
        collectives_by_kind: the same added up, sorted by kind.
        inputs, output_count, output_bytes: what goes in and comes out.
        loops: in program order, without those that never run.
        traced: False for ranks without a trace, whose work is unknown.
        calls: the programs that it runs in sequence; empty for a single program.
    """

    name: str
    ranks: str
    rank_count: int
    stored_nodes: int
    nodes: int
    stablehlo_ops: int
    work: tuple[WorkRow, ...]
    bytes_read: float
    bytes_written: float
    bytes_aliased: int
    ops: tuple[OpRow, ...]
    gemms: tuple[GemmRow, ...]
    collectives: tuple[CollectiveRow, ...]
    collectives_by_kind: tuple[KindRow, ...]
    inputs: tuple[InputRow, ...]
    output_count: int
    output_bytes: int
    loops: tuple[LoopRow, ...]
    phases: tuple[PhaseRow, ...]
    layers: tuple[LayerRow, ...]
    traced: bool = True
    calls: tuple[CallRow, ...] = ()

    @property
    def flops(self) -> float:
        """FLOPs without transcendentals."""
        return sum(row.flops for row in self.ops) if self.traced else UNKNOWN

    @property
    def matmul_flops(self) -> float:
        """FLOPs of contractions and convolutions."""
        stated = self.traced and all(row.work_stated for row in self.ops)
        return sum(row.flops for row in self.work if row.unit == "matmul") if stated else UNKNOWN

    @property
    def transcendentals(self) -> float:
        """Transcendental evaluations."""
        return sum(row.transcendentals for row in self.ops) if self.traced else UNKNOWN

    @property
    def arithmetic_intensity(self) -> float | None:
        """FLOPs per byte read or written; None if nothing is moved."""
        return self.flops / self.traffic if self.traffic else None

    @property
    def traffic(self) -> float:
        """Bytes read and written."""
        return self.bytes_read + self.bytes_written

    @property
    def communication_bytes(self) -> int:
        """Operand bytes of all communications."""
        return sum(row.operand_bytes for row in self.collectives)

    def to_json(self) -> dict[str, Any]:
        """The record with its derived numbers, in JSON's types."""
        found = asdict(self, dict_factory=without_unknown)
        if not self.calls:
            del found["calls"]
        for row, op in zip(found["ops"], self.ops, strict=True):
            derived: dict[str, float | None] = {
                "flops": op.flops,
                "transcendentals": op.transcendentals,
                "flops_share": op.flops / self.flops if self.flops else 0.0,
                "traffic_share": op.traffic / self.traffic if self.traffic else 0.0,
            }
            row |= without_unknown([*derived.items()])
        derived = {
            "flops": self.flops,
            "matmul_flops": self.matmul_flops,
            "transcendentals": self.transcendentals,
            "arithmetic_intensity": self.arithmetic_intensity,
            "communication_bytes": self.communication_bytes,
        }
        return found | without_unknown([*derived.items()])


@dataclass(frozen=True, slots=True)
class Summary:
    """A workload.

    Attributes:
        mesh: the device grid.
        level, order: the compilation level, and the origin of the issue order.
        input: name and SHA-256 of what it was made from.
        programs: one per distinct behaviour.
        warnings: text -> count.
        compiled: the compiler's report, if the program was compiled for a target.
    """

    mesh: Mesh
    level: str
    order: str
    input: dict[str, str]
    programs: tuple[ProgramSummary, ...]
    warnings: dict[str, int]
    compiled: CompilerReport | None = None

    @property
    def cluster_flops(self) -> float:
        """FLOPs of all ranks together; unknown at the logical level, where shapes are global except
        in ``shard_map``.
        """
        if self.level == Level.LOGICAL:
            return UNKNOWN
        return sum(program.flops * program.rank_count for program in self.programs)

    def to_json(self) -> dict[str, Any]:
        """The whole summary in JSON's types; integers are exact."""
        return {
            "mesh": {"shape": list(self.mesh.shape), "axes": list(self.mesh.axes)},
            "ranks": self.mesh.size,
            "level": self.level,
            "order": self.order,
            "input": self.input,
            **without_unknown([("cluster_flops", self.cluster_flops)]),
            "programs": [program.to_json() for program in self.programs],
            "warnings": self.warnings,
            "compiled": self.compiled.to_json() if self.compiled else None,
        }
