"""Programs that train more than once: a search for a learning rate, and then the training."""

from __future__ import annotations

import functools
import sys

import pytest

pytest.importorskip("torch")
from flint.launching import named_code
from flint.launching.code_behind import calls_of, trainings_behind
from flint.workload.loading import load
from tests.programs.comparing import PRODUCTS, captured, of_ranks
from tests.support.command_line import flint
from tests.support.shared import quick_rows


class Loop:
    """What trains."""

    def fit(self, loss, optimizer):
        self.once(loss, optimizer)

    def once(self, loss, optimizer):
        loss.backward()
        optimizer.step()


@functools.wraps(divmod)  # a function in C
def divided(*args):
    return divmod(*args)


def evaluated(loss):
    return loss.item(), divided(7, 3)


def looks():
    return trainings_behind(sys._getframe(1), [("backward", "step")])


def searched():
    for _ in range(2):
        found = looks()
    return found


def before_a_training(loss, optimizer):
    found = searched()
    for _ in range(2):
        loss.backward()
        optimizer.step()
    return found


def before_a_trainers(loss, optimizer):
    found = searched()
    trainer = Loop()
    trainer.fit(loss, optimizer)
    return found


def before_a_closures(loss, optimizer):
    found = searched()

    def closure():
        loss.backward()

    optimizer.step(closure)
    return found


def inside_of_epochs(loss, optimizer):
    for _ in range(2):
        found = searched()
        loss.backward()
        optimizer.step()
    return found


def instead_of_a_training(loss, optimizer, search=True):
    if search:
        return looks()
    loss.backward()
    optimizer.step()


def trained(loss, optimizer):
    for _ in range(2):
        found = looks()
        loss.backward()
        optimizer.step()
    return found


def twice(loss, optimizer):
    found = trained(loss, optimizer)
    trained(loss, optimizer)
    return found


def in_turn(loss, optimizer):
    for _ in range(2):
        found = trained(loss, optimizer)
    return found


def before_an_evaluation(loss, _):
    found = searched()
    evaluated(loss)
    return found


class Loss:
    backward = step = item = staticmethod(lambda *_: None)
    made = ()


def critics_turns(loss, optimizer):
    for _ in range(2):
        found = optimizer.made and trainings_behind(
            sys._getframe(), [("backward", "step")], optimizer.made[0]
        )
        loss.backward()
    loss.backward()  # a generator's
    optimizer.step()
    return found


def in_rounds_of_turns(loss, optimizer):
    optimizer.made = [calls_of(sys._getframe())]
    for _ in range(2):
        found = critics_turns(loss, optimizer)
    return found


def in_front_of_a_second_stage(loss, optimizer):
    found = in_rounds_of_turns(loss, optimizer)
    optimizer.step(loss.backward())
    return found


def in_rounds_of_trainings(loss, optimizer):
    for _ in range(2):
        optimizer.made = [calls_of(sys._getframe())]
        found = critics_turns(loss, optimizer)
    return found


@pytest.mark.parametrize(
    ("program", "behind"),
    [
        (in_rounds_of_turns, []),
        (in_front_of_a_second_stage, ["in_front_of_a_second_stage"]),
        (in_rounds_of_trainings, ["critics_turns"]),
    ],
)
def test_what_is_in_the_same_round_of_a_loop_is_no_training_behind(program, behind, monkeypatch):
    monkeypatch.setattr(named_code, "is_own_file", lambda file: file == __file__)
    assert [one.frame.f_code.co_name for one in program(Loss, Loss)] == behind


@pytest.mark.parametrize(
    ("program", "has_one"),
    [
        (before_a_training, True),
        (before_a_trainers, True),
        (before_a_closures, True),
        (inside_of_epochs, False),
        (instead_of_a_training, False),
        (twice, True),
        (in_turn, False),
        (before_an_evaluation, False),
    ],
)
def test_a_training_behind_is_seen_in_code_that_has_not_run(program, has_one, monkeypatch):
    monkeypatch.setattr(named_code, "is_own_file", lambda file: file == __file__)
    code = program.__code__  # what is named behind may be called there
    found = program(Loss, Loss)
    assert bool(found) is has_one
    if has_one:  # by now the call has gone on
        assert found[0].is_reached() and found[0].frame.f_code is code


#: A search on 4 rows, without DDP, and a training on 2 batches of 8 rows a step, of 16 features.
SEARCHES = """
import copy, os, torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
dist.init_process_group("nccl")
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
model = torch.nn.Linear(16, 16, bias=False).cuda()

def find_rate(count):
    kept = copy.deepcopy(model.state_dict())
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-7)
    for _ in range(count):
        model(torch.ones(4, 16, device="cuda")).sum().backward()
        optimizer.step()
    model.load_state_dict(kept)
    return 0.1

rate = find_rate(COUNT)
wrapped = DistributedDataParallel(model)
optimizer = torch.optim.AdamW(wrapped.parameters(), lr=rate)
for _ in range(5):
    for rows in (8, 8):
        wrapped(torch.ones(rows, 16, device="cuda")).sum().backward()
    optimizer.step()
"""
#: Of a row: forward, and of the weight's gradient.
ROW = 2 * 2 * 16 * 16
TRAINING = {"collectives": {"over 0, 1": [["all_reduce", 1024]] * 2}, "flops": 16 * ROW}
SEARCH = {"collectives": {}, "flops": 4 * ROW}


BOTH = [
    (6, (), TRAINING, "the step is optimizer-2 at train.py:23; --step NAME captures another: "
                      "optimizer at train.py:13"),
    pytest.param(6, ("--step", "optimizer"), SEARCH, "", marks=pytest.mark.thorough),
    (200, (), SEARCH,  # longer than it is waited for
     "the step is optimizer at train.py:13; --step NAME captures another: optimizer-2 at "
     "train.py:22, not begun yet"),
    pytest.param(200, ("--step", "optimizer-2"), TRAINING, "", marks=pytest.mark.thorough),
]  # fmt: skip


@pytest.mark.parametrize(("count", "options", "step", "said"), BOTH)
def test_the_step_is_that_of_the_training_behind_a_search(tmp_path, count, options, step, said):
    (tmp_path / "train.py").write_text(SEARCHES.replace("COUNT", str(count)))
    done = flint("run", "--world", 2, *options, "-o", "out", "--", "python", "train.py",
                 cwd=tmp_path, imported="torch")  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert of_ranks(load(tmp_path / "out"), PRODUCTS) == [step] * 2
    assert said in " ".join(done.stderr.split())


def test_a_program_that_fails_or_ends_behind_its_training_is_captured(tmp_path):
    ends = "def leave():\n    raise SystemExit('no second stage')\nleave()\n"
    text = SEARCHES.replace("COUNT", "6").replace("wrapped =", f"{ends}wrapped =")
    (tmp_path / "train.py").write_text(text)
    assert captured(tmp_path, 2, "train.py") == [SEARCH] * 2
    (tmp_path / "train.py").write_text(text.replace("SystemExit", "ValueError"))
    done = flint("run", "--world", 2, "-o", "out", "--", "python", "train.py", cwd=tmp_path,
                 imported="torch")  # fmt: skip
    assert done.returncode == 0 and "ValueError: no second stage" in done.stderr


@pytest.mark.parametrize(("count", "rows"), quick_rows([(6, 8), (200, 4)], (6, 8)))
def test_a_function_that_is_called_for_two_trainings_is_both(tmp_path, count, rows):
    """The second is the step if the first is not too long; either is named where it is not."""
    (tmp_path / "train.py").write_text(f"""
import torch
def train(rows, count):
    model = torch.nn.Linear(16, 16, bias=False).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(count):
        model(torch.ones(rows, 16, device="cuda")).sum().backward()
        optimizer.step()
train(4, {count})
train(8, 4)
""")
    assert captured(tmp_path, 1, "train.py") == [{"collectives": {}, "flops": rows * ROW}]
    done = flint("run", "--world", 1, "-o", "out", "--", "python", "train.py", cwd=tmp_path,
                 imported="torch")  # fmt: skip
    said = "the step is optimizer-2 at" if rows == 8 else "optimizer-2 at train.py:10, not begun"
    assert said in " ".join(done.stderr.split())
