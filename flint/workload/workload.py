"""The workload: what a capture or a conversion returns.

The idea: a workload is a mesh, one program per distinct behaviour, and which ranks run which.  Its
graphs are at op granularity, in issue order; passes turn them into kernels or regions on the way
out.

    workload = flint.convert("model.mlirbc", mesh=(64, 8), axes=("data", "model"))
    workload.programs[0].graph[0]
    workload.save("out/")
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from flint import registry
from flint.cost.device_names import system_of_device
from flint.errors import FlintError, UsageError
from flint.graph.communication import Communicator
from flint.graph.graph import WorkloadGraph
from flint.graph.verification import verify
from flint.mesh.mesh import Mesh
from flint.mesh.ranks import pattern
from flint.workload.pairing import verify_pairing
from flint.workload.programs import Level, Order, Program, verify_calls

if TYPE_CHECKING:
    from flint.cost.hardware import System
    from flint.simulation.result import SimulationResult
    from flint.workload.compiler_report import CompilerReport


@dataclass(frozen=True, slots=True)
class Workload:
    """What every rank runs.

    Attributes:
        mesh: the logical device grid.
        programs: one per distinct behaviour.
        level: logical, partitioned or optimized.
        order: modelled, compiled or recorded.
        options: the choices that were made, for the record.
        input: name and SHA-256 of what was converted or captured, and the version of JAX.
        warnings: text -> count.
        compiled: the compiler's report, if the program was compiled for a target.
    """

    mesh: Mesh
    programs: tuple[Program, ...]
    level: Level = Level.PARTITIONED
    order: Order = Order.MODELLED
    options: dict[str, Any] = field(default_factory=dict)
    input: dict[str, str] = field(default_factory=dict)
    warnings: dict[str, int] = field(default_factory=dict)
    compiled: CompilerReport | None = None

    def __repr__(self) -> str:
        programs = self.programs[:3] if len(self.programs) > 4 else self.programs
        names = [repr(program) for program in programs]
        if len(names) < len(self.programs):
            names.append(f"{len(self.programs) - len(names)} more")
        return f"Workload({self.level} on {self.mesh}: {', '.join(names)})"

    @property
    def graph(self) -> WorkloadGraph:
        """The graph of the only program.

        Raises:
            FlintError: several programs.
        """
        if len(self.programs) != 1:
            raise FlintError(f"the workload has {len(self.programs)} programs: name one of them")
        return self.programs[0].graph

    @property
    def communicators(self) -> tuple[Communicator, ...]:
        """All communicators, by id."""
        found: dict[int, Communicator] = {}
        for program in self.programs:
            for item in program.graph.tables.communications:
                found[item.communicator] = Communicator(
                    item.communicator, item.groups, item.process_group
                )
        return tuple(found[number] for number in sorted(found) if number >= 0)

    def verify(self) -> None:
        """Check every graph, that every rank has one program, and that communications pair up.

        Raises:
            FlintError: a check failed; the message says which and where.
        """
        once = pattern([program.ranks for program in self.programs])
        owned = np.zeros(len(once), dtype=np.int64)
        for program in self.programs:
            verify(program.graph)
            verify_calls(program)
            if any(graph.conditionals for graph, _ in program.graph.walk()):
                raise FlintError(f"program {program.name} has conditionals that no rank resolved")
            if program.ranks.world != self.mesh.size:
                raise FlintError(
                    f"program {program.name} is for {program.ranks.world} ranks, and the mesh has "
                    f"{self.mesh.size}"
                )
            owned += program.ranks.contains(once)
        if (owned != 1).any():
            rank = int(np.argmax(owned != 1))
            raise FlintError(f"rank {rank} runs {int(owned[rank])} programs; every rank runs one")
        verify_pairing(self)

    def save(self, folder: str | Path, **options: Any) -> Any:
        """Write the workload folder (see ``flint.workload.saving.save`` for the options)."""
        from flint.workload.saving import save

        return save(self, Path(folder), **options)

    def check_partitioned(self, needs: str) -> None:
        """Refuse the logical level on behalf of ``needs``, which needs a program per rank.

        Raises:
            UsageError: the program is not partitioned.
        """
        if self.level == Level.LOGICAL:
            raise UsageError(
                "the program is not partitioned (its shapes are global, its inputs carry "
                f"shardings): {needs} the per-device program from XLA's partitioner, as "
                "flint capture and flint convert make it unless another level is given"
            )

    def save_programs(self, folder: str | Path) -> None:
        """Write the workload folder without traces, as for a program that is not partitioned."""
        from flint.workload.saving import save_programs

        save_programs(self, Path(folder))

    @property
    def usual_system(self) -> str:
        """The system with a profile's devices; dgx-h100 if that is unknown."""
        return system_of_device(str(self.options.get("device", ""))) or "dgx-h100"

    def simulate(
        self, system: str | System | None = None, *, engine: str = "embedded", **options: Any
    ) -> SimulationResult:
        """Simulate a step with the engine of that name.

        The default system is the one with the profile's devices, or dgx-h100. The options are those
        of ``flint.simulation.running.simulate`` and, for "astra-sim", of
        ``flint.converters.chakra.astra_sim.engine.simulate``.
        """
        run: Callable[..., SimulationResult] = registry.engine(engine)
        return run(self, self.usual_system if system is None else system, **options)

    def to_networkx(self, program: str | None = None, **options: Any) -> Any:
        """A networkx graph of one program (see ``flint.converters.graphs.networkx``)."""
        convert: Callable[..., Any] = registry.converter("networkx")
        return convert(self, program=program, **options)

    def nodes_frame(self, program: str | None = None, granularity: str | None = None) -> Any:
        """Nodes as a pandas DataFrame; ops as written without a granularity."""
        frame: Callable[..., Any] = registry.converter("nodes-frame")
        return frame(self, program=program, granularity=granularity)

    def communications_frame(
        self, program: str | None = None, granularity: str | None = None
    ) -> Any:
        """Communications as a pandas DataFrame; as written without a granularity."""
        frame: Callable[..., Any] = registry.converter("communications-frame")
        return frame(self, program=program, granularity=granularity)

    def write_scale_sim(
        self, folder: str | Path, system: str | System, granularity: str = "kernel"
    ) -> int:
        """Write its products as SCALE-Sim's files (see ``flint.converters.scale_sim.write``)."""
        write: Callable[..., int] = registry.converter("scale-sim")
        return write(self, Path(folder), system, granularity)

    def program(self, name: str | None = None) -> Program:
        """A program by name; the only one without a name.

        Raises:
            FlintError: no such program, or several and no name.
        """
        if name is None and len(self.programs) == 1:
            return self.programs[0]
        for program in self.programs:
            if program.name == name:
                return program
        names = ", ".join(program.name for program in self.programs[:8])
        raise FlintError(f"no program {name!r}; choose from: {names}")
