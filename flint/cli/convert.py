"""``flint convert``: a saved program to a workload folder with execution traces."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from flint.cli.saving import (
    AnnotateOption,
    GranularityOption,
    RanksOption,
    SystemOption,
    save_and_report,
)
from flint.cli.shared import (
    AxesOption,
    BranchOption,
    EntryOption,
    FuseOption,
    JsonOption,
    KeepBarriersOption,
    LookaheadOption,
    MeshOption,
    NoReduceScatterOption,
    StrictOption,
    TripCountOption,
    convert_file,
)


def convert_command(
    file: Annotated[Path, typer.Argument(help="StableHLO or HLO file, any form, gzip allowed.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="Workload folder to write.")],
    mesh: MeshOption = None,
    axes: AxesOption = None,
    system: SystemOption = "dgx-h100",
    ranks: RanksOption = "all",
    granularity: GranularityOption = "kernel",
    trip_count: TripCountOption = None,
    branch: BranchOption = None,
    no_reduce_scatter: NoReduceScatterOption = False,
    keep_barriers: KeepBarriersOption = False,
    strict: StrictOption = False,
    loop_lookahead: LookaheadOption = "0",
    fuse: FuseOption = False,
    entry: EntryOption = None,
    annotate: AnnotateOption = False,
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
        fuse,
        entry,
    )
    save_and_report(
        workload, output, time.perf_counter() - started, system=system, ranks=ranks,
        granularity=granularity, annotate=annotate, json_output=json_output,
    )  # fmt: skip


def register(app: typer.Typer) -> None:
    """Add the command to the app."""
    app.command("convert")(convert_command)
