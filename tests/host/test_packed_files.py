"""Files are read once, and what comes of them is bounded by bytes read and by ratio."""

import gzip
import hashlib
import os
import random
import threading
import tracemalloc

import pytest

from flint.errors import FlintError
from flint.host.packed_files import Content, pieces, read_bytes, read_once, unpacked

MIB = 1 << 20


def test_a_file_is_read_to_its_end(tmp_path):
    (tmp_path / "f").write_bytes(b"abc" * MIB)
    assert read_once(tmp_path / "f", 3 * MIB) == Content(tmp_path / "f", b"abc" * MIB)


def test_the_hash_is_of_what_was_read(tmp_path):
    (tmp_path / "f").write_bytes(b"abc")
    content = read_once(tmp_path / "f", MIB)
    (tmp_path / "f").write_bytes(b"changed")
    assert content.sha256 == hashlib.sha256(b"abc").hexdigest()


def test_an_empty_file_has_no_content(tmp_path):
    (tmp_path / "f").touch()
    assert read_once(tmp_path / "f", 0).data == b""


def test_a_sparse_file_is_refused_without_reading_it(tmp_path):
    with (tmp_path / "f").open("wb") as file:
        file.truncate(1 << 40)
    tracemalloc.start()
    for read in (read_once, read_bytes):
        with pytest.raises(FlintError, match=r"sparse file of 1,\S+ bytes, of which 0 are on disk"):
            read(tmp_path / "f", 1 << 50)
        with pytest.raises(FlintError):
            read(tmp_path / "f", MIB)
    assert tracemalloc.get_traced_memory()[1] < MIB
    tracemalloc.stop()


def test_a_file_with_some_holes_is_read(tmp_path):
    with (tmp_path / "f").open("wb") as file:
        file.write(b"x" * MIB)
        file.seek(70 * MIB)
        file.write(b"y")
    assert len(read_bytes(tmp_path / "f", 1 << 40)) == 70 * MIB + 1


def test_a_file_takes_the_memory_of_what_is_there(tmp_path):
    """Not that of the most that is allowed."""
    (tmp_path / "plain").write_bytes(os.urandom(MIB))
    (tmp_path / "packed").write_bytes(gzip.compress(os.urandom(MIB)))
    for name in ("plain", "packed"):
        tracemalloc.start()
        assert len(read_bytes(tmp_path / name, 1 << 31)) == MIB
        assert tracemalloc.get_traced_memory()[1] < 3 * MIB
        tracemalloc.stop()


@pytest.mark.skipif(not os.path.exists("/dev/zero"), reason="a device of Unix")
def test_an_endless_device_is_refused_at_the_limit():
    from pathlib import Path

    with pytest.raises(FlintError, match=r"/dev/zero: larger than 1,048,576 bytes"):
        read_once(Path("/dev/zero"), MIB)


def test_a_fifo_is_read_once_and_to_its_end(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    sent = os.urandom(3 * MIB)
    writer = threading.Thread(target=(tmp_path / "pipe").write_bytes, args=(sent,))
    writer.start()
    assert read_once(tmp_path / "pipe", 4 * MIB).data == sent
    writer.join()


def test_gzip_is_unpacked_up_to_the_limit():
    packed = gzip.compress(bytes(10 * MIB))
    assert len(unpacked(packed, "f.gz", 10 * MIB)) == 10 * MIB
    with pytest.raises(FlintError, match=r"f\.gz: larger than 10,485,759 bytes when decomp"):
        unpacked(packed, "f.gz", 10 * MIB - 1)


def test_more_than_250_times_as_many_bytes_are_refused_from_64_mib_on(tmp_path):
    (tmp_path / "bomb.gz").write_bytes(gzip.compress(bytes(80 * MIB), 9))
    seen = 0
    with pytest.raises(FlintError, match="expand by a factor of more than 250"):
        for piece in pieces(tmp_path / "bomb.gz", 1 << 40):
            seen += len(piece)
    assert 63 * MIB <= seen <= 65 * MIB


def test_a_ratio_that_data_can_have_is_taken(tmp_path):
    """4 KiB of random bytes, 256 KiB of zeros: at most 65 to 1."""
    block = random.Random(0).randbytes(1 << 12) + bytes(1 << 18)
    data = block * 300
    packed = gzip.compress(data, 1)
    assert len(data) > 70 * MIB
    assert 30 < len(data) / len(packed) < 100
    assert unpacked(packed, "f", 1 << 30) == data


def test_a_damaged_file_is_reported(tmp_path):
    (tmp_path / "f.gz").write_bytes(gzip.compress(os.urandom(1000))[:-12])
    with pytest.raises(FlintError, match="truncated gzip data"):
        read_bytes(tmp_path / "f.gz", MIB)
