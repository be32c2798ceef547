"""A module's process: how its limits, its death and its last output are reported."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys

import pytest

from flint.errors import FlintError
from flint.host.child_processes import Limits
from flint.host.module_process import ModuleProcess

CHILD = """\
import os, signal, sys, time
sys.stdin.readline()
what = sys.argv[1]
if what == "waits":
    time.sleep(600)
if what == "dies":
    sys.stderr.write("E0000 file.cc:1] Check failed: rank == 2\\n")
    sys.stderr.flush()
    os.kill(os.getpid(), signal.SIGABRT)
if what == "refuses":
    sys.exit("reason: not today")
sys.exit(3)
"""


@pytest.fixture
def child(tmp_path, monkeypatch):
    (tmp_path / "a_child_of_a_test.py").write_text(CHILD)
    monkeypatch.syspath_prepend(str(tmp_path))

    def start(what, seconds=300.0, memory=2**40):
        limits = Limits(seconds, memory)
        return ModuleProcess("a_child_of_a_test", [what], "the compiler", "8 devices", limits)

    return start


def outcome(process):
    process.begin({}, b"")
    while not process.ended():
        process.check_limits()
    return process.reason()


def test_over_the_time_limit_it_is_stopped(child):
    with (
        child("waits", seconds=0.1) as process,
        pytest.raises(FlintError, match=r"compiler took more than 0\.1 s for 8 devices"),
    ):
        outcome(process)
    assert process.process.returncode is not None


def test_over_the_memory_limit_it_is_stopped(child):
    with (
        child("waits", memory=1) as process,
        pytest.raises(FlintError, match=r"more than the limit of 1 B, and was stopped"),
    ):
        outcome(process)


def test_a_signal_is_reported_with_the_last_words(child):
    with child("dies") as process:
        assert outcome(process) == (
            "its process died of SIGABRT (E0000 file.cc:1] Check failed: rank == 2)"
        )


def test_a_reason_is_reported_unchanged(child):
    with child("refuses") as process:
        assert outcome(process) == "not today"


def test_silence_is_reported(child):
    with child("quits") as process:
        assert outcome(process) == "its process ended with status 3 and no result"


SEVERAL = """\
import sys
from pathlib import Path
from flint.host.requests import requests
for place, _, data in requests(Path(sys.argv[1])):
    sys.stderr.write(f"{data.decode()} of {place.name}\\n")
    if data == b"last":
        sys.exit("reason: no more")
"""


def test_one_process_takes_several_requests(tmp_path, monkeypatch):
    """What it says is told for each alone; one that has ended takes no more."""
    (tmp_path / "a_child_of_several.py").write_text(SEVERAL)
    monkeypatch.syspath_prepend(str(tmp_path))
    limits = Limits(300.0, 2**40)
    with ModuleProcess("a_child_of_several", [], "the compiler", "8 devices", limits) as process:
        for module in (b"first", b"second", b"last"):
            assert process.waits()
            process.begin({}, module)
            while not process.ended():
                process.check_limits()
            said = process.log().splitlines()
            assert said[0] == f"{module.decode()} of {process.place.name}"
        assert process.reason() == "no more"
        assert not process.waits()
        process.begin({}, b"one more")
        assert process.ended()


#: A child that keeps a pipe open as long as it lives, and a parent that waits forever.
BESIDE_A_PIPE = """\
import sys, time
from flint.host.child_processes import end_with_parent
end_with_parent()
pipe = open(sys.argv[1], "w")
pipe.write("here")
pipe.flush()
time.sleep(600)
"""
PARENT = """\
import sys, time
from flint.host.child_processes import Limits
from flint.host.module_process import ModuleProcess
with ModuleProcess("a_child_beside_a_pipe", [sys.argv[1]], "", "", Limits(1, 1)):
    time.sleep(600)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="what Linux does")
def test_it_ends_with_a_parent_that_is_killed(tmp_path):
    (tmp_path / "a_child_beside_a_pipe.py").write_text(BESIDE_A_PIPE)
    os.mkfifo(tmp_path / "pipe")
    path = os.pathsep.join([str(tmp_path), *filter(None, sys.path)])
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, str(tmp_path / "pipe")],
        env=os.environ | {"PYTHONPATH": path},
    )
    with (tmp_path / "pipe").open("rb", buffering=0) as pipe:
        assert pipe.read(4) == b"here"
        parent.send_signal(signal.SIGKILL)
        parent.wait()
        ended, _, _ = select.select([pipe], [], [], 60)
        assert ended and pipe.read() == b""
