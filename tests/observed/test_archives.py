"""Traces in archives: an archive stands for its folder, within bounds."""

from __future__ import annotations

import io
import random
import tarfile
import zipfile
from pathlib import Path

import pytest

from flint.errors import FlintError
from flint.host import packed_files
from flint.observed import archives
from flint.observed.folders import expanded
from flint.observed.reading import is_trace
from flint.observed.sources import openable
from flint.post_execution.rank_names import ranks_of_names
from tests.support.command_line import flint_here

DATA = Path(__file__).parents[1] / "data" / "profiles"
RANKS = {"run/rank0.json": b'{"traceEvents": []}', "run/rank1.json": b'{"traceEvents": [1]}'}


def tar(path, members, mode="w:gz"):
    with tarfile.open(path, mode) as archive:
        for name, data in members.items():
            item = tarfile.TarInfo(name)
            item.size = len(data)
            archive.addfile(item, io.BytesIO(data))
    return path


def zipped(path, members):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return path


MAKERS = {
    "run.tar": lambda path, members: tar(path, members, "w"),
    "run.tar.gz": tar,
    "run.zip": zipped,
}


@pytest.mark.parametrize("name", MAKERS)
def test_an_archive_is_the_folder_of_its_traces(tmp_path, name):
    members = {**RANKS, "run/README.md": b"x", "run/._rank0.json": b"x"}
    path = MAKERS[name](tmp_path / name, members)
    assert is_trace(path)
    with openable([path]) as traces:
        files = expanded(traces.paths)
        assert {file.name: file.read_bytes() for file in files} == {
            "rank0.json": RANKS["run/rank0.json"], "rank1.json": RANKS["run/rank1.json"]
        }  # fmt: skip
    assert not files[0].parent.exists()


def test_files_of_one_name_in_two_folders_are_both_there(tmp_path):
    path = tar(tmp_path / "t.tar.gz", {"a/trace.json": b"{1", "b/trace.json": b"{2"})
    with openable([path]) as traces:
        found = {file.name: file.read_bytes() for file in traces.paths[0].iterdir()}
    assert found == {"a_trace.json": b"{1", "b_trace.json": b"{2"}


def test_the_ranks_of_folders_are_told_by_the_names_of_all_files(tmp_path):
    members = {f"run/rank_{rank}/trace.json": b"%d" % rank for rank in (3, 0, 2, 1)}
    with openable([zipped(tmp_path / "t.zip", members)]) as traces:
        files = list(traces.paths[0].iterdir())
        ranks = ranks_of_names([file.name for file in files])
        assert ranks == [int(file.read_bytes()) for file in files]


@pytest.mark.parametrize("name", ["../../out.json", "/out.json", "a/../../out.json"])
def test_nothing_is_written_outside_of_the_folder(tmp_path, name):
    path = tar(tmp_path / "t.tar.gz", {name: b"{"})
    with openable([path]) as traces:
        assert [file.name for file in traces.paths[0].iterdir()] == ["out.json"]
    assert sorted(file.name for file in tmp_path.iterdir()) == ["t.tar.gz"]


def test_links_in_an_archive_are_left_out(tmp_path):
    with tarfile.open(tmp_path / "t.tar.gz", "w:gz") as archive:
        link = tarfile.TarInfo("rank0.json")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(link)
    with (
        pytest.raises(FlintError, match="no trace in the archive"),
        openable([tmp_path / "t.tar.gz"]),
    ):
        pass


def test_an_archive_that_unpacks_to_too_much_is_refused(tmp_path, monkeypatch):
    path = tar(tmp_path / "t.tar.gz", {"rank0.json": b" " * 5000})
    monkeypatch.setattr(archives, "_MAX_BYTES", 4000)
    with pytest.raises(FlintError), openable([path]):
        pass
    path = zipped(tmp_path / "t.zip", {"rank0.json": b" " * 500_000})
    monkeypatch.setattr(packed_files, "_HARMLESS", 1000)
    with (
        pytest.raises(FlintError, match="zip archive expand by a factor of more than 250"),
        openable([path]),
    ):
        pass


@pytest.mark.parametrize("name", MAKERS)
def test_a_damaged_archive_is_one_clear_line(tmp_path, name):
    noise = random.Random(0).randbytes(20_000)
    data = MAKERS[name](tmp_path / name, {"rank0.json": noise}).read_bytes()
    (tmp_path / name).write_bytes(data[: len(data) // 2])
    with pytest.raises(FlintError, match=name) as caught, openable([tmp_path / name]):
        pass
    assert "\n" not in str(caught.value)


def refused(path):
    """The error, in one line."""
    with pytest.raises(FlintError, match=path.name) as caught, openable([path]):
        pass
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_name_that_no_file_can_have_is_one_clear_line(tmp_path):
    with tarfile.open(tmp_path / "t.tar", "w", format=tarfile.PAX_FORMAT) as archive:
        item = tarfile.TarInfo("rank0.json")
        item.pax_headers = {"path": "rank\0.json"}
        archive.addfile(item)
    assert "damaged archive" in refused(tmp_path / "t.tar")
    data = zipped(tmp_path / "t.zip", {"é.json": b"{}"}).read_bytes()
    (tmp_path / "t.zip").write_bytes(data.replace("é".encode(), b"\xff\xfe"))
    assert "damaged archive" in refused(tmp_path / "t.zip")


def test_damage_in_deflated_data_is_one_clear_line(tmp_path):
    path = zipped(tmp_path / "t.zip", {"rank0.json": random.Random(0).randbytes(500)})
    data = bytearray(path.read_bytes())
    data[60:90] = b"\xff" * 30
    path.write_bytes(data)
    assert "damaged archive" in refused(path)


def test_names_are_bounded_before_they_are_read(tmp_path):
    """A header for the next member's name says that it has a gigabyte."""
    header = tarfile.TarInfo("x")
    for kind in (tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.GNUTYPE_LONGNAME):
        header.type, header.size = kind, 1 << 30
        path = tmp_path / "t.tar"
        path.write_bytes(header.tobuf(tarfile.USTAR_FORMAT) + b"1" * 2048)
        assert "damaged archive (a header of 1,073,741,824 bytes)" in refused(path)


def test_a_map_of_holes_is_not_read(tmp_path):
    with tarfile.open(tmp_path / "t.tar", "w", format=tarfile.PAX_FORMAT) as archive:
        item = tarfile.TarInfo("rank0.json")
        item.pax_headers = {"GNU.sparse.major": "1", "GNU.sparse.minor": "0"}
        item.size = 4096
        archive.addfile(item, io.BytesIO(b"1" * 4096))
    assert "a sparse file in it" in refused(tmp_path / "t.tar")


def test_members_that_are_not_files_count_too(tmp_path, monkeypatch):
    monkeypatch.setattr(archives, "_MAX_MEMBERS", 20)
    with tarfile.open(tmp_path / "t.tar", "w") as archive:
        for number in range(21):
            item = tarfile.TarInfo(f"folder{number}")
            item.type = tarfile.DIRTYPE
            archive.addfile(item)
    assert "more than 20 files" in refused(tmp_path / "t.tar")


def test_no_trace_replaces_another(tmp_path):
    members = [("t.json", b"{1"), ("2_t.json", b"{2"), ("t.json", b"{3")]
    with tarfile.open(tmp_path / "t.tar", "w") as archive:
        for name, data in members:
            item = tarfile.TarInfo(name)
            item.size = len(data)
            archive.addfile(item, io.BytesIO(data))
    with openable([tmp_path / "t.tar"]) as traces:
        assert sorted(file.read_bytes() for file in traces.paths[0].iterdir()) == [
            b"{1",
            b"{2",
            b"{3",
        ]


def test_an_error_about_a_trace_in_an_archive_names_the_archive(tmp_path):
    path = tar(tmp_path / "t.tar.gz", RANKS)
    with pytest.raises(FlintError) as caught, openable([path]) as traces:
        raise FlintError(f"{traces.paths[0] / 'rank0.json'}: no")
    assert str(caught.value) == f"{path}/rank0.json: no"


def test_an_explanation_of_an_archive_names_the_archive(tmp_path):
    """It named the folder for temporary files, in JSON too."""
    plain = DATA / "event_sync.json.gz"
    path = tar(tmp_path / "t.tar", {plain.name: plain.read_bytes()}, "w")
    said = [flint_here("explain", given, "--json", cwd=tmp_path) for given in (plain, path)]
    assert [run.returncode for run in said] == [0, 0]
    assert said[1].stdout == said[0].stdout.replace(str(plain), f"{path}/{plain.name}")


def test_a_long_list_of_members_is_not_read(tmp_path, monkeypatch):
    """`zipfile` takes the list into memory, each entry of 46 bytes as an object of hundreds."""
    path = zipped(tmp_path / "t.zip", {f"{number}.json": b"{}" for number in range(100)})
    monkeypatch.setattr(archives, "_MAX_DIRECTORY", 5000)
    assert "damaged archive (a list of members of 5,290 bytes)" in refused(path)


@pytest.mark.parametrize("kind", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_what_is_not_unpacked_piece_by_piece_is_refused(tmp_path, kind):
    """A megabyte of LZMA may become seven gigabytes at once, whatever size the archive states."""
    with zipfile.ZipFile(tmp_path / "t.zip", "w", kind) as archive:
        archive.writestr("rank0.json", b"{}")
    assert "neither deflated nor stored" in refused(tmp_path / "t.zip")
