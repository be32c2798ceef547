"""Files left by a killed process are removed by the next one, and no other files are."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from flint.errors import FlintError
from flint.host import owners
from flint.host.owners import is_left, mark, remove_left
from flint.host.temporary import temporary_folder
from flint.host.writing import replacing, replacing_folder
from tests.support.children import HUNG

#: Writes a file and a folder, has a temporary folder, and is killed in the middle of all three.
KILLED = """
import os, signal, sys
from pathlib import Path
from flint.host.temporary import temporary_folder
from flint.host.writing import replacing, replacing_folder
place = Path(sys.argv[1])
with replacing(place / "page.html") as file, replacing_folder(place / "out") as folder:
    with temporary_folder(place) as scratch:
        file.write_text("half")
        (folder / "programs").mkdir()
        (folder / "programs/half").write_text("half")
        (scratch / "request").write_text("half")
        os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture(autouse=True)
def nothing_looked_at(monkeypatch):
    monkeypatch.setattr(owners, "_looked_at", set())


def killed(place: Path) -> list[str]:
    done = subprocess.run([sys.executable, "-c", KILLED, str(place)], check=False, timeout=HUNG)
    assert done.returncode == -signal.SIGKILL
    return sorted(path.name for path in place.iterdir())


def test_what_a_killed_process_left_is_removed_by_the_next_that_writes_there(tmp_path):
    assert len(killed(tmp_path)) == 3
    with replacing(tmp_path / "other.html") as partial:
        partial.write_text("whole")
    assert [path.name for path in tmp_path.iterdir()] == ["other.html"]


def test_a_temporary_folder_of_a_killed_process_is_removed_by_the_next(tmp_path):
    killed(tmp_path)
    with temporary_folder(tmp_path) as folder:
        assert list(tmp_path.iterdir()) == [folder]
    assert list(tmp_path.iterdir()) == []


def test_a_command_leaves_no_temporary_folder_whose_end_a_signal_has_prevented(tmp_path):
    """``make torture`` 276: SIGTERM between the making of a folder and its process."""
    script = (
        "import sys; from pathlib import Path; from flint.__main__ import _end\n"
        "from flint.host.temporary import make_temporary_folder\n"
        "make_temporary_folder(Path(sys.argv[1])); _end(143, '')"
    )
    done = subprocess.run([sys.executable, "-c", script, str(tmp_path)], check=False, timeout=HUNG)
    assert done.returncode == 143
    assert list(tmp_path.iterdir()) == []


def test_what_a_running_process_works_on_stays(tmp_path):
    with replacing_folder(tmp_path / "out") as partial:
        remove_left(tmp_path)
        assert partial.is_dir()


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="states are read in /proc")
def test_a_process_that_has_ended_does_not_run_although_its_parent_has_not_asked(tmp_path):
    code = "import sys; from flint.host.owners import mark; print(mark())"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as child:
        left = tmp_path / f".out.{child.stdout.read().strip()}.partial"
        left.touch()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # it has ended, and stays a zombie
        assert is_left(left)


def test_a_process_that_has_the_number_of_a_gone_one_is_another_one(tmp_path):
    parts = mark().split("-")
    parts[3] = str(int(parts[3]) + 1)
    left = tmp_path / f".out.{'-'.join(parts)}.partial"
    assert is_left(left)


@pytest.mark.parametrize(("age", "left"), [(3600, False), (8 * 24 * 3600, True)])
def test_another_machines_files_have_an_age_limit(age, left, tmp_path):
    """Its processes cannot be looked up: file systems may be shared."""
    parts = mark().split("-")
    parts[1] = "00000000"
    path = tmp_path / f"{'-'.join(parts)}.scratch"
    path.mkdir()
    os.utime(path, (time.time() - age,) * 2)
    assert is_left(path) == left


@pytest.mark.parametrize(
    "name", ["out", ".out.partial", "flint-1-2-3", ".x.flint-zz-1-2-3.partial", "flint.scratch"]
)
def test_files_with_other_names_have_no_owner(name, tmp_path):
    (tmp_path / name).mkdir()
    remove_left(tmp_path)
    assert (tmp_path / name).is_dir()


@pytest.mark.parametrize("there_is_one", [True, False])
def test_of_two_threads_that_write_a_folder_one_wins_whole_and_the_other_reports_it(
    there_is_one, tmp_path
):
    out = tmp_path / "out"
    if there_is_one:
        out.mkdir()
        (out / "old").write_text("old")
    together = threading.Barrier(2)
    said = []

    def write(name):
        try:
            with replacing_folder(out) as partial:
                together.wait(HUNG)
                for part in ("a", "b"):
                    (partial / part).write_text(name)
                together.wait(HUNG)
        except FlintError as error:
            said.append(str(error))

    threads = [threading.Thread(target=write, args=(name,)) for name in ("one", "other")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(HUNG)
    assert len(said) == 1 and "another process wrote this folder" in said[0]
    texts = {path.name: path.read_text() for path in out.iterdir()}
    assert texts in ({"a": name, "b": name} for name in ("one", "other"))
    assert list(tmp_path.iterdir()) == [out]


#: Writes a folder; is told when to begin and when to end.
WRITES = """
import sys
from pathlib import Path
from flint.errors import FlintError
from flint.host.writing import replacing_folder
try:
    with replacing_folder(Path(sys.argv[1])) as folder:
        for part in ("a", "b"):
            (folder / part).write_text(sys.argv[2])
            print(part, flush=True)
            input()
except FlintError as error:
    sys.exit(str(error))
"""


def test_of_two_processes_that_write_a_folder_one_wins_whole_and_the_other_reports_it(tmp_path):
    out = tmp_path / "out"
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", WRITES, str(out), name], text=True, env=os.environ,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )
        for name in ("one", "other")
    ]  # fmt: skip
    for part in ("a", "b"):
        for process in processes:
            assert process.stdout.readline() == f"{part}\n"
        if part == "a":
            for process in processes:
                process.stdin.write("\n")
                process.stdin.flush()
    said = [process.communicate("\n", timeout=HUNG)[1] for process in processes]
    assert [process.returncode for process in processes] == [0, 1]
    assert not said[0] and "another process wrote this folder" in said[1]
    assert {path.name: path.read_text() for path in out.iterdir()} == {"a": "one", "b": "one"}
    assert list(tmp_path.iterdir()) == [out]


@pytest.mark.parametrize("exchange", [True, False])
def test_a_folder_that_was_there_is_replaced_in_one_piece(exchange, tmp_path, monkeypatch):
    """With file systems that let two folders change places, and with others."""
    if not exchange:
        monkeypatch.setattr("flint.host.writing._exchange", lambda one, other: False)
    out = tmp_path / "out"
    for text in ("first", "second"):
        with replacing_folder(out) as partial:
            (partial / "a").write_text(text)
    assert (out / "a").read_text() == "second"
    with pytest.raises(FlintError, match="in the meantime"), replacing_folder(out) as partial:
        with replacing_folder(out) as other:
            (other / "a").write_text("third")
        (partial / "a").write_text("fourth")
    assert (out / "a").read_text() == "third"
    assert list(tmp_path.iterdir()) == [out]
