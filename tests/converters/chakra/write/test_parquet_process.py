"""nodes.parquet written by a separate process, and by the command itself."""

import subprocess
import sys

import numpy as np
import pyarrow.parquet as pq
import pytest

from flint.converters.chakra.write.parquet import ParquetFile
from tests.support.children import HUNG

COLUMNS = {
    "node": (np.arange(70_000), None),
    "op": (np.arange(70_000, dtype=np.int32) % 3, ["dot", "add", ""]),
}
forked = pytest.mark.skipif(sys.platform != "linux", reason="no process is forked elsewhere")
# Alone and without pyarrow, as a command is when it begins.
BEGIN = """
import os, signal, sys
import numpy as np
from flint.converters.chakra.write import parquet_process
from flint.errors import FlintError

columns = {
    "node": (np.arange(70_000), None),
    "op": (np.arange(70_000, dtype=np.int32) % 3, ["dot", "add", ""]),
}
parquet_process.prepare()
file = parquet_process.parquet_file()
"""


def run(script):
    # OpenBLAS starts no threads, as in a command (``flint.host.environment.import_numpy``).
    done = subprocess.run(
        [sys.executable, "-P", "-c", BEGIN + script],
        capture_output=True, env={"OPENBLAS_NUM_THREADS": "1"}, timeout=HUNG, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr.decode()
    assert not done.stderr
    return done.stdout


def rows_of(content, tmp_path):
    (tmp_path / "some.parquet").write_bytes(content)
    return pq.read_table(tmp_path / "some.parquet").to_pydict()


def test_a_file_has_the_rows_that_were_added(tmp_path):
    file = ParquetFile()
    for _ in range(2):
        file.add(COLUMNS)
    texts = [["dot", "add", ""][i % 3] for i in range(70_000)]
    expected = {"node": [*range(70_000)] * 2, "op": texts * 2}
    assert rows_of(file.content(), tmp_path) == expected


@forked
def test_the_process_makes_the_same_file(tmp_path):
    found = run(
        "assert type(file).__name__ == 'ParquetProcess'\n"
        "file.add(columns)\n"
        "file.add(columns)\n"
        "content = file.content()\n"
        "assert 'pyarrow' not in sys.modules\n"
        "sys.stdout.buffer.write(content)"
    )
    file = ParquetFile()
    file.add(COLUMNS)
    file.add(COLUMNS)
    assert found == bytes(file.content())


@forked
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_killed_process_is_one_clear_error(when):
    stop = "os.kill(file.pid, signal.SIGSTOP)\n"
    add = "file.add({'node': (np.arange(3), None)})\n"
    kill = "os.kill(file.pid, signal.SIGKILL)\n"
    said = run(
        stop + (kill + add if when == "before" else add + kill)
        + "try:\n    file.content()\nexcept FlintError as error:\n    print(error)"
    )  # fmt: skip
    assert b"the process that writes it has ended (killed; out of memory?)" in said


@forked
def test_a_process_killed_in_the_middle_of_its_answer_gives_no_part_of_a_file():
    """A file of random numbers is larger than a pipe: the process waits for its reader."""
    said = run(
        "import select\n"
        "file.add({'node': (np.random.default_rng(0).integers(1 << 62, size=100_000), None)})\n"
        "file._columns.close()\n"
        "select.select([file._answer], [], [])\n"
        "os.kill(file.pid, signal.SIGKILL)\n"
        "try:\n    print(len(file.content()))\nexcept FlintError as error:\n    print(error)"
    )
    assert b"the process that writes it has ended (killed; out of memory?)" in said


@forked
def test_what_fails_in_the_process_is_reported():
    said = run(
        "columns['op'] = columns['op'][0][:5], columns['op'][1]\n"
        "file.add(columns)\n"
        "try:\n    file.content()\nexcept FlintError as error:\n    print(error)"
    )
    assert b"nodes.parquet: the process that writes it has ended (ArrowInvalid: " in said


def test_a_process_with_threads_is_not_forked():
    said = run(
        "import threading\n"
        "del file\n"
        "over = threading.Event()\n"
        "threading.Thread(target=over.wait, daemon=True).start()\n"
        "parquet_process.prepare()\n"
        "print(type(parquet_process.parquet_file()).__name__)\n"
        "over.set()"
    )
    assert said == b"ParquetFile\n"


@forked
def test_a_process_that_is_not_used_ends_by_itself():
    said = run(
        "pid = file.pid\n"
        "file._columns.close()\n"
        "file._answer.close()\n"
        "_, status = os.waitpid(pid, 0)\n"
        "print(status)"
    )
    assert said == b"0\n"
