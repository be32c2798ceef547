"""Forked children that compute."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from flint.host.child_processes import Limits, fork, none_left
from tests.support.children import HUNG


class Client:
    """What must end where its threads are; part of a circle, so that only the collector ends it."""

    def __init__(self, end: int) -> None:
        self.itself = self
        self.end = end

    def __del__(self) -> None:
        os.write(self.end, b"ended")


def test_a_forked_child_does_not_end_what_was_garbage_in_its_parent() -> None:
    reading, writing = os.pipe()
    gc.disable()
    try:
        Client(writing)
        process = fork()
        if not process:
            gc.collect()
            os._exit(0)
        assert os.waitpid(process, 0)[1] == 0
        os.set_blocking(reading, False)
        try:
            said = os.read(reading, 100)
        except BlockingIOError:
            said = b""
        assert said == b""
        gc.collect()
        assert os.read(reading, 100) == b"ended"
    finally:
        gc.enable()
        os.close(reading)
        os.close(writing)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells whose children they are")
def test_processes_whose_parent_has_ended_do_not_stay() -> None:
    command = ["sh", "-c", "sleep 600 >/dev/null 2>&1 & echo $!"]
    earlier = subprocess.Popen(["sleep", "600"])
    with none_left():
        said = subprocess.run(command, capture_output=True, check=True).stdout
        os.kill(int(said), 0)  # it is there
    with pytest.raises(ProcessLookupError):
        os.kill(int(said), 0)
    assert earlier.poll() is None
    earlier.kill()
    earlier.wait()


def start_a_sleeper(task: int, folder: Path) -> None:
    subprocess.Popen(["sleep", "99999"])  # it has the standard output
    os.write(1, b"there\n")
    time.sleep(99999)


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere children outlive their parent")
def test_when_a_process_is_killed_what_its_children_have_started_ends(tmp_path: Path) -> None:
    module, limits = start_a_sleeper.__module__, Limits(99999, 2**40)
    script = (
        "from pathlib import Path\n"
        f"from flint.host.tasks import run_all\nfrom {module} import *\n"
        f"with none_left(): run_all(start_a_sleeper, [0], Path({str(tmp_path)!r}), {limits!r})"
    )
    command = [sys.executable, "-c", script]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=Path(__file__).parents[2]) as run:
        assert run.stdout is not None
        assert run.stdout.readline() == b"there\n"
        run.kill()
        # The pipe ends when nobody has it any more.
        assert run.communicate(timeout=HUNG) == (b"", None)
