"""JAX packages with entry points of their own: what is captured is what a run compiles."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

from flint import load
from tests.frontends.jax.programs.really_run import instructions, partitioned
from tests.frontends.jax.programs.test_against_runs import modules
from tests.programs import comparing, results
from tests.support.children import HUNG
from tests.support.command_line import flint

HERE = Path(__file__).parent

SMALL_MAXTEXT = """
    steps=5 run_name=small base_output_directory=out dataset_type=synthetic
    enable_checkpointing=false hardware=cpu attention=dot_product skip_jax_distributed_system=true
    base_emb_dim=64 base_num_query_heads=4 base_num_kv_heads=2 base_mlp_dim=128
    base_num_decoder_layers=2 head_dim=16 vocab_size=256 max_target_length=64
    per_device_batch_size=1
"""


def maxtext(folder, *more):
    package = Path(importlib.util.find_spec("maxtext").origin).parent
    place = str(package / "configs" / "base.yml")
    return "maxtext.trainers.pre_train.train", place, *SMALL_MAXTEXT.split(), *more


def levanter(folder):
    prepare = [sys.executable, str(HERE / "levanter" / "prepare.py")]
    subprocess.run(prepare, cwd=folder, check=True, timeout=HUNG)
    return "levanter.main.train_lm", "--config_path", str(HERE / "levanter" / "small.yaml")


#: Package -> words, and what makes its program.
CASES = {
    ("maxtext", "pre_train, FSDP"): maxtext,
    ("maxtext", "pre_train, FSDP and TP"): lambda folder: maxtext(
        folder, "ici_fsdp_parallelism=4", "ici_tensor_parallelism=2"
    ),
    ("levanter", "train_lm, FSDP and TP"): levanter,
}


@pytest.mark.thorough
@pytest.mark.parametrize("package", CASES, ids=", ".join)
def test_the_step_is_the_module_that_a_run_compiles(package, tmp_path):
    if not results.is_installed(package[0]):
        pytest.skip(f"{package[0]} is not in this environment: make test-programs")
    program = CASES[package](tmp_path)
    out = tmp_path / "captured"
    command = ("run", "--world", 8, "-o", out, "--", "python", "-m", *program)
    done = flint(*command, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    workload = load(out)
    run = partitioned("-m", tmp_path, *program)
    for function, module in modules(workload):
        assert instructions(module) == instructions(run[function]), function
    results.record(*package, comparing.of_ranks(workload))
