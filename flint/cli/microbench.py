"""``flint microbench``: how long a workload's kernels take on the device of this machine."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from flint import registry
from flint.calibration.benchmarks import benchmarks_of, write
from flint.cli.options import FolderArgument
from flint.cli.parsing import a_file
from flint.errors import FlintError, UsageError
from flint.host.readable import counted, human_bytes
from flint.workload.loading import load


def microbench_command(
    folder: FolderArgument,
    framework: Annotated[
        str, typer.Option("--framework", help="What runs the kernels: jax or torch.")
    ],
    output: Annotated[
        Path,
        typer.Option(
            "-o", "--output", help="The CSV file to write, for flint calibrate.", callback=a_file
        ),
    ],
    repeats: Annotated[
        int,
        typer.Option(
            "--repeats", min=1, help="Calls in a row; the fastest of three rounds counts."
        ),
    ] = 20,
    largest: Annotated[
        float,
        typer.Option("--largest", min=1e-6, help="Leave out kernels of more than this many GB."),
    ] = 4.0,
) -> None:
    """Time each distinct product, and one op for every shape of the other kernels."""
    if framework not in registry.MICROBENCHMARKS:
        names = " or ".join(registry.MICROBENCHMARKS)
        raise UsageError(f"--framework {framework}: expected {names}")
    workload = load(folder)
    workload.check_partitioned("a benchmark needs")
    chosen, skipped = benchmarks_of(workload, largest * 1e9)
    if not chosen:
        raise FlintError(f"{folder}: none of its kernels can be timed alone")
    try:
        module = registry.microbenchmarks(framework)
    except ImportError as error:
        raise UsageError(f"--framework {framework} is not installed ({error})") from error
    sys.stderr.write(f"flint: {counted(len(chosen), 'kernel')} on {module.device()}\n")
    timed = list(zip(chosen, module.time_kernels(chosen, repeats), strict=True))
    write(output, timed)
    sys.stderr.write(f"flint: wrote {output}\n")
    if skipped:
        limit = human_bytes(largest * 1e9)
        sys.stderr.write(
            f"flint: warning: {counted(skipped, 'kernel')} left out: larger than {limit}, or of a "
            "type other than f16, bf16 and f32\n"
        )
