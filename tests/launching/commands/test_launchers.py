"""Command lines of programs: what would be started, and on how many ranks."""

from __future__ import annotations

import sys

import pytest

from flint.errors import UsageError
from flint.launching.commands.launchers import parse
from flint.launching.program import cluster_of, step_choice


@pytest.fixture(autouse=True)
def program(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("")
    (tmp_path / "tool").write_text(f"#!{sys.executable}\n")
    (tmp_path / "tool").chmod(0o755)
    (tmp_path / "binary").write_bytes(b"\x7fELF")
    (tmp_path / "binary").chmod(0o755)


@pytest.mark.parametrize(
    ("line", "target", "is_module", "arguments"),
    [
        ("python train.py --lr 1", "train.py", False, ("--lr", "1")),
        ("train.py -m x", "train.py", False, ("-m", "x")),
        ("/usr/bin/python3.12 -u -W ignore train.py", "train.py", False, ()),
        ("python -X dev -m pkg.train a=1", "pkg.train", True, ("a=1",)),
        ("torchrun --nproc-per-node=8 train.py --nnodes 3", "train.py", False, ("--nnodes", "3")),
        ("torchrun --nnodes=2 --nproc_per_node 4 -m pkg.train x", "pkg.train", True, ("x",)),
        ("python -m torch.distributed.run --standalone train.py", "train.py", False, ()),
        ("python -m torch.distributed.launch --use_env train.py 1", "train.py", False, ("1",)),
    ],
)
def test_a_command_line_names_the_program(line, target, is_module, arguments):
    found = parse(line.split())
    assert (found.target, found.is_module, found.arguments) == (target, is_module, arguments)


def test_an_installed_command_is_its_file(tmp_path):
    assert parse([str(tmp_path / "tool"), "--x"]).target == str(tmp_path / "tool")


@pytest.mark.parametrize(
    "line",
    ["", "python", "python -c x", "python -m", "none.py", "no-such-command", "./binary",
     "torchrun --nproc-per-node=8", "torchrun --no-python ls", "torchrun none.py"],
)  # fmt: skip
def test_what_is_not_a_program_is_refused(line):
    with pytest.raises(UsageError):
        parse(line.split())


def test_what_a_launcher_says_about_its_options_is_one_line_of_its_own():
    with pytest.raises(UsageError) as raised:
        parse(["torchrun", "--no-such-option=3", "train.py"])
    assert str(raised.value) == "torchrun: unrecognized arguments: --no-such-option=3"


def test_the_launcher_says_how_many_ranks_there_are_unless_the_user_does():
    program = parse(["torchrun", "--nnodes=2", "--nproc-per-node=4", "train.py"])
    own = {"world": None, "per_node": None, "hosts": None, "device": None, "slices": 1}
    assert (cluster_of(program, **own).world, cluster_of(program, **own).per_node) == (8, 4)
    larger = cluster_of(program, **own | {"world": 512, "hosts": 32})
    assert (larger.world, larger.per_node, larger.hosts) == (512, 16, 32)


@pytest.mark.parametrize("launcher", ["torchrun", "python -m torch.distributed.launch"])
def test_a_launcher_that_names_no_number_leaves_hosts_as_they_usually_are(launcher):
    """By itself it starts one process, which few mean who ask for more ranks."""
    program = parse([*launcher.split(), "train.py"])
    own = {"world": None, "per_node": None, "hosts": None, "device": None, "slices": 1}
    assert cluster_of(program, **own).world == 1
    assert cluster_of(program, **own | {"world": 64}).per_node == 8
    one = parse([*launcher.split(), "--nproc-per-node=1", "train.py"])
    assert cluster_of(one, **own | {"world": 64}).per_node == 1


@pytest.mark.parametrize(
    "given",
    [{}, {"world": 12, "hosts": 5}, {"world": 12, "per_node": 8}, {"world": 8, "slices": 3},
     {"world": 8, "hosts": 2, "per_node": 8}],
)  # fmt: skip
def test_contradictions_are_refused(given):
    own = {"world": None, "per_node": None, "hosts": None, "device": None, "slices": 1}
    with pytest.raises(UsageError):
        cluster_of(parse(["train.py"]), **own | given)


def test_a_step_is_a_name_or_a_number_or_both():
    found = [step_choice(text) for text in (None, "train_step", "3", "generate:2")]
    placed = [
        step_choice(f"step@{text}") for text in ("a.py:3", "/x y/a.py:3:4", "lib/a.py:12:loop")
    ]
    assert [(one.name, one.place, one.number, one.loop) for one in placed] == [
        ("step", "a.py:3", 2, False), ("step", "/x y/a.py:3", 4, False),
        ("step", "lib/a.py:12", 1, True),
    ]  # fmt: skip
    alone = [step_choice(text) for text in ("step:call", "step@a.py:3:call", "step:loop", "step:2")]
    assert [(one.name, one.number, one.call, one.alone) for one in alone] == [
        ("step", 2, True, True), ("step", 2, True, True), ("step", 1, False, True),
        ("step", 2, False, False),
    ]  # fmt: skip
    assert placed[0].names("step", "/x/a.py:3") and not placed[0].names("step", "aa.py:3")
    assert found[1].names("train_step", "a.py:3") and not found[1].names("step", "a.py:3")
    assert [str(found[1]), str(placed[2])] == ["train_step", "step@lib/a.py:12"]
    assert [(item.name, item.number) for item in found] == [
        (None, 2), ("train_step", 2), (None, 3), ("generate", 2),
    ]  # fmt: skip


def test_a_command_lies_beside_the_python_that_runs(tmp_path, monkeypatch):
    """Its environment need not be activated."""
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    assert parse(["tool", "a"]).target == str(tmp_path / "tool")
