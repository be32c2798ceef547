"""What XLA's GPU compiler makes of the programs, written to ``h100.json``: kernels and bytes, and
of whole models kernels that move 1 MiB or more.

python -m tests.passes.xla.kernels.record          # needs the extra `gpu`; ten minutes
python -m tests.passes.xla.kernels.record table    # the tables of docs/kernels.md
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import flint
from flint.graph.graph import NodeKind, WorkloadGraph
from flint.graph.work import Role
from flint.passes import apply
from flint.passes.grouped_as_dense import as_dense
from flint.workload.workload import Workload
from tests.passes.xla.kernels.further import FURTHER
from tests.passes.xla.kernels.latest import LATEST
from tests.passes.xla.kernels.newest import NEWEST
from tests.passes.xla.kernels.programs import MODELS, PROGRAMS
from tests.passes.xla.kernels.recent import RECENT
from tests.passes.xla.kernels.small_losses import SMALL
from tests.passes.xla.kernels.unguided import UNGUIDED
from tests.passes.xla.kernels.unmet import UNMET
from tests.passes.xla.kernels.unseen import UNSEEN
from tests.passes.xla.kernels.untaught import UNTAUGHT
from tests.passes.xla.kernels.untouched import UNTOUCHED
from tests.passes.xla.kernels.untried import UNTRIED

ALL = (
    PROGRAMS | UNSEEN | FURTHER | LATEST | NEWEST | RECENT | UNTRIED | UNMET | UNTOUCHED | UNGUIDED
    | UNTAUGHT | SMALL
)  # fmt: skip
GOLDEN = Path(__file__).with_name("h100.json")


def captured(name: str, **level: str) -> Workload:
    """A program for one device, or a model."""
    if name in MODELS:
        step: Workload = MODELS[name].capture(**level)
        return step
    function, arguments = ALL[name]
    return flint.capture(mesh=(1,), axes=("device",))(function).capture(*arguments, **level)


def figures(graph: WorkloadGraph, least: int = 1) -> tuple[int, int]:
    """Kernels that move some bytes at least, and bytes that they read and write; loops unrolled."""
    kernels = moved = 0
    for block, times in graph.walk():
        traffic = block.bytes_read + block.bytes_written
        chosen = (traffic >= least) & (block.kind == NodeKind.COMPUTE) & (block.role != Role.ALIAS)
        kernels += times * int(np.count_nonzero(chosen))
        moved += times * int(traffic[chosen].sum())
    return kernels, moved


def main() -> None:
    """Compile what has no figures yet and write the file, or print the tables."""
    found: dict[str, object] = json.loads(GOLDEN.read_text()) if GOLDEN.exists() else {}
    if "table" in sys.argv:
        print("\n".join(table(found)))
        return
    for name in (*ALL, *MODELS):
        if name not in found:
            workload = captured(name, level="optimized", target="h100")
            assert workload.compiled is not None
            found["compiler"] = workload.compiled.compiler
            graph = workload.graph
            large = (figures(graph, 1 << 20)[0],) if name in MODELS else ()
            found[name] = (*figures(graph), *large)
            GOLDEN.write_text(json.dumps(found, indent=1) + "\n")


def table(found: dict[str, Any]) -> Iterator[str]:
    """Rows of ``docs/kernels.md``: XLA, by rules, and the difference."""

    def three(made: int, rules: int, unit: float = 1) -> str:
        words = (f"{n / unit:.1f}" if unit > 1 else str(n) for n in (made, rules))
        return " | ".join((*words, f"{rules / made - 1:+.{1 if unit > 1 else 0}%}"))

    for name in (*ALL, *MODELS):
        kernels, moved, *third = found[name]
        graph = as_dense(captured(name).graph)
        rules = apply(graph, "xla")
        mine, bytes_ = figures(rules)
        end = f"{figures(apply(graph, 'kernel'))[1] / moved - 1:+.0%} |"
        if name in MODELS:
            large = three(third[0], figures(rules, 1 << 20)[0])
            rest = f"{large} | {three(moved, bytes_, 1e9)} | {end}"
        else:
            rest = f"{three(moved, bytes_, 1e6)} | {end}"
        yield f"| {name} | {three(kernels, mine)} | {rest}"


if __name__ == "__main__":
    main()
