"""Whole JAX training programs under ``flint run``: from the command to the traces of 8 ranks.

    python benchmarks/programs.py                                       # this project's own program
    build/programs/maxtext/bin/python benchmarks/programs.py --maxtext  # of make test-programs

Prints rows for benchmarks/README.md.  Processor time is that of all processes.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from cases import FLINT, PYTHON, ROOT, remover
from machine import Watch, describe
from measure import measure

OWN = ROOT / "tests/programs/jax/llama_from_config.py"
#: What is measured -> devices, arguments of the program.
PROGRAMS = {
    "Llama-3 8B on 512": (512, ("--size", "8b", "--tensor", "8")),
    "Llama-3 405B on 4,096": (4096, ("--size", "405b", "--tensor", "8")),
}
_MAXTEXT = (
    "steps=5", "run_name=flint", "dataset_type=synthetic", "enable_checkpointing=false",
    "hardware=gpu", "skip_jax_distributed_system=true", "attention=dot_product",
    "per_device_batch_size=1", "max_target_length=8192",
)  # fmt: skip
MAXTEXT = {
    "MaxText, Llama-3 8B on 512": (512, ("model_name=llama3-8b",)),
    "MaxText, Llama-3.1 405B on 4,096": (
        4096,
        ("model_name=llama3.1-405b", "ici_fsdp_parallelism=512", "ici_tensor_parallelism=8"),
    ),
}


def main() -> None:
    """Measure, and print a row of each program."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--maxtext", action="store_true", help="MaxText, which this Python has")
    parser.add_argument("--runs", type=int, default=1)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if not given.maxtext:
            rows(PROGRAMS, [PYTHON, str(OWN)], Path(folder), given.runs)
            return
        os.environ["DECOUPLE_GCLOUD"] = "TRUE"  # Google's cloud is not there
        start = [PYTHON, "-m", "maxtext.trainers.pre_train.train", *_MAXTEXT]
        start += [f"base_output_directory={folder}/runs"]
        rows(MAXTEXT, start, Path(folder), given.runs)


def rows(
    programs: Mapping[str, tuple[int, Sequence[str]]], start: Sequence[str], folder: Path, runs: int
) -> None:
    """Measure programs.

    Args:
        programs: name -> devices, arguments.
        start: the command that they are arguments of.
        folder: for what is written.
        runs: of each.
    """
    for name, (devices, arguments) in programs.items():
        out, watch = folder / "out", Watch()
        options = ["--world", str(devices), "--ranks", "0-7", "-o", str(out)]
        command = [*FLINT, "run", *options, "--", *start, *arguments]
        done = measure(command, runs=runs, warm=False, before=remover(out))
        known = describe(folder, ROOT)
        print(
            f"| {name} | {done.wall:.1f} s | {done.user + done.system:.1f} s "
            f"| {done.peak / 1e6:,.0f} MB | {watch.others():.0%} "
            f"| {known['commit']}, {known['date']} |",
            flush=True,
        )


if __name__ == "__main__":
    sys.exit(main())
