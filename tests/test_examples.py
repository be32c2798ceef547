"""The examples run and say what they promise."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.children import HUNG
from tests.support.command_line import flint, flint_here
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
    looked_at = flint_here("inspect", "out", cwd=tmp_path)
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
    assert flint_here(*command[1:], cwd=tmp_path).returncode == 0
    looked_at = flint_here("inspect", "out", "--json", cwd=tmp_path)
    [program] = json.loads(looked_at.stdout)["programs"]
    calls = {item["kind"]: item["count"] for item in program["collectives"]}
    assert calls == {"all_gather": 8, "reduce_scatter": 4}


@pytest.mark.thorough
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


def shown_and_said() -> list[tuple[str, list[list[str]]]]:
    """The README's demo: each command, and the lines shown of what it says, in unbroken pieces."""
    page = (ROOT / "README.md").read_text()
    [block] = re.findall(r"<!-- demo -->\n```\n(.*?)```", page, re.DOTALL)
    found = []
    for part in block.removeprefix("$ ").split("\n$ "):
        command, *lines = part.rstrip().splitlines()
        pieces: list[list[str]] = [[]]
        for line in lines:
            if line.strip() == "...":
                pieces.append([])
            else:
                pieces[-1].append(line)
        found.append((command, [piece for piece in pieces if piece]))
    return found


def without_times(line: str) -> str:
    """Times differ from run to run, and the size of traces with the path of the checkout."""
    line = re.sub(r"(graph|writing) [\d.]+ s", r"\1 - s", line.rstrip())
    return re.sub(r"nodes, [\d.]+ KiB", "nodes, - KiB", line)


def test_the_readmes_demo_is_what_make_demo_runs() -> None:
    dry = subprocess.run(
        ["make", "-n", "demo"], cwd=ROOT, capture_output=True, text=True, check=True, timeout=HUNG
    )
    run = re.findall(r"^\S*/(flint .*)$", dry.stdout, re.MULTILINE)
    assert [command for command, _ in shown_and_said()] == run


def test_the_readmes_demo_shows_what_the_commands_say(tmp_path: Path) -> None:
    """Every line of the README, in order; of times nothing but that they are there."""
    out = "out/llama3-8b"
    for command, pieces in shown_and_said():
        words = command.split()[1:]
        if words[0] == "capture":  # from here: the names of source files are in what it writes
            done = flint(*words[:-1], tmp_path / words[-1], cwd=ROOT)
        else:
            done = flint_here(*words, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        text = (done.stderr + done.stdout).replace(str(tmp_path / out), out)
        # The README shows an installation without the extras.
        lines = [line for line in text.splitlines() if "Flint's fusion rules" not in line]
        said = [without_times(line) for line in lines]
        place = 0
        for piece in pieces:
            wanted = [without_times(line) for line in piece]
            starts = range(place, len(said) - len(wanted) + 1)
            at = next((at for at in starts if said[at : at + len(wanted)] == wanted), None)
            assert at is not None, "\n".join([command, *wanted, "is not in", *said[place:]])
            place = at + len(wanted)
