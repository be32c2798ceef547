"""``flint calibrate``: an accelerator's curves from kernels that were timed on it."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from flint.calibration.fitting import calibrate
from flint.calibration.kernels import MeasuredKernel, read_kernels
from flint.calibration.profiles import kernels_of
from flint.calibration.writing import COLUMNS, described, page, row
from flint.cli.options import JsonOption, ReaderMemoryOption
from flint.cli.parsing import a_file, existing
from flint.cli.pipes import reader_bytes
from flint.cli.shared import print_json
from flint.cli.tables import Printer, Table
from flint.cost.accelerators import accelerator_file, load_accelerator
from flint.cost.description import read_text
from flint.errors import UsageError
from flint.host.writing import replacing
from flint.post_execution.converting import convert_traces
from flint.workload.folder import DOCUMENT
from flint.workload.loading import load


def calibrate_command(
    kernels: Annotated[
        Path,
        typer.Argument(
            metavar="CSV|PROFILE",
            help="Measured kernels: a CSV file with op,shapes,type,seconds, as flint microbench "
            "writes it; or a profile with shapes, or the folder that it was converted to.",
            callback=existing,
        ),
    ],
    accelerator: Annotated[
        str,
        typer.Option(
            "--accelerator",
            help="The device that ran the kernels: a name (flint systems) or a TOML file; it "
            "supplies peaks, tiles and everything that is not measured.",
        ),
    ],
    output: Annotated[
        Path,
        typer.Option(
            "-o", "--output", help="The description to write: a TOML file.", callback=a_file
        ),
    ],
    html: Annotated[
        Path | None,
        typer.Option("--html", help="Write every residual as an HTML page.", callback=a_file),
    ] = None,
    memory_limit: ReaderMemoryOption = None,
    json_output: JsonOption = False,
) -> None:
    """Fit curves to half of the measured kernels; report the errors on the other half."""
    if output.suffix != ".toml":
        raise UsageError(
            f"-o {output}: the description is a TOML file; give a name that ends in .toml"
        )
    base = load_accelerator(accelerator)
    text = read_text(accelerator_file(accelerator))
    measured, left = _read(kernels, reader_bytes(memory_limit))
    found = calibrate(measured, base)
    with replacing(output) as partial:
        partial.write_text(described(text, found, kernels.name), encoding="utf-8")
    if html is not None:
        with replacing(html) as partial:
            partial.write_text(page(found, base.name, kernels.name), encoding="utf-8")
    if json_output:
        print_json(
            {
                "accelerator": base.name,
                "curves": [
                    {
                        **asdict(group.curve), "fit": asdict(group.fit),
                        "held_out": asdict(group.held_out), "before": asdict(group.before),
                    }
                    for group in found.groups
                ],
                "left_out": [
                    {"class": kind, "type": dtype, "kernels": count}
                    for kind, dtype, count in found.left_out
                ],
            }
        )  # fmt: skip
        return
    printer = Printer(sys.stdout)
    if left:
        printer.line(
            f"note: {left:,} kernels of the profile are left out: only products with shapes count"
        )
    rows = [row(group) for group in found.groups]
    printer.table(Table(f"curves of {base.name}: errors on the held-out kernels", COLUMNS, rows))
    for kind, dtype, count in found.left_out:
        printer.line(f"note: {count} kernels of {kind} in {dtype} are too few for a curve")
    for file in (output, html):
        if file is not None:
            sys.stderr.write(f"flint: wrote {file}\n")


def _read(path: Path, memory_limit: int) -> tuple[list[MeasuredKernel], int]:
    """The kernels of a file, and how many kernels of a profile lack shapes."""
    if path.suffix == ".csv":
        return read_kernels(path), 0
    saved = path.is_dir() and (path / DOCUMENT).is_file()
    return kernels_of(load(path) if saved else convert_traces([path], memory_limit=memory_limit))
