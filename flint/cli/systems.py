"""``flint systems``: the clusters that Flint knows, each figure with its source."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import Annotated, Any

import typer

from flint.cli.options import JsonOption
from flint.cli.shared import print_json
from flint.cli.tables import Printer, Table
from flint.cost.accelerators import accelerator_names
from flint.cost.description import Stated
from flint.cost.hardware import System
from flint.cost.systems import load_system, system_names, whole_description
from flint.errors import UsageError


def systems_command(
    name: Annotated[
        str | None,
        typer.Argument(help="A name or a TOML file: every figure with its source [default: list]."),
    ] = None,
    toml: Annotated[
        bool,
        typer.Option("--toml", help="Print one system as a TOML file that you can edit."),
    ] = False,
    json_output: JsonOption = False,
) -> None:
    """List the known clusters, or one with all figures and their sources."""
    if toml:
        if name is None or json_output:
            raise UsageError(
                "--toml needs the name of one system: flint systems NAME --toml, without --json"
            )
        load_system(name)
        sys.stdout.write(whole_description(name))
        return
    systems = [load_system(item) for item in ((name,) if name else system_names())]
    if json_output:
        print_json([_document(system) for system in systems])
        return
    printer = Printer(sys.stdout)
    printer.table(Table("systems", _COLUMNS, [_row(system) for system in systems]))
    if name is None:
        printer.line("")
        printer.line(f"accelerators (--device, --accelerator): {', '.join(accelerator_names())}")
        printer.line(
            "flint systems NAME shows every figure with its source; with --toml, as a file"
        )
        return
    for title, stated in _figures(systems[0]):
        rows = [(item.entry, item.figure, item.source or "stated") for item in stated]
        printer.table(Table(title, ("entry", "figure", "source"), rows))


_COLUMNS = (
    "name", "accelerator", ">bf16 TFLOP/s", ">memory GB", ">memory TB/s",
    "?network, innermost first",
)  # fmt: skip


def _row(system: System) -> tuple[str, ...]:
    accelerator = system.accelerator
    tiers = ", ".join(
        f"{tier.name} {tier.bandwidth / 1e9:g} GB/s"
        + (f" (per link, {tier.rings}D)" if tier.topology == "Ring" else "")
        + (f" to {tier.size:,}" if tier.size else "")
        for tier in system.network
    )
    matmul = accelerator.matmul.get("bf16", accelerator.matmul["f32"])
    return (
        system.name,
        accelerator.name,
        f"{matmul / 1e12:,.0f}",
        f"{accelerator.memory_bytes / 1e9:.0f}",
        f"{accelerator.memory_bandwidth / 1e12:.2f}",
        tiers,
    )


def _figures(system: System) -> list[tuple[str, tuple[Stated, ...]]]:
    return [
        (f"{system.accelerator.name}", system.accelerator.stated),
        ("network", system.stated),
    ]


def _document(system: System) -> dict[str, Any]:
    document = asdict(system)
    document["accelerator"].pop("stated")
    document.pop("stated")
    document["figures"] = [item._asdict() for _, stated in _figures(system) for item in stated]
    return document
