"""Whether a program's process can be copied."""

from __future__ import annotations

import multiprocessing
import os
import socket
from pathlib import Path

import pytest

from flint.launching.own import Own

pytestmark = pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="it needs /proc")

OPENINGS = {
    "nothing": lambda _: None,
    "a file of processes": lambda _: Path("/proc/self/stat").open(),  # noqa: SIM115
    "a file": lambda folder: (folder / "kept").open("w"),
    "a socket": lambda _: socket.socket(),
}


def _answer(answers, folder):
    own, found = Own(0, folder), {}
    for name, opening in OPENINGS.items():
        kept = opening(folder)
        found[name] = own.can_be_copied()
        if kept is not None:
            kept.close()
    pipe = os.pipe()
    found["a pipe"] = own.can_be_copied()
    os.close(pipe[1])
    found["what is left of a pipe"] = own.can_be_copied()
    answers.send(found)


@pytest.fixture(scope="module")
def answers(tmp_path_factory):
    """What a process without threads says while it has something open."""
    context = multiprocessing.get_context("spawn")
    mine, others = context.Pipe(duplex=False)
    process = context.Process(target=_answer, args=(others, tmp_path_factory.mktemp("own")))
    process.start()
    found = mine.recv()
    process.join()
    return found


@pytest.mark.parametrize("opening", ["a file", "a socket", "a pipe"])
def test_a_process_with_what_copies_would_share_is_not_copied(opening, answers):
    assert not answers[opening]


@pytest.mark.parametrize("opening", ["nothing", "what is left of a pipe", "a file of processes"])
def test_any_other_process_without_threads_can_be_copied(opening, answers):
    """A file of processes is what the thread that watches for progress has open for a moment."""
    assert answers[opening]
