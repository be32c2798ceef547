"""``flint capture``: user code that ends the process is one line, and signals reach the work."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

from flint.host.crashes import frames_in, without_report
from tests.support.children import HUNG
from tests.support.command_line import failed, flint

COMMAND = ("capture", "train.py:step", "--mesh", "4", "-o", "out")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("import os\nos._exit(0)", "the capture left at train.py:2 (os._exit(0)): a step must"),
        ("import ctypes\n\ndef f():\n    ctypes.string_at(0)\nf()",
         "the capture died of SIGSEGV at train.py:4"),
        ("import os\nos.abort()", "the capture died of SIGABRT at train.py:2"),
    ],
)  # fmt: skip
def test_a_step_file_that_ends_the_process_is_one_line(tmp_path, text, words):
    (tmp_path / "train.py").write_text(text)
    assert words in failed(flint(*COMMAND, cwd=tmp_path), 1)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_to_the_command_ends_the_work(tmp_path, number):
    began = tmp_path / "began"
    (tmp_path / "train.py").write_text(
        f"import os, time\nopen({str(began)!r}, 'w').write(str(os.getpid()))\ntime.sleep(600)\n"
    )
    run = subprocess.Popen(
        [sys.executable, "-m", "flint", *COMMAND], cwd=tmp_path, stderr=subprocess.PIPE, text=True
    )
    while not (began.exists() and began.read_text()):
        assert run.poll() is None
        time.sleep(0.05)
    run.send_signal(number)
    said = "interrupted" if number == signal.SIGINT else "ended by SIGTERM"
    assert run.communicate(timeout=HUNG)[1] == f"flint: {said}\n"
    assert run.returncode == 128 + number
    with pytest.raises(ProcessLookupError):
        os.kill(int(began.read_text()), 0)


REPORT = """Check failed: x > 0
Fatal Python error: Aborted

Thread 0x00007f11 (most recent call first):
  File "a.py", line 1 in wait

Current thread 0x00007f12 (most recent call first):
  File "b c.py", line 4 in f
  File "d.py", line 5 in <module>

Extension modules: numpy.core (total: 1)
"""


def test_the_thread_that_crashed_is_read_from_the_report():
    assert frames_in(REPORT) == (("b c.py", 4), ("d.py", 5))
    assert without_report(REPORT) == "Check failed: x > 0\n"
    assert frames_in("no crash") == ()
    assert without_report("no crash") == "no crash"
