"""Whole training programs under ``flint run``: from the command to the traces of 8 ranks.

    python benchmarks/programs.py                                     # this project's own programs
    build/programs/maxtext/bin/python benchmarks/programs.py --package maxtext
    build/programs/torchtitan/bin/python benchmarks/programs.py --package torchtitan

The environments are those of make test-programs.  Prints rows for benchmarks/README.md.  Processor
time is that of all processes.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from cases import FLINT, PYTHON, ROOT, remover
from machine import Watch, describe
from measure import measure

OWN = ROOT / "tests/programs/jax/llama_from_config.py"
GPT = ROOT / "tests/programs/gpt_ddp.py"
TORCHTITAN = ROOT / "tests/programs/torchtitan"
#: What is measured -> devices, arguments of the program.
PROGRAMS = {
    "Llama-3 8B on 512": (512, ("--size", "8b", "--tensor", "8")),
    "Llama-3 405B on 4,096": (4096, ("--size", "405b", "--tensor", "8")),
}
#: nanoGPT's train.py in short, with the sizes of its config/train_gpt2.py.
GPTS = {
    "GPT-2 124M, DDP, 5 microbatches, on 64": (
        64,
        (
            "--n_layer=12", "--n_embd=768", "--n_head=12", "--vocab_size=50304",
            "--block_size=1024", "--batch_size=12", "--accumulate=320", "--eval_iters=200",
        ),
    ),
}  # fmt: skip
TITANS = {
    "torchtitan, Llama-3 8B on 512": (
        512,
        (
            "--model.flavor=8B", "--training.seq_len=8192", "--training.local_batch_size=1",
            "--activation_checkpoint.mode=selective",
        ),
    ),
}  # fmt: skip
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
    parser.add_argument("--package", choices=("maxtext", "torchtitan"), help="that Python has")
    parser.add_argument("--runs", type=int, default=1)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        if given.package == "maxtext":
            os.environ["DECOUPLE_GCLOUD"] = "TRUE"  # Google's cloud is not there
            start = [PYTHON, "-m", "maxtext.trainers.pre_train.train", *_MAXTEXT]
            start += [f"base_output_directory={folder}/runs"]
            rows(MAXTEXT, start, Path(folder), given.runs)
        elif given.package == "torchtitan":
            subprocess.run([PYTHON, TORCHTITAN / "prepare.py"], check=True)
            start = [PYTHON, "-m", "torchtitan.train"]
            start += ["--job.config_file", str(TORCHTITAN / "small.toml")]
            rows(TITANS, start, Path(folder), given.runs)
        else:
            rows(PROGRAMS, [PYTHON, str(OWN)], Path(folder), given.runs)
            rows(GPTS, [PYTHON, str(GPT)], Path(folder), given.runs)


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
