"""A process that stands ready behaves as one that is started: json.tool stands for a compiler."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.children import HUNG
from tests.sweeps.test_command import alive, happens

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="forks on Linux only")

BEGIN = """
import os, subprocess, sys
from pathlib import Path
from flint import registry
from flint.host import spare_process
registry.SPARES = {"json.tool": "jax"}
spare_process.prepare()

def take(*arguments, module="json.tool", **variables):
    return spare_process.take(module, arguments, {**os.environ, **variables}, Path("messages"))

"""


def run(script, folder):
    return subprocess.run(
        [sys.executable, "-c", BEGIN + script], cwd=folder, capture_output=True, text=True,
        env={"PYTHONPATH": str(ROOT), "PATH": ""}, check=True, timeout=HUNG,
    ).stdout.split()  # fmt: skip


def test_it_runs_the_module_with_its_arguments(tmp_path):
    (tmp_path / "in.json").write_text('{"a":\n1}')
    script = 'made = take("in.json", "out.json", "--compact")\nprint(made.wait(), made.poll())'
    assert run(script, tmp_path) == ["0", "0"]
    assert json.loads((tmp_path / "out.json").read_text()) == {"a": 1}
    assert (tmp_path / "messages").read_text() == ""


def test_it_reads_what_it_is_sent_until_the_end(tmp_path):
    script = (
        'made = take("-", "out.json")\n'
        "print(made.poll())\n"
        'made.stdin.write(b"[2]")\n'
        "made.stdin.close()\n"
        "print(made.wait(30))"
    )
    assert run(script, tmp_path) == ["None", "0"]
    assert json.loads((tmp_path / "out.json").read_text()) == [2]


def test_its_failure_is_a_status_and_a_message(tmp_path):
    (tmp_path / "in.json").write_text("{")
    assert run('print(take("in.json").wait())', tmp_path) == ["1"]
    assert "Expecting property name" in (tmp_path / "messages").read_text()


def test_it_can_be_waited_for_and_killed(tmp_path):
    script = (
        "made = take()\n"
        "try:\n"
        "    made.wait(0.01)\n"
        "except subprocess.TimeoutExpired:\n"
        "    print('waits')\n"
        "made.kill()\n"
        "print(made.wait())\n"
        "made.kill()"
    )
    assert run(script, tmp_path) == ["waits", "-9"]


def test_there_is_one_and_for_its_module_alone(tmp_path):
    script = 'print(take(module="this"))\nprint(take("-h").wait())\nprint(take("-h"))'
    assert run(script, tmp_path) == ["None", "0", "None"]


def test_it_ends_when_it_is_no_longer_needed(tmp_path):
    number = int(run("print(spare_process._spare.pid)", tmp_path)[0])
    assert happens(lambda: not alive(number))


@pytest.mark.parametrize(
    ("threads", "small", "taken"), [(0, 1 << 40, 1), (1, 1 << 40, 0), (0, 1, 0)]
)
def test_a_small_process_without_threads_is_copied(tmp_path, threads, small, taken):
    """Else a lock may be held, or what is there would count against the copy's limits."""
    script = (
        "import threading\n"
        "end = threading.Event()\n"
        f"others = [threading.Thread(target=end.wait) for _ in range({threads})]\n"
        "[one.start() for one in others]\n"
        f"spare_process._SMALL = {small}\n"
        "take('-h').wait()\n"  # the one that stands ready already
        "spare_process.prepare_if_small()\n"
        "print(int(spare_process._spare is not None))\n"
        "end.set()"
    )
    assert run(script, tmp_path) == [str(taken)]
