"""``flint explain``: where a step's time goes, why, and what would help."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flint import registry
from flint.cli.options import GranularityOption, JsonOption, ProfileStepOption, ReaderMemoryOption
from flint.cli.parsing import a_file, existing
from flint.cli.pipes import reader_bytes
from flint.cli.refusals import refuse_of_profiles
from flint.cli.shared import loaded, print_json, print_warnings
from flint.cli.tables import Printer, Table
from flint.errors import UsageError
from flint.host.writing import replacing

if TYPE_CHECKING:
    from flint.cost.hardware import System
    from flint.explaining.explaining import Explanation
    from flint.observed.device_events import DeviceEvents
    from flint.workload.workload import Workload


def explain_command(
    sources: Annotated[
        list[Path],
        typer.Argument(
            metavar="FOLDER|TRACE...",
            help="Workload folder; or a profile: Kineto traces, one per rank, or a folder of "
            "them, compressed or not, or a JAX profile folder.",
        ),
    ],
    system: Annotated[
        str | None,
        typer.Option(
            "--system",
            help="The cluster: a name (flint systems) or a TOML file [default: that of the "
            "folder's traces or of the profile's devices, else dgx-h100].",
        ),
    ] = None,
    granularity: GranularityOption = "kernel",
    communication: Annotated[
        str | None,
        typer.Option(
            "--communication",
            help="For a profile: measured or modelled [default: measured].",
        ),
    ] = None,
    host: Annotated[
        str | None,
        typer.Option(
            "--host", help="For a profile: measured, modelled or none [default: measured]."
        ),
    ] = None,
    step: ProfileStepOption = None,
    other: Annotated[
        list[Path] | None,
        typer.Option(
            "--other",
            help="Workload folder of the same step on another mesh, to see its gain (repeatable).",
        ),
    ] = None,
    top: Annotated[int, typer.Option("--top", min=1, help="Number of rows to show.")] = 10,
    html: Annotated[
        Path | None,
        typer.Option(
            "--html", help="Write the explanation as one self-contained HTML page.", callback=a_file
        ),
    ] = None,
    memory_limit: ReaderMemoryOption = None,
    json_output: JsonOption = False,
) -> None:
    """Explain a step: critical path, causes, what would help, and device time."""
    from flint.explaining.explaining import explain
    from flint.observed.sources import openable

    with openable([existing(source) for source in sources]) as read:
        workload, on, events = _taken(read.paths, system, step, reader_bytes(memory_limit))
        traces = [replace(item, path=read.named(item.path)) for item in events]
    refuse_of_profiles(workload, communication, host)
    explanation = explain(
        workload, on, traces=traces,
        others={str(folder): loaded(existing(folder)) for folder in other or ()},
        granularity=granularity, communication=communication, host=host,
    )  # fmt: skip
    if html is not None:
        from flint.explaining.page import page_of

        with replacing(html) as partial:
            partial.write_text(page_of(explanation), encoding="utf-8")
    if json_output:
        print_json(explanation.to_json())
        return
    print_warnings(workload.warnings)
    _show(explanation, top)
    if html is not None:
        sys.stderr.write(f"flint: wrote {html}\n")


def _taken(
    sources: list[Path], system: str | None, step: str | None, memory_limit: int
) -> tuple[Workload, System | str | None, list[DeviceEvents]]:
    """What is to be explained: a workload, its system, and the profiles that it was made from.

    Raises:
        UsageError: neither a workload folder nor a profile.
    """
    from flint.host.reading_memory import allowed, bounded
    from flint.observed.folders import ENDINGS, PROFILES, expanded, files_by_depth
    from flint.observed.reading import form_of, head_of, is_jax_profile, is_trace
    from flint.workload.folder import is_workload_folder, traced_system

    folders = [source for source in sources if is_workload_folder(source)]
    if folders and (len(sources) > 1 or step is not None):
        what = "--step is for profiles" if step is not None else "give no other input with it"
        raise UsageError(f"{folders[0]} is a workload folder: {what}")
    if folders:
        return loaded(folders[0]), system or traced_system(folders[0]), []
    for source in sources:
        if not is_trace(source):
            kind = registry.frontend("kind of saved")(head_of(source))
            raise UsageError(f"{source}: neither a workload folder nor a profile: it is {kind}")
        plain = source.is_dir() and not is_jax_profile(source)
        if plain and not any(files_by_depth(source, ENDINGS)):
            raise UsageError(
                f"{source}: neither a workload folder (it has no workload.json) nor a folder of "
                f"profiles (it has no {', '.join(PROFILES)} files, nor .xplane.pb as JAX writes)"
            )
    from flint.post_execution.converting import convert_traces

    workload = convert_traces(sources, step=step, memory_limit=memory_limit)
    if any(map(is_jax_profile, sources)):
        return workload, system, []
    read: Any = registry.converter("kineto-device-events")
    files = [file for file in expanded(sources) if form_of(file) == "kineto-ops"]
    events = []
    for file in files:
        with allowed(memory_limit), bounded(file):
            events.append(read(file))
    return workload, system, events


def _show(explanation: Explanation, top: int) -> None:
    from flint.explaining.rows import headline, tables

    printer = Printer(sys.stdout)
    printer.line(headline(explanation))
    for note in explanation.notes:
        printer.line(f"note: {note}")
    for rows in tables(explanation, top):
        printer.table(Table(rows.title, rows.columns, rows.rows, rows.hidden))
        if rows.note:
            printer.line(f"  {rows.note}")
