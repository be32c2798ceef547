"""How files are written: links, stamps, space, subsets, growth."""

from __future__ import annotations

import errno
import os
import shutil
from collections import namedtuple

import numpy as np
import pytest

from flint.converters.chakra.write import records, trace_files
from flint.errors import FlintError, UsageError
from flint.mesh.groups import StridedGroups, along_axes, everybody
from flint.mesh.mesh import Mesh
from flint.mesh.permutation import permutation
from tests.converters.chakra.write.cases import attributes, chain, communication, nodes, write_all

MESH = Mesh((64, 8), ("data", "model"))
#: Halves of "data": no whole network dim, so ids are needed; 2 halves x 8 = 16 groups.
HALVES = StridedGroups(512, ((32, 8),))


def _ring(mesh: Mesh) -> object:
    world = mesh.size
    return permutation(world, np.stack([np.arange(world), (np.arange(world) + 1) % world], axis=1))


def test_identical_ranks_share_one_file(tmp_path):
    item = communication("all_reduce", groups=along_axes(MESH, ("data",)))
    manifest = write_all(tmp_path, chain(item), MESH)
    inodes = {path.stat().st_ino for path in (tmp_path / "et").glob("trace.*.et")}
    assert len(inodes) == manifest.distinct_files == 1
    assert manifest.files == 512 == len(list((tmp_path / "et").glob("trace.*.et")))


def test_ranks_of_one_group_share_a_file_where_only_the_group_differs(tmp_path):
    manifest = write_all(tmp_path, chain(communication("all_reduce", groups=HALVES)), MESH)
    assert manifest.distinct_files == 16 == manifest.groups
    names = [attributes(nodes(tmp_path, rank)[1])["pg_name"] for rank in (0, 8, 1, 256)]
    assert names[0] == names[1] and len(set(names)) == 3 and {len(n) for n in names} == {2}


def test_every_rank_of_a_ring_names_its_own_neighbours(tmp_path):
    write_all(tmp_path, chain(communication("collective_permute", peers=_ring(MESH))), MESH)
    for rank in (0, 1, 126, 127, 128, 129, 510, 511):  # varints grow at 128
        _, send, receive, _ = (attributes(node) for node in nodes(tmp_path, rank))
        assert (send["comm_src"], send["comm_dst"]) == (rank, (rank + 1) % 512)
        assert (receive["comm_src"], receive["comm_dst"]) == ((rank - 1) % 512, rank)


def test_a_full_link_count_starts_a_new_copy(tmp_path, monkeypatch):
    real, made = os.link, []

    def limited(source, path):
        if made.count(source) == 100:
            raise OSError(errno.EMLINK, "too many links")
        made.append(source)
        real(source, path)

    monkeypatch.setattr(trace_files.os, "link", limited)
    manifest = write_all(tmp_path, chain(communication("all_reduce", groups=everybody(512))), MESH)
    assert manifest.distinct_files == 6  # ceil(512 / 101)
    assert len(nodes(tmp_path, 511)) == 3


def test_without_links_every_rank_gets_a_copy(tmp_path, monkeypatch):
    def refused(source, path):
        raise OSError(errno.EPERM, "not permitted")

    monkeypatch.setattr(trace_files.os, "link", refused)
    manifest = write_all(tmp_path, chain(communication("all_reduce", groups=everybody(512))), MESH)
    assert manifest.distinct_files == 512


def test_a_full_disk_is_found_before_writing(tmp_path, monkeypatch):
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(10, 10, 0))
    with pytest.raises(FlintError, match=r"need [\d.]+ \w+ and the disk has 0 B free"):
        write_all(tmp_path, chain(communication("all_reduce", groups=everybody(512))), MESH)
    assert list(tmp_path.iterdir()) == []


def test_bytes_and_files_are_announced_before_the_first_is_written(tmp_path):
    announced = []

    def announce(size, files):
        announced.append((size, files, list(tmp_path.iterdir())))

    graph = chain(communication("collective_permute", peers=_ring(MESH)))
    write_all(tmp_path, graph, MESH, announce=announce)
    ((size, files, there),) = announced
    assert (files, there) == (MESH.size, [])
    distinct = {path.stat().st_ino: path.stat().st_size for path in tmp_path.rglob("et/*")}
    assert size == pytest.approx(sum(distinct.values()), abs=100)  # besides the text of groups


def test_a_class_is_encoded_once_however_many_ranks_it_has(tmp_path, monkeypatch):
    encoded = []
    real = records.encode

    def counting(*args):
        template = real(*args)
        encoded.append(len(template.data))
        return template

    monkeypatch.setattr("flint.converters.chakra.write.plans.encode", counting)
    for world in (200, 1000, 5000):
        encoded.clear()
        folder = tmp_path / str(world)
        folder.mkdir()
        mesh = Mesh((world,))
        graph = chain(communication("collective_permute", peers=_ring(mesh)))
        write_all(folder, graph, mesh)
        # Two widths of a rank number, and the seams where a neighbour's width is another.
        assert len(encoded) <= 6


def test_a_subset_of_a_million_ranks_is_written_alone(tmp_path):
    mesh = Mesh((32768, 32), ("data", "model"))
    items = [
        communication("collective_permute", peers=_ring(mesh)),
        communication("all_reduce", groups=StridedGroups(mesh.size, ((16384, 32),))),
    ]
    manifest = write_all(tmp_path, chain(*items), mesh, ranks=np.array([5, 1_048_575]))
    written = sorted(path.name for path in (tmp_path / "et").glob("*.et"))
    assert written == ["trace.1048575.et", "trace.5.et"] and manifest.files == 2
    assert manifest.groups == 2
    send = attributes(nodes(tmp_path, 1_048_575)[1])
    assert (send["comm_src"], send["comm_dst"]) == (1_048_575, 0)


@pytest.mark.parametrize("ranks", [[-1], [512], []])
def test_ranks_outside_the_mesh_are_a_usage_error(tmp_path, ranks):
    with pytest.raises(UsageError, match=r"0\.\.511"):
        write_all(tmp_path, chain(), MESH, ranks=np.array(ranks, np.int64))


def test_progress_ends_at_the_number_of_ranks(tmp_path):
    calls = []
    write_all(tmp_path, chain(), MESH, progress=lambda done, total: calls.append((done, total)))
    assert calls[-1] == (512, 512) and calls == sorted(calls)
