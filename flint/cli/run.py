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
from flint.cli.launch_options import LaunchOptions
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
from flint.cli.shared import print_json, print_warnings, results_only_on_stdout, stages_shown
from flint.cli.tables import Printer, Table
from flint.errors import UsageError
from flint.launching.capturing import capture, steps
from flint.launching.commands.shell_scripts import Given, program_of
from flint.launching.program import ALLOWED, ProgramRequest, SeenStep, cluster_of, step_choice
from flint.launching.stated_values import numbers_of, shares_of
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
    list_steps: Annotated[
        bool, typer.Option("--list-steps", help="List the steps that the program repeats.")
    ] = False,
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
    launch: LaunchOptions,
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
        refuse(
            {"-o": output, "--step": launch.step},
            "for a capture; --list-steps only lists the steps",
        )
    unknown = sorted(set(launch.allow or ()) - set(ALLOWED))
    if unknown:
        raise UsageError(f"--allow {unknown[0]}: expected one of {', '.join(ALLOWED)}")
    given = Given(
        world=world, per_node=launch.gpus_per_node, hosts=launch.hosts,
        device=_named(launch.device), number=launch.command,
        has_network="network" in (launch.allow or ()), time_limit=time_limit,
        memory_limit=int(memory_limit * 2**30),
    )  # fmt: skip
    with stages_shown():
        parsed = program_of(program, given)
    cluster = cluster_of(
        parsed, world=world, per_node=launch.gpus_per_node, hosts=launch.hosts, device=given.device,
        slices=launch.slices,
    )  # fmt: skip
    system = system or (system_of(target) if target else _system_of(cluster.device))
    request = ProgramRequest(
        program=parsed,
        cluster=cluster,
        target=_target(level, target, system),
        automatic=level == targets.AUTO,
        step=step_choice(launch.step),
        lists_steps=list_steps,
        allow=frozenset(launch.allow or ()),
        fake_data=launch.fake_data,
        mask_shares=shares_of(launch.mask_share or ()),
        numbers=numbers_of(launch.value or ()),
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
        if found.failure:
            print_warnings({found.failure: 1})
        _show(found.steps, json_output)
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
