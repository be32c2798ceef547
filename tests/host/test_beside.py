"""Work in a fork, beside what its parent does."""

from __future__ import annotations

import os
import sys

import pytest

from flint.host.beside import Beside

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="forks return files of Linux")


def fails():
    raise ValueError("for a reason that the parent meets itself")


def test_a_fork_returns_bytes_of_any_length():
    other = Beside(lambda: b"x" * 10_000_000 + str(os.getpid()).encode())
    found = other.result()
    other.end()
    assert found is not None
    assert int(found[10_000_000:]) != os.getpid()


@pytest.mark.parametrize("work", [fails, lambda: os._exit(3), lambda: os.kill(os.getpid(), 9)])
def test_a_fork_that_fails_has_no_result_and_says_nothing(work, capfd):
    other = Beside(work)
    assert other.result() is None
    other.end()
    assert capfd.readouterr() == ("", "")


def test_a_fork_whose_result_is_not_needed_is_ended():
    reading, writing = os.pipe()

    def waits():
        os.close(writing)
        return os.read(reading, 1)  # nobody writes, and its parent keeps the other end open

    other = Beside(waits)
    process = other._process
    other.end()
    with pytest.raises(ChildProcessError):
        os.waitpid(process, 0)
    os.close(reading)
    os.close(writing)
