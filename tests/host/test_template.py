"""Templates: what was done before is done once, and copies end as children do."""

from __future__ import annotations

import os
import signal

import pytest

from flint.errors import FlintError
from flint.host.child_processes import Limits
from flint.host.tasks import run_all, run_each
from flint.host.template import Template

LIMITS = Limits(seconds=600, memory=2**35)


def asked(tmp_path, tasks, then):
    """Folders of tasks that copies of a first process do, which counts how often it begins."""

    def work(task, folder):
        with open(tmp_path / "begun", "a") as begun:
            begun.write("x")
        task, folder = template.leave() or (task, folder)
        then(task, folder)
        os._exit(0)

    with Template() as template:
        run_all(work, [0], tmp_path, LIMITS)
        assert template.is_there()
        return run_each(template, tasks, tmp_path, LIMITS, jobs=2)


def test_what_came_before_is_done_once(tmp_path):
    def then(task, folder):
        (folder / "result").write_text(str(task * task))

    folders = asked(tmp_path, [5, 2, 3], then)
    results = {task: (place / "result").read_text() for task, place in folders.items()}
    assert results == {2: "4", 3: "9", 5: "25"}
    assert (tmp_path / "rank0/result").read_text() == "0"
    assert (tmp_path / "begun").read_text() == "x"


def test_a_process_that_leaves_none_has_none(tmp_path):
    with Template() as template:
        run_all(lambda task, folder: None, [0], tmp_path, LIMITS)
        assert not template.is_there()


def test_the_death_of_a_copy_is_reported(tmp_path):
    def then(task, folder):
        if task:
            os.kill(os.getpid(), signal.SIGKILL)

    with pytest.raises(FlintError, match="rank 4 died of SIGKILL"):
        asked(tmp_path, [4], then)
