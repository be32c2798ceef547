"""Both engines on one workload: where they agree, how much they differ, and known reasons.

The idea: the embedded engine is given the links of the simulator's network file: collectives run as
rings dim by dim, or straight over a full mesh, with one protocol, in no switch, and no launches for
communications.  Then every single collective and the whole step must take equally long, up to
``TOLERANCE``; where the simulator uses another model, that is reported.

    found = compare(flint.load("out"), folder=Path("out"))
    found.step.relative, found.rows[0].reason, found.agrees
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from flint.converters.chakra.astra_sim.engine import (
    TIME_LIMIT,
    described_system,
    is_reusable,
    run_traces,
    written_traces,
)
from flint.converters.chakra.astra_sim.probes import Priced, prices_of
from flint.converters.chakra.astra_sim.reasons import reason
from flint.converters.chakra.astra_sim.run import astra_sim_binary, is_congestion_aware
from flint.converters.chakra.durations import whole_micros
from flint.cost.fitting import fit
from flint.cost.hardware import System
from flint.cost.kernels import kernel_seconds
from flint.cost.roofline import Seconds
from flint.errors import FlintError, UsageError
from flint.execution.emission import Emission
from flint.execution.node_types import NodeType
from flint.graph.graph import Ints, WorkloadGraph
from flint.graph.unrolling import Unrolled
from flint.mesh.network_dims import NetworkDims, network_dims
from flint.passes.what_if import Chosen, parse_passes
from flint.simulation.actors import build_actors
from flint.simulation.attention_choice import FUSED, check_attention
from flint.simulation.behaviours import Plan
from flint.simulation.durations import TICKS_PER_SECOND
from flint.simulation.machine import run
from flint.simulation.preparing import Setting, prepare, program_graphs, setting
from flint.workload.workload import Workload

#: Two times agree if they differ by at most this share of the larger one.
TOLERANCE: Final = 0.02
#: How long communications wait for earlier ones on shared links, relative to their own time.
_OVERLAP: Final = 0.1
_MICROSECOND: Final = TICKS_PER_SECOND // 10**6
_NANOSECOND: Final = TICKS_PER_SECOND // 10**9


@dataclass(frozen=True, slots=True)
class Difference:
    """One time by both engines.

    Attributes:
        name: a communication and its axes, or "step".
        count: how many of them a rank issues; 1 for the step.
        size: bytes that a rank contributes; 0 for the step.
        embedded, astra_sim: seconds.
        reason: why the simulator's time may differ; "" if they should agree.
    """

    name: str
    count: int
    size: int
    embedded: float
    astra_sim: float
    reason: str = ""

    @property
    def relative(self) -> float:
        """ASTRA-sim's time against the embedded engine's: 0.1 is a tenth more."""
        return self.astra_sim / self.embedded - 1 if self.embedded else float(self.astra_sim > 0)

    @property
    def within(self) -> bool:
        """Whether they agree."""
        most = max(self.embedded, self.astra_sim)
        return abs(self.astra_sim - self.embedded) <= TOLERANCE * most


@dataclass(frozen=True, slots=True)
class Comparison:
    """A workload in both engines.

    Attributes:
        system, granularity, ranks: what was simulated.
        binary: name of the simulator.
        step: the step's time.
        rows: each distinct communication, run separately, longest first.
        notes: what the reader should know.
    """

    system: str
    granularity: str
    ranks: int
    binary: str
    step: Difference
    rows: tuple[Difference, ...]
    notes: tuple[str, ...]

    @property
    def unexplained(self) -> tuple[Difference, ...]:
        """Differences above the tolerance without a known reason."""
        return tuple(row for row in (self.step, *self.rows) if not row.within and not row.reason)

    @property
    def agrees(self) -> bool:
        """Whether every difference is within the tolerance or has a reason."""
        return not self.unexplained

    def to_json(self) -> dict[str, Any]:
        """As plain types."""
        document = asdict(self)
        for row, entry in zip(
            (self.step, *self.rows), (document["step"], *document["rows"]), strict=True
        ):
            entry.update(relative=row.relative, within=row.within)
        return {**document, "tolerance": TOLERANCE, "agrees": self.agrees}


def compare(
    workload: Workload,
    system: str | System | None = None,
    *,
    granularity: str | None = None,
    passes: Iterable[str | Chosen] = (),
    attention: str | None = None,
    folder: str | Path | None = None,
    binary: str | Path | None = None,
    time_limit: float = TIME_LIMIT,
    announce: Callable[[int, int], None] | None = None,
) -> Comparison:
    """Simulate by both engines with the same links; arguments as of ``engine.simulate``.

    Raises:
        UsageError: no binary, a single rank, unknown system, granularity or pass.
        FlintError: the simulator fails, hangs or loses ranks; a disk without room.
    """
    if workload.mesh.size < 2:
        raise UsageError("ASTRA-sim simulates at least 2 ranks; use --engine embedded")
    program = astra_sim_binary(Path(binary) if binary is not None else None)
    chosen = parse_passes(passes)
    written = written_traces(folder)
    described = described_system(system, folder)
    level = granularity or (written and written.granularity) or "kernel"
    check_attention(attention)
    fused = attention == FUSED
    reusable = is_reusable(written, system, granularity) and not chosen and not fused
    own = Path(folder) if reusable and folder is not None else None
    done = run_traces(
        workload, described, level, chosen, own, announce, fused_attention=fused, binary=program,
        time_limit=time_limit,
    )  # fmt: skip
    of_programs = program_graphs(
        workload, level, accelerator=described.accelerator, fused_attention=fused, left={}
    )
    graphs = prepare(workload, of_programs, level, chosen).graphs
    parts = [
        (graph, program.ranks.array())
        for graph, program in zip(graphs, workload.programs, strict=True)
    ]
    aware = is_congestion_aware(program)
    on = _links(described, workload.mesh.size)
    links = on.system
    priced, left = prices_of(
        parts, workload.mesh, links, described, binary=program, time_limit=time_limit
    )
    dims = network_dims(workload.mesh)
    rows = tuple(_row(item, dims, links, aware) for item in priced)
    ours = _step_seconds(parts, workload.mesh.size, on)
    step = Difference("step", 1, 0, ours, max(done.cycles) * 1e-9)
    step = replace(step, reason=_of_step(step, rows, aware))
    notes = [
        *on.fitting,
        "both have the same links (rings, one protocol, no launches of communications) and kernels "
        "of whole microseconds, as traces hold them",
        f"{program.name} took {done.seconds:.3g} s",
    ]
    if left:
        notes.append(f"{left} shorter communications were not run separately")
    return Comparison(
        described.name, level, workload.mesh.size, program.name, step, rows, tuple(notes)
    )


#: How the simulator runs collectives on the links of a tier (see ``files.write_astra_sim_files``).
_ALGORITHM: Final = {"Ring": "ring", "Switch": "ring", "FullyConnected": "direct"}


def as_astra_sim_links(system: System) -> System:
    """The system as ASTRA-sim knows it: one algorithm and one protocol per tier, no launches.

    Kernels keep their speed during communication, because traces cannot slow them down.
    """
    kernel = replace(system.accelerator.kernel, beside_communication=1.0)
    accelerator = replace(system.accelerator, launch_overhead=0.0, kernel=kernel)
    tiers = tuple(
        replace(
            tier, algorithms=(_ALGORITHM[tier.topology],), protocols=(), beside_communication=0.0
        )
        for tier in system.network
    )
    return replace(system, accelerator=accelerator, network=tiers)


def _links(system: System, devices: int) -> Setting:
    """The embedded engine's side: those links, and kernels with their launches."""
    described, _ = fit(system, devices)

    def kernels(graph: WorkloadGraph, _: System) -> Seconds:
        return kernel_seconds(graph, described)

    return setting(devices, as_astra_sim_links(system), "hierarchical", kernels)


def _step_seconds(parts: Sequence[tuple[WorkloadGraph, Ints]], world: int, on: Setting) -> float:
    """Seconds of a step in the embedded engine, with the durations of the traces."""

    def ticks(item: Plan, unrolled: Unrolled, emission: Emission, rank: int) -> Ints:
        found = on.costs.ticks(item, unrolled, emission, rank)
        computes = emission.type == NodeType.COMP
        micros = whole_micros(found[computes] / TICKS_PER_SECOND)
        # A kernel of 0 us takes the simulator a nanosecond.
        found[computes] = np.where(micros, micros * _MICROSECOND, _NANOSECOND)
        return found

    everyone = build_actors(parts, world, ticks, costs=on.costs.columns)
    happened = run(everyone.columns, everyone.members)
    if happened.stuck:
        raise FlintError("ranks wait for each other forever in the embedded engine")
    return happened.ticks / TICKS_PER_SECOND


def _row(priced: Priced, dims: NetworkDims, links: System, aware: bool) -> Difference:
    row = Difference(priced.name, priced.count, priced.size, priced.embedded, priced.astra_sim)
    if row.within:
        return row
    return replace(row, reason=reason(priced.item, dims, links, aware, row.relative > 0))


def _of_step(step: Difference, rows: tuple[Difference, ...], aware: bool) -> str:
    """Why the step may differ: by no more than its differing communications.

    If messages share links, those of one communication also wait for the last of the previous one.
    """
    if step.within:
        return ""
    apart = abs(step.astra_sim - step.embedded)
    named = [row for row in rows if not row.within and row.reason]
    most = sum(row.count * abs(row.astra_sim - row.embedded) for row in named)
    most *= 1 + _OVERLAP * aware
    if named and apart <= most + TOLERANCE * max(step.embedded, step.astra_sim):
        same_way = np.sign(step.astra_sim - step.embedded)
        if any(np.sign(row.astra_sim - row.embedded) == same_way for row in named):
            return "by the communications named below"
    return ""
