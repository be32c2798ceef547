"""``flint validate``: does a real run have the captured ops, one by one?"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from flint.cli.options import FolderArgument, JsonOption, ReaderMemoryOption
from flint.cli.parsing import a_file
from flint.cli.pipes import reader_bytes
from flint.cli.shared import loaded, print_json
from flint.cli.tables import Printer, Table
from flint.host.writing import replacing


def validate_command(
    folder: FolderArgument,
    trace: Annotated[
        list[Path],
        typer.Option(
            "--trace",
            help="Kineto or PyTorch execution trace JSON (.gz allowed), JAX profile folder, or "
            "Chakra .et; one per rank (repeatable), or a folder with a file per rank.",
        ),
    ],
    step: Annotated[
        str | None,
        typer.Option(
            "--step",
            help="Step of the trace, for example ProfilerStep#4 or 4; mean for the mean times of "
            "all equal steps [default: the last of the equal steps].",
        ),
    ] = None,
    system: Annotated[
        str | None,
        typer.Option(
            "--system",
            help="System to model times for, shown next to the measured ones: a name (flint "
            "systems) or "
            "a TOML file.",
        ),
    ] = None,
    html: Annotated[
        Path | None,
        typer.Option("--html", help="Write the report as an HTML page.", callback=a_file),
    ] = None,
    top: Annotated[int, typer.Option("--top", min=0, help="Number of differences to show.")] = 10,
    strict: Annotated[
        bool,
        typer.Option(
            "--strict",
            help="Also exit with status 1 if the traces do not record a fact about a captured op "
            "(group, reduce op, element type, sizes).",
        ),
    ] = False,
    memory_limit: ReaderMemoryOption = None,
    json_output: JsonOption = False,
) -> int:
    """Compare a capture with traces of a real run; exit status 1 if they differ."""
    from flint.validation.report.page import page
    from flint.validation.validating import validate

    limit = reader_bytes(memory_limit)
    report = validate(loaded(folder), trace, step=step, system=system, memory_limit=limit)
    if html is not None:
        with replacing(html) as partial:
            partial.write_text(page(report), encoding="utf-8")
    if json_output:
        print_json(report.to_json())
    else:
        _show(report, top)
    return 0 if report.ok and not (strict and report.unrecorded) else 1


def _show(report: object, top: int) -> None:
    from flint.validation.report.page import (
        CLASS_COLUMNS,
        class_rows,
        ratio_note,
        time_columns,
        time_rows,
        time_title,
    )
    from flint.validation.report.report import Report

    assert isinstance(report, Report)
    printer = Printer(sys.stdout)
    printer.table(Table("classes", CLASS_COLUMNS, class_rows(report)))
    if times := time_rows(report):
        printer.table(Table(time_title(report), time_columns(report), times))
        if report.times.system:
            printer.line(ratio_note(report))
    if report.unrecorded:
        facts = [(fact, f"{count:,}") for fact, count in report.unrecorded.items()]
        printer.table(Table("not recorded in the traces", ("fact", ">captured ops"), facts))
    if report.explained:
        rows = [(reason, f"{count:,}") for reason, count in sorted(report.explained.items())]
        printer.table(Table("explained differences", ("reason", ">pairs"), rows))
    first = sorted(report.differences, key=lambda item: not item.counts)[:top]
    if first:
        rows_of = [(d.what, str(d.kind), str(d.rank), d.op, d.where) for d in first]
        total = report.failures + report.others
        printer.table(
            Table(
                "differences", ("what", "class", ">rank", "op", "?where"), rows_of,
                hidden=total - len(first),
            )
        )  # fmt: skip
    printer.line("")
    printer.line(
        f"{report.edges:,} dependencies checked against the order of the run, "
        f"{report.contradicted:,} reversed"
    )
    for text in report.contradictions[:top]:
        printer.line(f"  {text}")
    for text in report.not_compared:
        printer.line(f"not compared: {text}")
    for text, count in report.notes.items():
        printer.line(f"note: {text}" + (f" ({count:,})" if count > 1 else ""))
    printer.line(report.verdict)
