"""What a reader may take is bounded while it reads, and the process is as before afterwards."""

import contextlib
import mmap
import resource
import sys
import threading

import numpy as np
import pytest

from flint.errors import FlintError
from flint.host.child_processes import data_bytes
from flint.host.reading_memory import SLACK, allowed, bounded, check_room

MIB = 1 << 20

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="Linux limits what is allocated")


def pages(size: int) -> mmap.mmap:
    """``size`` new bytes, as an allocator asks for them that has none left: what the process
    has freed before would be no growth."""
    try:
        return mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except OSError as error:
        raise MemoryError from error


def test_what_goes_beyond_the_limit_is_one_line_that_names_the_option():
    with pytest.raises(FlintError) as error, allowed(64 * MIB), bounded("trace.json"):
        pages(65 * MIB + SLACK)
    assert str(error.value) == (
        "trace.json: reading it takes more than 0.0625 GiB of memory: raise the limit "
        "(--memory-limit, in GiB) if you trust the file"
    )


def test_room_that_is_not_there_is_refused_and_room_that_is_there_is_not_taken():
    with allowed(64 * MIB), bounded("trace.json"):
        before = data_bytes()
        check_room(32 * MIB)
        assert data_bytes() == before
    with pytest.raises(FlintError, match="takes more than"), allowed(64 * MIB), bounded("it"):
        check_room(65 * MIB + SLACK)


def test_what_grows_beyond_the_limit_bit_by_bit_ends_where_it_is_noticed():
    grown = []
    with pytest.raises(FlintError, match="takes more than"), allowed(8 * MIB), bounded("it"):
        while True:  # a reader that goes on forever
            if len(grown) * MIB < 16 * MIB:
                grown.append(pages(MIB))


def test_what_is_held_in_the_end_is_more_than_the_limit():
    held = []
    with pytest.raises(FlintError, match="takes more than"), allowed(8 * MIB), bounded("it"):
        held.append(pages(32 * MIB))


def test_afterwards_nothing_is_raised_any_more():
    for _ in range(20):
        with allowed(64 * MIB), bounded("trace.json"):
            held = np.ones(16 * MIB, np.int8)
    watching = [thread for thread in threading.enumerate() if thread.name == "memory of a reader"]
    assert held.sum() == 16 * MIB
    assert watching == []


@pytest.mark.parametrize("limit", [8 * MIB, 256 * MIB], ids=["refused", "read"])
def test_afterwards_python_can_be_profiled(limit):
    """CPython 3.11 hangs in the next call if an error raised in its thread was taken back."""
    held, seen = [], []
    with contextlib.suppress(FlintError), allowed(limit), bounded("trace.json"):
        held.append(np.ones(32 * MIB, np.int8))

    def called():
        return 1

    sys.setprofile(lambda frame, event, _: seen.append((event, frame.f_code)))
    try:
        called()
    finally:
        sys.setprofile(None)
    assert ("call", called.__code__) in seen


def test_what_the_process_has_already_does_not_count():
    held = np.ones(128 * MIB, np.int8)
    with allowed(64 * MIB), bounded("trace.json"):
        np.ones(32 * MIB, np.int8)
    assert held.sum() == 128 * MIB


def test_afterwards_the_process_has_the_limit_that_it_had():
    before = resource.getrlimit(resource.RLIMIT_DATA)
    with allowed(64 * MIB), bounded("trace.json"):
        assert resource.getrlimit(resource.RLIMIT_DATA) != before
    with pytest.raises(ValueError, match="other"), allowed(64 * MIB), bounded("trace.json"):
        raise ValueError("other")
    assert resource.getrlimit(resource.RLIMIT_DATA) == before


def test_of_two_readings_at_once_the_higher_limit_holds():
    before = resource.getrlimit(resource.RLIMIT_DATA)
    begun, end = threading.Event(), threading.Event()

    def other():
        with allowed(1 * MIB), bounded("small.json"):
            begun.set()
            end.wait()

    thread = threading.Thread(target=other)
    with allowed(256 * MIB), bounded("large.json"):
        thread.start()
        begun.wait()
        np.ones(128 * MIB, np.int8)
        end.set()
        thread.join()
        np.ones(128 * MIB, np.int8)
    assert resource.getrlimit(resource.RLIMIT_DATA) == before


def test_a_limit_of_the_users_own_is_not_raised():
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    own = 1 << 40
    try:
        resource.setrlimit(resource.RLIMIT_DATA, (own, hard))
        with allowed(1 << 50), bounded("trace.json"):
            assert resource.getrlimit(resource.RLIMIT_DATA) == (own, hard)
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))
