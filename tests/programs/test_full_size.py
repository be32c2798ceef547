"""Unmodified programs at the size that was published, to traces that consumers can run.

What a step has at that size cannot be run here; it is compared with counts by hand.
"""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from flint import load
from tests.programs.comparing import PRODUCTS, of_ranks
from tests.support.command_line import flint

HERE = Path(__file__).parent
pytestmark = pytest.mark.thorough


def traced(folder, world, *program):
    """The workload of a program's step, whose traces ``flint check`` has nothing against."""
    out = folder / "out"
    done = flint("run", "--world", world, "-o", out, "--", "python", *program, cwd=folder)
    assert done.returncode == 0, done.stderr
    checked = flint("check", out)
    assert checked.returncode == 0, checked.stderr
    assert f"{world} of {world} ranks" in checked.stdout
    assert "0 errors, 0 warnings" in checked.stdout
    return load(out)


def test_llama_3_8b_on_512_devices_has_the_published_parameters(tmp_path):
    """Table 3 of "The Llama 3 Herd of Models": 32 layers of width 4,096, 32 heads for queries and 8
    for keys and values of 128, 14,336 in the MLP, 128,256 tokens.  All but norms are in 512 parts.
    """
    program = HERE / "jax" / "llama_from_config.py"
    workload = traced(tmp_path, 512, program, "--size", "8b", "--tensor", "8")
    [program] = workload.programs
    norms = matrices = 0
    for item in program.inputs:
        if item.role == "parameter":
            size = math.prod(item.type.shape)
            norms, matrices = (
                (norms + size, matrices) if "norm" in item.name else (norms, matrices + size)
            )
    assert norms == 4096 * (2 * 32 + 1)
    layer = 4096 * (2 * 32 * 128 + 2 * 8 * 128) + 3 * 4096 * 14336
    assert matrices * 512 == 32 * layer + 2 * 128256 * 4096


def test_gpt_2_on_64_devices_reduces_its_gradients_and_computes_its_products(tmp_path):
    """12 layers of width 768, 1,024 positions, 50,304 tokens (50,257 in whole 64s), head and
    embedding shared; 12 sequences a rank.  A matrix is in a product forward and in two backward.
    """
    pytest.importorskip("torch")
    sizes = "--n_layer 12 --n_head 12 --n_embd 768 --block_size 1024 --vocab_size 50304"
    steps = "--batch_size 12 --accumulate 64 --eval_iters 1"  # of 64: one on each rank
    program = HERE / "gpt_ddp.py"
    workload = traced(tmp_path, 64, program, *sizes.split(), *steps.split())
    d, tokens = 768, 12 * 1024
    matrices = 12 * 12 * d**2 + 50304 * d
    biases_and_norms = 12 * (3 + 1 + 4 + 1 + 4) * d + 2 * d
    for rank in of_ranks(workload, PRODUCTS):
        assert rank["flops"] == 6 * tokens * matrices
        [sent] = rank["collectives"].values()
        assert sum(size for _, size in sent) == 4 * (matrices + 1024 * d + biases_and_norms)
        assert {kind for kind, _ in sent} == {"all_reduce"}
