"""The public names and the options of every command: what users' scripts rely on."""

from __future__ import annotations

from pathlib import Path

import typer

import flint
from flint.cli import application

#: One line per option, as revision 07841f7 had them. What is added is added here; nothing leaves.
GOLDEN = Path(__file__).parents[1] / "data" / "command_line.txt"


def test_public_names() -> None:
    assert flint.__all__ == [
        "FlintError", "Mesh", "UsageError", "Workload", "WorkloadGraph", "capture", "convert",
        "convert_traces", "load", "step",
    ]  # fmt: skip


def test_every_command_has_its_options() -> None:
    lines = []
    for name, command in sorted(typer.main.get_command(application()).commands.items()):
        for parameter in command.params:
            words = " ".join(sorted([*parameter.opts, *parameter.secondary_opts]))
            lines.append(f"{name}: {words}" + (" (required)" if parameter.required else ""))
    assert sorted(lines) == sorted(GOLDEN.read_text().splitlines())
