"""What ``flint simulate --engine both`` shows: both engines' times and their differences."""

from __future__ import annotations

import sys
from typing import Any

from flint.cli.shared import print_json
from flint.cli.tables import Printer, Table
from flint.host.readable import human_bytes, human_seconds

#: Rows beyond these are counted.
_SHOWN = 40


def show_comparison(compared: Any, json_output: bool) -> None:
    """Print a comparison (see ``flint.converters.chakra.astra_sim.comparison``)."""
    document = compared.to_json()
    if json_output:
        print_json(document)
        return
    printer = Printer(sys.stdout)
    tolerance = f"{100 * document['tolerance']:g}%"
    printer.line(
        f"one step on {compared.ranks:,} ranks of {compared.system} ({compared.granularity} "
        f"granularity), by the embedded engine and {compared.binary}"
    )
    for note in compared.notes:
        printer.line(f"note: {note}")
    printer.line("")
    rows = [("step", "", "", *_times(compared.step))]
    rows += [
        (row.name, f"{row.count:,}", human_bytes(row.size), *_times(row))
        for row in compared.rows[:_SHOWN]
    ]
    columns = (
        "what", "?>count", "?>bytes", ">embedded", ">ASTRA-sim", ">difference", "reason",
    )  # fmt: skip
    title = f"times; they agree within {tolerance}"
    printer.table(Table(title, columns, rows, max(0, len(compared.rows) - _SHOWN)))
    wrong = compared.unexplained
    if wrong:
        names = ", ".join(dict.fromkeys(row.name for row in wrong))
        printer.line(f"differences above {tolerance} without a reason: {names}")


def _times(row: Any) -> tuple[str, str, str, str]:
    return (
        human_seconds(row.embedded),
        human_seconds(row.astra_sim),
        f"{100 * row.relative:+.2f}%",
        row.reason,
    )
