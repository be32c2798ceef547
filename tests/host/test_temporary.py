"""Which place an error is about that names none."""

import errno
import os

import pytest

from flint.host import temporary
from flint.host.temporary import of_no_file

FULL = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.fixture
def place(monkeypatch, tmp_path):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return tmp_path


def test_a_full_temporary_folder_is_named(monkeypatch, place):
    used = type("Usage", (), {"free": 0})
    monkeypatch.setattr(temporary.shutil, "disk_usage", lambda _: used)
    line = f"{place}: temporary files cannot be written there (the disk is full)"
    assert of_no_file(FULL).startswith(line)


def test_where_there_is_room_it_is_the_standard_output(place):
    assert of_no_file(FULL) == "standard output: the disk is full"


def test_another_error_is_reported_in_the_systems_words(place):
    broken = OSError(errno.EIO, os.strerror(errno.EIO))
    assert of_no_file(broken) == "standard output: Input/output error"
