"""Files are complete or absent, and a path that is not a file stays unchanged."""

from __future__ import annotations

import os
import stat
import threading
from pathlib import Path

import pytest

from flint.errors import FlintError, UsageError
from flint.host.writing import replacing


def test_a_file_is_the_old_one_until_the_block_ends_well(tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    path.write_text("old")
    with (
        pytest.raises(FlintError, match="cannot be written"),
        replacing(path) as partial,
    ):
        partial.write_text("half")
        raise OSError("the disk is full")
    assert path.read_text() == "old"
    with replacing(path) as partial:
        partial.write_text("new")
        assert path.read_text() == "old"
    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("there_is_one", [True, False])
def test_a_link_stays_and_its_file_is_replaced(there_is_one: bool, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    target = tmp_path / "elsewhere" / "page.html"
    if there_is_one:
        target.write_text("old")
    link = tmp_path / "link.html"
    link.symlink_to("elsewhere/page.html")
    with replacing(link) as partial:
        partial.write_text("new")
    assert link.is_symlink()
    assert os.readlink(link) == "elsewhere/page.html"
    assert target.read_text() == "new"
    assert sorted(item.name for item in tmp_path.rglob("*")) == [
        "elsewhere", "link.html", "page.html",
    ]  # fmt: skip


@pytest.mark.parametrize("through_a_link", [True, False])
def test_a_pipe_is_written_to_and_stays_one(through_a_link: bool, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    path = pipe
    if through_a_link:
        path = tmp_path / "link"
        path.symlink_to(pipe)
    got: list[str] = []
    reader = threading.Thread(target=lambda: got.append(pipe.read_text()), daemon=True)
    reader.start()
    with replacing(path) as partial:
        partial.write_text("whole")
    reader.join(20)
    assert got == ["whole"]
    assert stat.S_ISFIFO(pipe.stat().st_mode)


def test_links_in_a_circle_are_one_line(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    one.symlink_to(other)
    other.symlink_to(one)
    with pytest.raises(FlintError, match="one: cannot be written"), replacing(one) as partial:
        partial.write_text("x")
    assert one.is_symlink()


def test_a_file_in_a_file_has_no_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="no folder"), replacing(tmp_path / "file" / "x"):
        pass
