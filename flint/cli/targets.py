"""``flint targets``: what can be compiled for here, and what to install for the rest."""

from __future__ import annotations

import sys

from flint.capturing.targets import Target, targets
from flint.cli.options import JsonOption
from flint.cli.shared import print_json
from flint.cli.tables import Printer, Table
from flint.host.readable import human_bytes


def targets_command(json_output: JsonOption = False) -> None:
    """List the devices that the compilers can compile for, and what is missing here."""
    found = targets()
    if json_output:
        print_json({"targets": [target.to_json() for target in found]})
        return
    printer = Printer(sys.stdout)
    printer.table(Table("targets (--level optimized --target NAME)", _COLUMNS, _rows(found)))
    for missing in dict.fromkeys(target.missing for target in found if target.missing):
        names = ", ".join(target.name for target in found if target.missing == missing)
        printer.line("")
        printer.line(f"{names}: {missing}")


_COLUMNS = ("target", "device", "?>memory", "?>devices at most", "?system", "here")


def _rows(found: tuple[Target, ...]) -> list[tuple[str, ...]]:
    return [
        (
            target.name,
            target.device,
            human_bytes(target.memory),
            "any number" if target.largest is None else f"{target.largest:,}",
            target.system,
            "no" if target.missing else "yes",
        )
        for target in found
    ]
