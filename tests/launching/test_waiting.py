"""Programs that make no progress: said with the line where they wait, and not ended by a guess."""

from __future__ import annotations

import functools
import os
import signal
import threading
import time
from pathlib import Path

import pytest

from flint import registry
from flint.errors import FlintError
from flint.host.tasks import run_all
from flint.launching import waiting
from flint.launching.child import be_program, limits_of
from flint.launching.program import Cluster, Program, ProgramRequest

WAITS = """
import threading
def peer():
    threading.Event().wait()
peer()
"""


def test_a_program_that_waits_is_named_with_its_line_before_its_time_is_over(tmp_path, monkeypatch):
    def tell(line):
        Path("said").write_text(line)
        signal.pthread_kill(threading.main_thread().ident, signal.SIGALRM)  # its time is over

    for name, value in (("_QUIET", 0.1), ("_LOOKS", 0.05), ("tell", tell)):
        monkeypatch.setattr(waiting, name, value)
    monkeypatch.setattr(registry, "PROGRAMS", {})
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text(WAITS)
    cluster = Cluster(world=8, per_node=8)
    request = ProgramRequest(program=Program(target="train.py"), cluster=cluster)
    with pytest.raises(FlintError, match=r"stopped at train\.py:4"):
        run_all(functools.partial(be_program, request), [0], tmp_path, limits_of(request))
    assert Path("said").read_text().startswith("train.py waits at train.py:4: it has used")


def test_processes_stop_when_they_take_no_processor_time_for_long_enough():
    progress = waiting.Progress(quiet=60)
    looks = [(0, 1.0), (30, 1.2), (60, 9.0), (90, 9.1), (119, 9.2), (121, 9.21), (150, 30.0)]
    found = [progress.stopped(now, seconds, busy=False) for now, seconds in looks]
    assert found == [False, False, False, False, False, True, False]


def test_a_process_that_reads_a_disk_has_not_stopped():
    progress = waiting.Progress(quiet=60)
    assert not any(progress.stopped(now, 1.0, busy=True) for now in (0, 60, 120))


def test_time_is_that_of_all_processes_that_were_started():
    before, _ = waiting.time_of_started(os.getpid())
    ready, say = os.pipe()
    child = os.fork()
    if not child:
        while time.process_time() < 0.3:
            pass
        os.write(say, b"x")
        signal.pause()
    try:
        os.read(ready, 1)
        after, _ = waiting.time_of_started(os.getpid())
    finally:
        os.kill(child, 9)
        os.waitpid(child, 0)
    assert after - before >= 0.25
