"""The examples run and say what they promise."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.children import HUNG
from tests.support.shared import quick_rows

ROOT = Path(__file__).parent.parent


def test_look_at_a_step() -> None:
    run = subprocess.run(
        [sys.executable, ROOT / "examples/look_at_a_step.py",
         ROOT / "models/saved/llama3_8b_scan_fsdp64_tp8.mlirbc", "64,8", "data,model"],
        capture_output=True, text=True, check=True, cwd=ROOT, timeout=HUNG,
    )  # fmt: skip
    # 451 all-gathers carry 56,872,960 bytes: 54.2 MiB over the two kinds of groups.
    gathered = [line for line in run.stdout.splitlines() if line.startswith("all_gather")]
    total = sum(float(line.split()[-6].replace(",", "")) for line in gathered)
    assert abs(total - 56872960 / 2**20) < 0.2
    assert "loop of 32 x" in run.stdout


def test_the_readmes_training_step_is_captured(tmp_path: Path) -> None:
    """Its gradient is summed over the 64 data ranks: (4096, 4096 / 8) of float32, 8 MiB."""
    page = (ROOT / "README.md").read_text()
    blocks = [part.partition("```")[0] for part in page.split("```python\n")[1:]]
    [code] = [block for block in blocks if "import flint, jax" in block]
    (tmp_path / "train.py").write_text(code)
    commands = [line.split("#")[0].split() for line in page.splitlines()
                if line.startswith("flint capture train.py:")]  # fmt: skip
    assert len(commands) == 3  # the last one needs a compiler for GPUs
    run = subprocess.run(
        [sys.executable, "-m", *commands[0], "--json"],
        capture_output=True, text=True, check=True, cwd=tmp_path, timeout=HUNG,
    )  # fmt: skip
    assert '"ranks": 512' in run.stdout
    looked_at = subprocess.run(
        [sys.executable, "-m", "flint", "inspect", "out"],
        capture_output=True, text=True, check=True, cwd=tmp_path, timeout=HUNG,
    )  # fmt: skip
    summed = [line for line in looked_at.stdout.splitlines() if "add " in line and " data " in line]
    assert len(summed) == 1
    assert "8.0 MiB" in summed[0]


def test_the_readmes_pytorch_step_is_captured(tmp_path: Path) -> None:
    """Four layers of 4096 x 4096 and 4096 float32 over 4,096 ranks.

    FSDP2 gathers each once for the forward and again for the backward pass: 8 all-gathers (the root
    has no parameters of its own), and 4 reduce-scatters.
    """
    page = (ROOT / "README.md").read_text()
    blocks = [part.partition("```")[0] for part in page.split("```python\n")[1:]]
    [code] = [block for block in blocks if "import flint, torch" in block]
    (tmp_path / "train_torch.py").write_text(code)
    [command] = [line.split("#")[0].split() for line in page.splitlines()
                 if line.startswith("flint capture train_torch.py")]  # fmt: skip
    subprocess.run(
        [sys.executable, "-m", *command],
        capture_output=True, text=True, check=True, cwd=tmp_path, timeout=HUNG,
    )  # fmt: skip
    looked_at = subprocess.run(
        [sys.executable, "-m", "flint", "inspect", "out", "--json"],
        capture_output=True, text=True, check=True, cwd=tmp_path, timeout=HUNG,
    )  # fmt: skip
    [program] = json.loads(looked_at.stdout)["programs"]
    calls = {item["kind"]: item["count"] for item in program["collectives"]}
    assert calls == {"all_gather": 8, "reduce_scatter": 4}


@pytest.mark.parametrize(("framework", "ranks"), quick_rows([("jax", 8), ("torch", 4)], ("jax", 8)))
def test_a_step_of_each_framework_runs_as_it_was_captured(framework: str, ranks: int) -> None:
    pytest.importorskip(framework)
    run = subprocess.run(
        [sys.executable, ROOT / f"examples/validate_{framework}_step.py"],
        capture_output=True, text=True, check=False, cwd=ROOT, timeout=HUNG,
    )  # fmt: skip
    assert run.returncode == 0, run.stdout + run.stderr
    assert re.search(rf"^agrees: all \d+ .* {ranks} of {ranks} ranks", run.stdout, re.MULTILINE)
    assert "GEMM" in run.stdout
