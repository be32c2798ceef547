"""Every family of trace sets of the tests through a real ASTRA-sim and the embedded engine.

    FLINT_ASTRA_SIM=... python -m tests.converters.chakra.astra_sim.real_runs

``test_real_binary.py`` runs the same sets and looks at each.
"""

from __future__ import annotations

import importlib
import sys
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from flint.converters.chakra.astra_sim.comparison import Comparison, compare
from flint.converters.chakra.astra_sim.run import astra_sim_binary
from flint.workload.workload import Workload

UNAWARE = "AstraSim_Analytical_Congestion_Unaware"
AWARE = "AstraSim_Analytical_Congestion_Aware"
EVERY = ("op", "kernel", "region")


@dataclass(frozen=True)
class Family:
    """A training step and what it is run as.

    Attributes:
        step: module below ``flint.models`` and its function.
        meshes: shapes; those with one axis longer than 1 go through the congestion-aware form too.
        granularities, systems: of each.
    """

    step: str
    meshes: tuple[tuple[int, ...], ...]
    granularities: tuple[str, ...] = ("kernel",)
    systems: tuple[str, ...] = ("dgx-h100",)


FAMILIES = (
    Family("jax.llama3:train_tiny", ((4, 2), (2, 8)), EVERY, ("dgx-h100", "tpu-v5e-pod")),
    Family("jax.llama3:train_tiny", ((8, 1), (1, 4)), EVERY, ("dgx-h100", "mi300x-8")),
    Family("jax.llama3:train_tiny", ((16, 1),), ("kernel",), ("dgx-a100", "gb200-nvl72")),
    Family("jax.llama3:train_8b", ((4, 2), (8, 1)), ("kernel",)),
    Family("jax.moe:train_tiny", ((2, 4), (1, 8)), ("kernel", "region")),
    Family("jax.moe:train_tiny_einsum", ((2, 4),), ("kernel",)),
    Family("jax.pipeline:train_tiny", ((2, 2, 2),), ("kernel", "op")),
    Family("jax.resnet:train_tiny", ((8,), (4,)), ("kernel", "op")),
    Family("jax.ring_attention:train_tiny", ((2, 2, 2), (1, 8, 1)), ("kernel",)),
    Family("jax.decode:decode_tiny", ((4, 2), (1, 4)), ("kernel", "op")),
    Family("torch.llama3:train_tiny", ((4, 2), (8, 1)), ("kernel",)),
    Family("torch.moe:train_tiny", ((2, 4),), ("kernel",)),
)


@dataclass(frozen=True)
class Case:
    """One trace set in one form of the simulator."""

    step: str
    mesh: tuple[int, ...]
    granularity: str
    system: str
    binary: str

    def __str__(self) -> str:
        shape = "x".join(map(str, self.mesh))
        form = "aware" if self.binary == AWARE else "unaware"
        return f"{self.step}-{shape}-{self.granularity}-{self.system}-{form}"


def cases() -> list[Case]:
    """All of them; the congestion-aware simulator takes networks of one dim."""
    return [
        Case(family.step, mesh, granularity, system, binary)
        for family in FAMILIES
        for mesh in family.meshes
        for granularity in family.granularities
        for system in family.systems
        for binary in (UNAWARE, AWARE)
        if binary == UNAWARE or sum(size > 1 for size in mesh) == 1
    ]


@cache
def workload(step: str, mesh: tuple[int, ...]) -> Workload:
    """The step on a mesh."""
    module, _, function = step.partition(":")
    captured: Any = getattr(importlib.import_module(f"flint.models.{module}"), function)
    found = captured.at(mesh).capture()
    assert isinstance(found, Workload)
    return found


def compared(case: Case, folder: Path) -> Comparison:
    """Its traces written into a folder and run by both engines."""
    made = workload(case.step, case.mesh)
    made.save(folder, system=case.system, granularity=case.granularity)
    binary = astra_sim_binary().with_name(case.binary)
    return compare(made, folder=folder, binary=binary, time_limit=300)


def table(lines: Iterable[tuple[Case, Comparison]]) -> str:
    """Per case the step's difference, and how many communications agree."""
    rows = ["| set | ranks | step, difference | communications within 2 % | others: why |"]
    rows.append("|---|---|---|---|---|")
    for case, found in lines:
        near = sum(row.within for row in found.rows)
        why = "; ".join(dict.fromkeys(row.reason for row in found.rows if row.reason))
        step = f"{100 * found.step.relative:+.2f} %"
        total = f"{near} of {len(found.rows)}"
        rows.append(f"| {case} | {found.ranks} | {step} | {total} | {why} |")
    return "\n".join(rows)


def main(write: Callable[[str], object] = sys.stdout.write) -> None:
    """Run all and print the table."""
    done = []
    for case in cases():
        with tempfile.TemporaryDirectory() as scratch:
            found = compared(case, Path(scratch) / "out")
        done.append((case, found))
        sys.stderr.write(
            f"{case} {100 * found.step.relative:+.3f}% "
            f"{sum(row.within for row in found.rows)}/{len(found.rows)} {found.agrees} "
            f"{[(r.name, r.embedded, r.astra_sim) for r in found.unexplained]}\n"
        )
    write(table(done) + "\n")


if __name__ == "__main__":
    main()
