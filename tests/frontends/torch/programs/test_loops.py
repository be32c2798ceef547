"""What a program repeats, from the ops that it ran."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")
from flint import load
from flint.frontends.torch.programs.loops import Ops
from flint.launching.program import StepChoice
from tests.programs.comparing import PRODUCTS, of_ranks
from tests.support.command_line import flint_with_torch as flint


class Program:
    """Ops named by letters; upper case: outside of any model's call."""

    def __init__(self):
        self.begun = []

    def ops(self, events, mark=""):
        ops = Ops(StepChoice(mark=mark), lambda: self.begun.append(len(self.begun)))
        for event in events:
            ops.op(event, event.islower())
        return ops


@pytest.mark.parametrize(
    ("events", "count"),
    [
        ("initABABAB", 2),  # its first round, too; the last one may not be whole
        ("iMllllhMllllhMllllh", 2),  # not the layers of a model
        ("MllllhXMllllhXY", 1),
        ("AbAcAcAcAc", 4),  # the first round makes what is made once
        ("AAABAAABAAAB", 2),  # a round of several equal parts
        ("AABBAABBAABBAABB", 2),  # nothing is there once a round: the second is the first known
        ("AAAABBAAAABBAAAABBAAAABB", 3),
        ("Mllllllh", None),  # a model that is called once
        ("ABCDEF", None),
        ("", None),
    ],
)
def test_the_loop_is_what_repeats_longest(events, count):
    loop = Program().ops(events).loop()
    assert (loop and loop.count) == count


def test_rounds_begin_at_the_same_op_when_the_program_runs_again():
    program, mark = Program(), ""
    for before in ("", "VV"):  # another rank may run more before
        ops = program.ops(before + "WABABABX", mark)
        if not mark:
            mark = ops.loop().mark
    assert len(program.begun) == 3


def test_rounds_of_which_nothing_is_there_once_begin_once():
    program, mark = Program(), ""
    for _ in range(2):
        ops = program.ops("AABB" * 4, mark)
        mark = mark or ops.loop().mark
    assert len(program.begun) == 3


def test_a_program_with_an_optimizer_has_no_such_step():
    ops = Program().ops("ABABAB")
    ops.over()
    assert ops.loop() is None


ENDLESS = """
import torch
layer = torch.nn.Linear(4, 2).cuda()
while True:
    layer(torch.ones(3, 4, device="cuda")).sum().backward()
    for weight in layer.parameters():
        weight.data.sub_(weight.grad)
        weight.grad = None
"""


def test_a_training_without_an_optimizer_need_not_end(tmp_path):
    (tmp_path / "train.py").write_text(ENDLESS)
    out = tmp_path / "out"
    done = flint("run", "--world", 1, "-o", out, "--", "python", "train.py", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    [rank] = of_ranks(load(out), PRODUCTS)
    assert rank["flops"] == 2 * 2 * (3 * 4 * 2)  # forward, and backward for the weight


SHORT = """
import torch
model = torch.nn.Sequential(*[torch.nn.Linear(4, 4) for _ in range(5)]).cuda()
optimizer = torch.optim.SGD(model.parameters())
x = torch.ones(3, 4, device="cuda")
for block in model:
    x = torch.tanh(block(x))
x.sum().backward()
"""


@pytest.mark.thorough
def test_what_repeats_within_a_single_backward_pass_is_no_step_unasked(tmp_path):
    """Data for half of the batches of an optimizer's step: its layers are not its rounds."""
    (tmp_path / "train.py").write_text(SHORT)
    line = "run", "--world", 1, "-o", "out", "--", "python", "train.py"
    done = flint(*line, cwd=tmp_path)
    assert done.returncode == 1
    assert "--step loop" in done.stderr
    assert not (tmp_path / "out").exists()
    asked = flint(*line[:1], "--step", "loop", *line[1:], cwd=tmp_path)
    assert asked.returncode == 0, asked.stderr
    [rank] = of_ranks(load(tmp_path / "out"), PRODUCTS)
    assert rank["flops"] == 2 * 3 * 4 * 4  # one layer's product
