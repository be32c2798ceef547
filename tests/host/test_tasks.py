"""Children: results, errors and deaths of processes next to the user's."""

from __future__ import annotations

import faulthandler
import os
import shutil
import signal
import time

import pytest

from flint.errors import FlintError, UsageError
from flint.host.child_processes import Limits
from flint.host.tasks import run_all

LIMITS = Limits(seconds=600, memory=2**35)


def write(task, folder):
    (folder / "result").write_text(str(task * task))


def test_every_task_leaves_its_result(tmp_path):
    folders = run_all(write, [3, 1, 2, 3], tmp_path, LIMITS, jobs=2)
    assert {task: (place / "result").read_text() for task, place in folders.items()} == {
        1: "1", 2: "4", 3: "9",
    }  # fmt: skip


def test_a_child_changes_nothing_here(tmp_path):
    def changes(task, folder):
        os.environ["CHANGED"] = "yes"

    run_all(changes, [0], tmp_path, LIMITS)
    assert "CHANGED" not in os.environ


@pytest.mark.parametrize("error", [UsageError("train.py:3: bad"), FlintError("train.py:4: worse")])
def test_an_error_of_ours_comes_back_as_it_was(error, tmp_path):
    def fails(task, folder):
        raise error

    with pytest.raises(type(error), match=str(error)):
        run_all(fails, [0], tmp_path, LIMITS)


def test_any_other_error_is_one_line(tmp_path):
    def fails(task, folder):
        raise KeyError("two\nlines")

    with pytest.raises(FlintError, match=r"the capture failed: KeyError: 'two\\nlines'"):
        run_all(fails, [0], tmp_path, LIMITS)


def test_a_full_disk_is_named_and_not_the_capture(tmp_path, monkeypatch):
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=10))
    with pytest.raises(FlintError, match=r"temporary files .*the disk is full"):
        run_all(lambda task, folder: os._exit(1), [0], tmp_path, LIMITS)


def test_a_killed_child_is_explained(tmp_path):
    def dies(task, folder):
        os.kill(os.getpid(), signal.SIGKILL)

    with pytest.raises(FlintError, match=r"rank 7 died of SIGKILL, most likely .* out of memory"):
        run_all(dies, [7], tmp_path, LIMITS)


def test_an_aborted_child_says_its_last_words(tmp_path):
    def dies(task, folder):
        faulthandler.disable()
        os.write(2, b"Check failed: x > 0\n")
        os.abort()

    with pytest.raises(FlintError, match="died of SIGABRT: Check failed: x > 0"):
        run_all(dies, [0], tmp_path, LIMITS)


def test_a_child_over_its_time_is_stopped(tmp_path):
    def waits(task, folder):
        signal.pause()

    started = time.monotonic()
    with pytest.raises(FlintError, match=r"took more than 0\.1 s and was stopped"):
        run_all(waits, [0], tmp_path, Limits(seconds=0.1, memory=2**35))
    assert time.monotonic() - started < 60


def test_a_child_over_its_memory_is_stopped(tmp_path):
    def waits(task, folder):
        signal.pause()

    with pytest.raises(FlintError, match="raise the memory limit"):
        run_all(waits, [0], tmp_path, Limits(seconds=600, memory=2**10))


def test_an_error_stops_the_others(tmp_path):
    def work(task, folder):
        (folder / "pid").write_text(str(os.getpid()))
        if task:
            raise FlintError("no")
        signal.pause()

    with pytest.raises(FlintError, match="no"):
        run_all(work, [0, 1], tmp_path, LIMITS, jobs=2)
    pid = int((tmp_path / "rank0/pid").read_text() or 0)
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
