"""How a whole program is started, and which step of it is captured, as one object for all commands.

@with_options
def run_command(program: list[str], *, launch: LaunchOptions) -> None:
    words_of(launch)                       # ("--gpus-per-node", "4", "--fake-data")
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchOptions:
    """The hosts and devices that a program sees, what it may do, and its step."""

    gpus_per_node: Annotated[
        int | None,
        typer.Option(
            "--gpus-per-node",
            min=1,
            help="Devices per host [default: the launcher's, else as in machines with that "
            "device: 8 or 4].",
        ),
    ] = None
    hosts: Annotated[
        int | None,
        typer.Option("--hosts", min=1, help="Number of hosts, instead of --gpus-per-node."),
    ] = None
    slices: Annotated[
        int, typer.Option("--slices", min=1, help="Number of slices of the devices (TPUs).")
    ] = 1
    device: Annotated[
        str | None,
        typer.Option(
            "--device",
            help="Device that the program sees, for example h100 or tpu-v5p [default: h100].",
        ),
    ] = None
    step: Annotated[
        str | None,
        typer.Option(
            "--step",
            help="Step to capture: its NAME, its NUMBER (1 for the first time it runs), "
            "NAME:NUMBER; NAME:loop for an iteration of its loop, NAME:call for a function's call "
            "without those around it (JAX); of several with one name, NAME@FILE:LINE "
            "[default: the second run of the first step that repeats].",
        ),
    ] = None
    command: Annotated[
        int | None,
        typer.Option(
            "--command",
            min=1,
            help="Which of the Python programs that a shell script starts, counted from 1 "
            "[default: the only one, or the only one that a launcher starts].",
        ),
    ] = None
    fake_data: Annotated[
        bool,
        typer.Option(
            "--fake-data",
            help="Make up missing data: data sets, token files, tokenizers, checkpoints; a "
            "warning names what was made up, with the program's line.",
        ),
    ] = False
    mask_share: Annotated[
        list[str] | None,
        typer.Option(
            "--mask-share",
            help="Share of the elements that a mask chooses if its values are not known, from 0 "
            "to 1 (PyTorch): SHARE, or FILE:LINE=SHARE as the warning names it (repeatable) "
            "[default: 1, an upper bound].",
        ),
    ] = None
    value: Annotated[
        list[str] | None,
        typer.Option(
            "--value",
            help="Number that a line reads from a tensor or array on the device, where its value "
            "is not known: FILE:LINE=NUMBER as the error or warning names it (repeatable).",
        ),
    ] = None
    allow: Annotated[
        list[str] | None,
        typer.Option(
            "--allow",
            help="Real actions that the program may take: network, or checkpoints (PyTorch "
            "programs write only the parts without device tensors); repeatable.",
        ),
    ] = None
