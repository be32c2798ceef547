"""The graph of a GPU module against what XLA's runtime issues for the same compilation.

Kernels by name, copies, and beginnings and ends of asynchronous collectives must be the same, one
for one, in the same order, in every loop body too.  A loop's condition is in XLA's list, but runs
only if the module does not state how often the loop runs (``WhileThunk::ExecuteOnStream``).  The
list does not say what a memory copy is
of; there any kernel of ours stands for it.  A collective whose end follows its beginning runs
synchronously and is one thunk.
"""

from __future__ import annotations

import gzip

import pytest

import flint
from tests.hlo.optimized.single import FOLDER
from tests.hlo.optimized.thunks import ANY, Loop, issued, parse

NAMES = sorted(path.name.removesuffix(".thunks.txt.gz") for path in FOLDER.glob("*.thunks.txt.gz"))


def assert_same(theirs, ours, counted):
    """Compare two sequences, loops included.

    Args:
        theirs, ours: what is issued.
        counted: whether the module states how often its loops run.
    """
    ours = list(ours)
    for place, thunk in enumerate(theirs):
        mine = ours[place]
        if isinstance(thunk, Loop):
            assert isinstance(mine, Loop)
            # The condition is computed before each iteration and once more behind the last.
            condition = [] if counted else thunk.condition
            count = len(condition)
            assert_same(condition + thunk.body, mine.body, counted)
            assert_same(condition, ours[place + 1 : place + 1 + count], counted)
            del ours[place + 1 : place + 1 + count]
        elif thunk == ANY:
            assert isinstance(mine, str)
            assert mine != "done"
            assert not mine.startswith("start ")
        else:
            assert mine == thunk, place
    assert len(ours) == len(theirs)


def test_there_are_thunks_to_compare_with():
    assert len(NAMES) >= 4


@pytest.mark.parametrize("name", NAMES)
def test_what_is_issued_is_what_xlas_runtime_issues(name):
    text = gzip.decompress((FOLDER / f"{name}.thunks.txt.gz").read_bytes()).decode()
    module = FOLDER / f"{name}.hlo.pb.gz"
    [program] = flint.convert(module).programs
    counted = b"known_trip_count" in gzip.decompress(module.read_bytes())
    assert_same(parse(text), issued(program.graph), counted)
