"""``flint convert``: a saved program to a workload folder with execution traces."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Annotated

import typer

from flint.cli.shared import (
    AxesOption,
    BranchOption,
    EntryOption,
    JsonOption,
    KeepBarriersOption,
    LookaheadOption,
    MeshOption,
    NoReduceScatterOption,
    StrictOption,
    TripCountOption,
    convert_file,
    human_bytes,
    print_json,
    print_warnings,
    progress,
)


def convert_command(
    file: Annotated[Path, typer.Argument(help="StableHLO or HLO file, any form, gzip allowed.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="Workload folder to write.")],
    mesh: MeshOption = None,
    axes: AxesOption = None,
    system: Annotated[
        str, typer.Option("--system", help="System that durations are for: a name or a TOML file.")
    ] = "dgx-h100",
    ranks: Annotated[
        str, typer.Option("--ranks", help="Ranks that get a trace: all, 0-7, 0,3,8-11.")
    ] = "all",
    granularity: Annotated[
        str, typer.Option("--granularity", help="op, kernel or region.")
    ] = "kernel",
    trip_count: TripCountOption = None,
    branch: BranchOption = None,
    no_reduce_scatter: NoReduceScatterOption = False,
    keep_barriers: KeepBarriersOption = False,
    strict: StrictOption = False,
    loop_lookahead: LookaheadOption = "0",
    entry: EntryOption = None,
    annotate: Annotated[
        bool, typer.Option("--annotate", help="Put op, layer, source and shapes into every node.")
    ] = False,
    json_output: JsonOption = False,
) -> None:
    """Convert a saved per-device program to Chakra execution traces for every rank."""
    started = time.perf_counter()
    workload = convert_file(
        file,
        mesh,
        axes,
        trip_count,
        branch,
        no_reduce_scatter,
        keep_barriers,
        strict,
        loop_lookahead,
        entry,
    )
    analysed = time.perf_counter()
    with progress("writing traces") as report:
        saved = workload.save(
            output,
            system=system,
            ranks=ranks,
            granularity=granularity,
            annotate=annotate,
            progress=report,
        )
    finished = time.perf_counter()
    print_warnings(workload.warnings)
    document = {
        "folder": str(output),
        "mesh": dict(zip(workload.mesh.axes, workload.mesh.shape, strict=True)),
        "ranks": saved.ranks,
        "partial": saved.partial,
        "programs": [program.name for program in workload.programs],
        "granularity": saved.granularity,
        "system": saved.system,
        "order": str(workload.order),
        "warnings": workload.warnings,
        "et": saved.manifest,
        "seconds": {"graph": analysed - started, "write": finished - analysed},
    }
    if json_output:
        print_json(document)
        return
    manifest = saved.manifest
    nodes = sorted({sum(structure["nodes"].values()) for structure in manifest["structures"]})
    count = f"{nodes[0]:,}" if len(nodes) == 1 else f"{nodes[0]:,} to {nodes[-1]:,}"
    sys.stdout.write(
        f"{output}: {saved.ranks:,} traces of {count} nodes, "
        f"{human_bytes(manifest['bytes'])} ({manifest['distinct_files']:,} distinct files)\n"
        f"  mesh {workload.mesh}, {len(workload.programs)} program(s), "
        f"{saved.granularity} granularity, order {workload.order}, durations for {saved.system}\n"
        f"  graph {analysed - started:.2f} s, writing {finished - analysed:.2f} s\n"
    )
    if saved.partial:
        sys.stdout.write("  partial: not every rank has a trace, so a simulator cannot run it\n")


def register(app: typer.Typer) -> None:
    """Add the command to the app."""
    app.command("convert")(convert_command)
