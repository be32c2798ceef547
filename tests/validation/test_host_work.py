"""What the host computes before the device gets it, or on what it got: captures have the copies."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import pytest

pytest.importorskip("torch")

from flint.validation.report.rank_report import ONE_BY_ONE
from flint.validation.rewrites.host_work import COPIED, PREPARED, RETURNED
from flint.validation.validating import validate
from flint.workload.loading import load
from tests.support.children import child_environment
from tests.support.command_line import flint_with_torch as flint
from tests.validation.test_cpu_forms import compared, is_whole, ops

#: Pictures in a memory of the host: two rows of indices, scaled there or on the device.
PROGRAM = """
import os, torch
device = "cuda" if torch.cuda.is_available() else "cpu"
model = torch.nn.Linear(12, 4).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, foreach=True)
kept = torch.randint(0, 255, (40, 12), dtype=torch.uint8)
def step():
    at = torch.randint(0, 39, (6,))
    now = kept[at].to(device).float() / 255
    later = kept[at + 1].float().sub(128).to(device)
    (model(now) - model(later.tanh())).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
if "PROFILED" in os.environ:
    with torch.profiler.profile(record_shapes=True) as profile:
        for _ in range(4): step()
    profile.export_chrome_trace("rank0.json")
else:
    for _ in range(4): step()
"""

#: The host has the weights and updates them, as offloading does.
OFFLOADED = (
    PROGRAM.replace(
        "optimizer = torch.optim.SGD(model.parameters()",
        "weights = [p.detach().cpu().clone() for p in model.parameters()]\n"
        "optimizer = torch.optim.AdamW(weights",
    )
    .replace("def step():", """def step():
    for weight, p in zip(weights, model.parameters()):
        p.data.copy_(weight)""")
    .replace("    optimizer.step()", """
    for weight, p in zip(weights, model.parameters()):
        weight.grad = p.grad.to("cpu")
    optimizer.step()""")
    .replace("optimizer.zero_grad()", "model.zero_grad()")
)  # fmt: skip


def compare(tmp_path, program):
    """The report on a program that really ran."""
    (tmp_path / "train.py").write_text(program)
    environment = child_environment() | {"PROFILED": "1"}
    subprocess.run([sys.executable, "train.py"], cwd=tmp_path, env=environment, check=True)
    done = flint("run", "--world", 1, "-o", "out", "--", "python", "train.py", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    return validate(load(tmp_path / "out"), [tmp_path / "rank0.json"])


@pytest.mark.thorough
def test_a_run_of_a_program_that_makes_its_batches_on_the_host_agrees(tmp_path):
    report = compare(tmp_path, PROGRAM)
    assert ONE_BY_ONE not in report.notes
    assert report.ok, (report.verdict, report.differences[:4])
    assert report.explained[COPIED] == 2
    assert report.explained[PREPARED] >= 2  # the sum of indices, the difference


def test_a_run_that_updates_its_weights_on_the_host_agrees(tmp_path):
    report = compare(tmp_path, OFFLOADED)
    assert report.ok, (report.verdict, report.differences[:4])
    assert report.explained[RETURNED] > 10  # the update of two weights


@pytest.mark.thorough
def test_a_run_whose_optimizer_has_another_formula_for_one_parameter_says_so(tmp_path):
    report = compare(tmp_path, PROGRAM.replace("SGD", "ASGD").replace(", foreach=True", ""))
    assert not report.ok and report.notes[ONE_BY_ONE] == 1


def device(name, *shapes):
    return replace(ops((name, *shapes))[0], name=f"aten.{name}.to_device")


ROWS = (6, 12)


@pytest.mark.parametrize(
    ("run", "agrees"),
    [
        (("neg", "mm", "sigmoid"), True),
        (("mm", "neg", "sigmoid"), False),
        (("mm", "sigmoid", "neg"), False),
    ],
)
def test_only_what_is_in_front_of_the_copy_may_be_the_hosts(run, agrees):
    shapes = {"mm": (ROWS, (12, 3)), "sigmoid": ((6, 3),), "neg": (ROWS,)}
    captured = [device("_to_copy", ROWS), *ops(*((n, *shapes[n]) for n in ("mm", "sigmoid")))]
    matching = compared(captured, ops(*((name, *shapes[name]) for name in run)))
    assert is_whole(matching) is agrees
    assert matching.explained[COPIED] == 1
    assert matching.explained[PREPARED] == agrees


@pytest.mark.parametrize(
    ("run", "shape", "agrees"),
    [
        (("mm", "neg", "neg"), (6, 3), True),
        (("neg", "neg", "mm"), (6, 3), False),
        (("mm", "neg", "neg"), (3, 6), False),
    ],
)
def test_only_what_has_the_size_of_data_that_the_host_got_may_be_the_hosts(run, shape, agrees):
    shapes = {"mm": (ROWS, (12, 3)), "neg": (shape,)}
    kept = replace(device("_to_copy", (6, 3)), name="aten._to_copy.to_host")
    captured = [*ops(("mm", *shapes["mm"])), kept]
    matching = compared(captured, ops(*((name, *shapes[name]) for name in run)))
    assert is_whole(matching) is agrees
    assert matching.explained[RETURNED] == 2 * agrees
