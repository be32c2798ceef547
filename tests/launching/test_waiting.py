"""Programs that make no progress: said with the line where they wait, and not ended by a guess."""

from __future__ import annotations

import functools
import os
import re
import signal
import sys
import threading
import time
import weakref
from pathlib import Path

import pytest

from flint import registry
from flint.capturing import user_frames
from flint.errors import FlintError
from flint.host.tasks import run_all
from flint.launching import waiting
from flint.launching.child import be_program, limits_of
from flint.launching.program import Cluster, Program, ProgramRequest
from flint.launching.running import run

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


FAILS = """
import os, threading
def produce():
    raise ValueError("no more")
if not os.fork():
    thread = threading.Thread(target=produce, name="producer")
    thread.start()
    thread.join()
    os._exit(0)
os.wait()
"""


def test_a_thread_that_an_error_ends_is_named_with_its_line(tmp_path, monkeypatch):
    """Also one of a process that the program forks, as a data loader's workers are."""
    monkeypatch.setattr(waiting, "tell", lambda line: Path("said").write_text(line))
    monkeypatch.setattr(registry, "PROGRAMS", {})
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text(FAILS)
    cluster = Cluster(world=8, per_node=8)
    request = ProgramRequest(program=Program(target="train.py"), cluster=cluster)
    with pytest.raises(FlintError):  # it has no step
        run_all(functools.partial(be_program, request), [0], tmp_path, limits_of(request))
    said = "a thread of the program failed at train.py:4: ValueError: no more"
    assert Path("said").read_text() == said


WORKS = """
def prepare():
    while True:
        sum(range(1000))
prepare()
"""


def test_a_program_that_works_for_long_is_named_with_its_line(tmp_path, monkeypatch):
    def tell(line):
        with Path("said").open("a") as said:
            said.write(f"{line}\n")
        if len(Path("said").read_text().splitlines()) == 3:
            signal.pthread_kill(threading.main_thread().ident, signal.SIGALRM)

    for name, value in (("_LONG", 0.3), ("_LOOKS", 0.02), ("tell", tell)):
        monkeypatch.setattr(waiting, name, value)
    monkeypatch.setattr(registry, "PROGRAMS", {})
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text(WORKS)
    cluster = Cluster(world=8, per_node=8)
    request = ProgramRequest(program=Program(target="train.py"), cluster=cluster)
    with pytest.raises(FlintError, match=r"stopped at train\.py:[34]"):
        run_all(functools.partial(be_program, request), [0, 1], tmp_path, limits_of(request), 2)
    said = Path("said").read_text().splitlines()
    at = r"train\.py has run for (\d+) s, and its step is not complete: it is at train\.py:[34]"
    found = [re.fullmatch(at, line) for line in said]
    assert len(found) == 3 and all(found)
    assert int(found[1][1]) >= 1  # after 0.3, 0.6 and 1.2 s, once for both ranks


def test_a_library_that_is_the_program_is_named_with_its_line_not_with_flints_script(
    tmp_path, monkeypatch, capsys
):
    packages = tmp_path / "site-packages"
    packages.mkdir()
    source = "from flint.capturing.user_frames import own_line\nprint(own_line())"
    (packages / "library_that_trains.py").write_text(source)
    monkeypatch.setattr(user_frames, "_INSTALLED", (f"{packages}{os.sep}",))
    monkeypatch.setattr(sys, "argv", sys.argv)
    monkeypatch.syspath_prepend(str(packages))
    run(Program(target="library_that_trains", is_module=True))
    assert capsys.readouterr().out == "library_that_trains.py:2\n"


def test_nothing_is_told_once_the_step_has_been_found(monkeypatch):
    told = []
    for name, value in (("_LONG", 0.0), ("_LOOKS", 0.01), ("tell", told.append)):
        monkeypatch.setattr(waiting, name, value)
    signal.setitimer(signal.ITIMER_REAL, 0)
    waiting._look("train.py", 10.0, lambda _: None, Path())  # returns
    assert not told


class Tensor:
    """Anything that is known to be gone."""


def test_looking_at_a_program_keeps_none_of_its_variables(monkeypatch):
    def compute():
        tensor = Tensor()
        return weakref.ref(tensor), sum(range(1000))

    monkeypatch.setattr(waiting, "_LOOKS", 0.01)
    signal.setitimer(signal.ITIMER_REAL, 60)
    try:
        waiting.watch("train.py", 60.0, lambda _: None, Path())
        end = time.monotonic() + 0.5
        while time.monotonic() < end:
            assert compute()[0]() is None
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


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
