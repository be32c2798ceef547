"""Programs without a step to capture: one line, with the program's own line in it."""

from __future__ import annotations

import pytest

from tests.support.command_line import failed, flint


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("x = 1", "imported neither"),
        ("\nraise ValueError('no data')", "train.py:2: the program failed: ValueError: no data"),
        ("import sys\nsys.exit('give a config')", "left at train.py:2 (give a config)"),
        ("batch = 5\nassert batch % 8 == 0", "AssertionError: assert batch % 8 == 0"),
        ("\ninput('name? ')", "EOFError: EOF when reading a line: it waits for input"),
        ("open('none.bin')", "train.py:1: the program failed: FileNotFoundError"),
        ("import numpy\nnumpy.memmap('none.bin')", "none.bin'; with --fake-data, Flint makes up"),
        ("import not_installed_anywhere", "train.py:1: the program failed: ModuleNotFoundError"),
        (
            "try:\n    {}['text']\nexcept KeyError as e:\n    raise RuntimeError('map') from e",
            "train.py:4: the program failed: RuntimeError: map; its cause is KeyError: 'text' at "
            "train.py:2",
        ),
        ("import ctypes\nctypes.string_at(0)", "died of SIGSEGV at train.py:2"),
        pytest.param("import os\nos.abort()", "SIGABRT at train.py:2", marks=pytest.mark.thorough),
        (
            "import os\nprint('no data', flush=True)\nos._exit(0)",
            "train.py left at train.py:3 (os._exit(0)) before its step. The last line that it "
            "printed: no data",
        ),
        ("import os\nos.execvp('true', ['true'])", "became another program"),
        ("import socket\nsocket.create_connection(('192.0.2.1', 80))", "train.py:2"),
    ],
)
def test_a_program_without_a_step_is_one_line(tmp_path, text, words):
    (tmp_path / "train.py").write_text(text)
    line = ("run", "--world", "8", "-o", "out", "--", "python", "train.py")
    assert words in failed(flint(*line, cwd=tmp_path), 1)


def test_a_file_that_ends_too_early_is_not_missing_input(tmp_path):
    (tmp_path / "train.py").write_text("import io, pickle\npickle.load(io.BytesIO())")
    done = flint("run", "--world", "8", "-o", "out", "--", "python", "train.py", cwd=tmp_path)
    assert (
        failed(done, 1)
        .strip()
        .endswith("train.py:2: the program failed: EOFError: Ran out of input")
    )
    assert not (tmp_path / "out").exists()


def test_a_program_that_takes_too_long_says_where_it_is(tmp_path):
    (tmp_path / "train.py").write_text("\nwhile True:\n    pass\n")
    line = ("run", "--world", "8", "--time-limit", "0.5", "-o", "out", "--", "train.py")
    text = failed(flint(*line, cwd=tmp_path), 1)
    assert "train.py took more than 0.5 s and was stopped at train.py:" in text


WAITS = """
import contextlib, signal, socket
for _ in range(3):
    with contextlib.suppress(OSError):
        socket.create_connection(("192.0.2.1", 80))
signal.raise_signal(signal.SIGALRM)  # as if its time were over
"""


def test_a_program_whose_time_is_over_says_what_it_may_have_waited_for(tmp_path):
    (tmp_path / "train.py").write_text(WAITS)
    text = failed(flint("run", "--world", "8", "-o", "out", "--", "train.py", cwd=tmp_path), 1)
    assert "was stopped at train.py:6" in text
    assert "a connection to 192.0.2.1 at train.py:5 is refused" in text
    assert "(3 times)" in text


def test_a_program_that_fails_on_made_up_data_says_which(tmp_path):
    text = "import numpy\ntokens = numpy.memmap('none.bin', 'u2')\nraise ValueError('all are 0')"
    (tmp_path / "train.py").write_text(text)
    line = ("run", "--world", "8", "--fake-data", "-o", "out", "--", "train.py")
    assert (
        "train.py:3: the program failed: ValueError: all are 0; this may follow from: "
        "made-up data at train.py:2: none.bin has "
    ) in failed(flint(*line, cwd=tmp_path), 1)
