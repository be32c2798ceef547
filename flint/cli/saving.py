"""How commands write a workload folder and report what they wrote."""

from __future__ import annotations

import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from flint.cli.option_groups import TraceOptions
from flint.cli.parsing import simplified
from flint.cli.shared import print_json, print_warnings, progress
from flint.cost.hardware import System
from flint.host.readable import counted, human_bytes
from flint.workload.workload import Workload

#: Traces of at least this many bytes are announced.
_MUCH = 1 << 30


def announce(size: int, traces: int) -> None:
    """Announce on stderr how much will be written, if it is much."""
    if size >= _MUCH:
        sys.stderr.write(f"flint: writing {traces:,} traces, {human_bytes(size)}\n")


def expect(forecast: Any) -> None:
    """Print on stderr what ASTRA-sim will need for traces that take it long."""
    if forecast.much:
        minutes = forecast.seconds / 60
        sys.stderr.write(
            f"flint: ASTRA-sim will need about {minutes:,.0f} minutes and "
            f"{human_bytes(forecast.bytes)} of memory for these traces; --reduce-ranks writes "
            "fewer\n"
        )


def save_and_report(
    workload: Workload,
    output: Path,
    seconds: float,
    *,
    system: str | System,
    traces: TraceOptions,
    json_output: bool,
) -> None:
    """Save a workload and print what was written; ``seconds`` is the time that its graph took."""
    started = time.perf_counter()
    chosen = asdict(traces)
    on = simplified(system, chosen.pop("without"))
    with progress("writing traces") as report:
        saved = workload.save(
            output,
            system=on,
            **chosen,
            announce=announce,
            expect=expect,
            progress=report,
        )
    writing = time.perf_counter() - started
    print_warnings(workload.warnings)
    document = {
        "folder": str(output),
        "mesh": dict(zip(workload.mesh.axes, workload.mesh.shape, strict=True)),
        "ranks": saved.ranks,
        "partial": saved.partial,
        "programs": [program.name for program in workload.programs],
        "granularity": saved.granularity,
        "system": saved.system,
        "without": list(saved.without),
        "order": str(workload.order),
        "warnings": workload.warnings,
        "et": saved.manifest,
        "seconds": {"graph": seconds, "write": writing},
    }
    if json_output:
        print_json(document)
        return
    manifest = saved.manifest
    nodes = sorted({sum(structure["nodes"].values()) for structure in manifest["structures"]})
    last = counted(nodes[-1], "node")
    count = last if len(nodes) == 1 else f"{nodes[0]:,} to {last}"
    measured = workload.options.get("measured")
    parts = f" without {', '.join(saved.without)}" if saved.without else ""
    durations = "durations as measured" if measured else f"durations for {saved.system}{parts}"
    if measured and workload.options.get("scale_out"):
        durations += f", for resized collectives on {saved.system}{parts}"
    chained = "" if traces.communication_order == "rank" else f", {manifest['order']}"
    files = counted(manifest["distinct_files"], "distinct file")
    sys.stdout.write(
        f"{output}: {counted(saved.ranks, 'trace')} of {count}, "
        f"{human_bytes(manifest['bytes'])} ({files})\n"
        f"  mesh {workload.mesh}, {counted(len(workload.programs), 'program')}, "
        f"{saved.granularity} granularity, order {workload.order}{chained}, {durations}\n"
        f"  graph {seconds:.2f} s, writing {writing:.2f} s\n"
    )
    if manifest["reduced"]:
        sys.stdout.write(f"  reduced: {manifest['reduced']['meaning']}\n")
    if saved.partial:
        sys.stdout.write("  partial: not every rank has a trace, so a simulator cannot run it\n")
