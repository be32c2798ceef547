"""``flint run``: a whole training program, started as usual, to a workload folder."""

from __future__ import annotations

import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from flint.capturing import targets
from flint.capturing.request import MEMORY_LIMIT, TIME_LIMIT, capture_options
from flint.cli.option_groups import TraceOptions, with_options
from flint.cli.options import (
    AuditOption,
    DeviceSystemOption,
    JsonOption,
    MemoryLimitOption,
    TargetOption,
    TimeLimitOption,
)
from flint.cli.parsing import DEFAULT_SYSTEM, level_and_target, replaceable, system_of
from flint.cli.program_options import ProgramOptions
from flint.cli.refusals import refuse
from flint.cli.saving import save_and_report
from flint.cli.shared import print_json, results_only_on_stdout, stages_shown
from flint.cli.tables import Printer, Table
from flint.errors import UsageError
from flint.launching.capturing import capture, steps
from flint.launching.commands.shell_scripts import Given, program_of
from flint.launching.program import ALLOWED, ProgramRequest, SeenStep, cluster_of, step_choice
from flint.launching.shares import shares_of
from flint.workload.programs import Level


@with_options
def run_command(
    program: Annotated[
        list[str],
        typer.Argument(
            metavar="-- PROGRAM...",
            help="The program's usual command: torchrun train.py --lr=3e-4, python -m pkg.train, "
            "srun -N 4 python train.py, bash train.sh.",
        ),
    ],
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="Workload folder to write.", callback=replaceable),
    ] = None,
    *,
    world: Annotated[
        int | None,
        typer.Option("--world", min=1, help="Devices, one per rank [default: the launcher's]."),
    ] = None,
    gpus_per_node: Annotated[
        int | None,
        typer.Option(
            "--gpus-per-node",
            min=1,
            help="Devices per host [default: the launcher's, else as in machines with that "
            "device: 8 or 4].",
        ),
    ] = None,
    hosts: Annotated[
        int | None,
        typer.Option("--hosts", min=1, help="Number of hosts, instead of --gpus-per-node."),
    ] = None,
    slices: Annotated[
        int, typer.Option("--slices", min=1, help="Number of slices of the devices (TPUs).")
    ] = 1,
    device: Annotated[
        str | None,
        typer.Option(
            "--device",
            help="Device that the program sees, for example h100 or tpu-v5p [default: h100].",
        ),
    ] = None,
    list_steps: Annotated[
        bool, typer.Option("--list-steps", help="List the steps that the program repeats.")
    ] = False,
    step: Annotated[
        str | None,
        typer.Option(
            "--step",
            help="Step to capture: its NAME, its NUMBER (1 for the first time it runs), "
            "NAME:NUMBER; NAME:loop for an iteration of its loop, NAME:call for a function's call "
            "without those around it (JAX); of several with one name, NAME@FILE:LINE "
            "[default: the second run of the first step that repeats].",
        ),
    ] = None,
    command: Annotated[
        int | None,
        typer.Option(
            "--command",
            min=1,
            help="Which of the Python programs that a shell script starts, counted from 1 "
            "[default: the only one, or the only one that a launcher starts].",
        ),
    ] = None,
    fake_data: Annotated[
        bool,
        typer.Option(
            "--fake-data",
            help="Make up missing data: data sets, token files, tokenizers, checkpoints; a "
            "warning names what was made up, with the program's line.",
        ),
    ] = False,
    mask_share: Annotated[
        list[str] | None,
        typer.Option(
            "--mask-share",
            help="Share of the elements that a mask chooses if its values are not known, from 0 "
            "to 1 (PyTorch): SHARE, or FILE:LINE=SHARE as the warning names it (repeatable) "
            "[default: 1, an upper bound].",
        ),
    ] = None,
    allow: Annotated[
        list[str] | None,
        typer.Option(
            "--allow",
            help="Real actions that the program may take: network, or checkpoints (PyTorch "
            "programs write only the parts without device tensors); repeatable.",
        ),
    ] = None,
    level: Annotated[
        str,
        typer.Option(
            "--level",
            help="partitioned, optimized (with --target; for a PyTorch program, the parts that "
            "it compiles itself), or auto (optimized if the compiler for the system's "
            "device is installed, else partitioned).",
        ),
    ] = Level.PARTITIONED,
    target: TargetOption = None,
    system: DeviceSystemOption = None,
    traces: TraceOptions,
    options: ProgramOptions,
    time_limit: TimeLimitOption = TIME_LIMIT,
    memory_limit: MemoryLimitOption = MEMORY_LIMIT / 2**30,
    audit: AuditOption = None,
    json_output: JsonOption = False,
) -> None:
    """Run a training program on a simulated cluster, and capture its step."""
    started = time.perf_counter()
    if output is None and not list_steps:
        raise UsageError("no output: give -o FOLDER, or --list-steps to list the steps")
    if list_steps:
        refuse({"-o": output, "--step": step}, "for a capture; --list-steps only lists the steps")
    unknown = sorted(set(allow or ()) - set(ALLOWED))
    if unknown:
        raise UsageError(f"--allow {unknown[0]}: expected one of {', '.join(ALLOWED)}")
    given = Given(
        world=world, per_node=gpus_per_node, hosts=hosts, device=_named(device), number=command,
        has_network="network" in (allow or ()), time_limit=time_limit,
        memory_limit=int(memory_limit * 2**30),
    )  # fmt: skip
    with stages_shown():
        parsed = program_of(program, given)
    cluster = cluster_of(
        parsed, world=world, per_node=gpus_per_node, hosts=hosts, device=given.device,
        slices=slices,
    )  # fmt: skip
    system = system or (system_of(target) if target else _system_of(cluster.device))
    request = ProgramRequest(
        program=parsed,
        cluster=cluster,
        target=_target(level, target, system),
        automatic=level == targets.AUTO,
        step=step_choice(step),
        lists_steps=list_steps,
        allow=frozenset(allow or ()),
        fake_data=fake_data,
        mask_shares=shares_of(mask_share or ()),
        options=capture_options(
            options.decisions()
            | {
                "time_limit": time_limit,
                "memory_limit": int(memory_limit * 2**30),
                "audit": audit,
            }
        ),
    )  # fmt: skip
    if list_steps:
        with results_only_on_stdout(), stages_shown():
            found = steps(request)
        _show(found, json_output)
        return
    assert output is not None
    with results_only_on_stdout(), stages_shown():
        workload = capture(request)
    save_and_report(
        workload, output, time.perf_counter() - started,
        system=system, traces=traces, json_output=json_output,
    )  # fmt: skip


def _target(level: str, target: str | None, system: str) -> str | None:
    """The target that a program's step is compiled for; None for the partitioned level.

    Raises:
        UsageError: no such level, a level without its target, or no such target.
    """
    if level not in (Level.PARTITIONED, Level.OPTIMIZED, targets.AUTO):
        raise UsageError(f"--level {level}: expected partitioned, optimized or auto")
    if level == Level.PARTITIONED:
        refuse({"--target": target}, "for --level optimized and auto")
    wanted, name = level_and_target(level, target, system, Level.PARTITIONED)
    if wanted == Level.PARTITIONED:
        return None
    if name is None:
        raise UsageError(targets.NO_TARGET.format(targets.listed()))
    return targets.named(name).name


def _named(device: str | None) -> str | None:
    """A device's full name.

    Raises:
        UsageError: no accelerator's name begins like that, or several do.
    """
    from flint.cost.accelerators import accelerator_named, accelerator_names

    found = None if device is None else accelerator_named(device)
    if device is not None and found is None:
        raise UsageError(f"--device {device}: expected one of {', '.join(accelerator_names())}")
    return found


def _system_of(device: str | None) -> str:
    """The system that times are computed for if only the device is given."""
    from flint.cost.systems import system_with

    return (system_with(device) if device else None) or DEFAULT_SYSTEM


def _show(found: list[SeenStep], json_output: bool) -> None:
    if json_output:
        print_json({"steps": [asdict(item) for item in found]})
        return
    rows = [(item.name, f"{item.count:,}", item.place, item.what) for item in found]
    Printer(sys.stdout).table(Table("steps (--step NAME)", ("step", ">times", "at", "what"), rows))
