"""What PyTorch's caching allocator reserves: counted by hand from its rules.

Rules (c10/cuda/CUDACachingAllocator.cpp): sizes are multiples of 512 bytes; blocks up to 1 MiB come
from segments of 2 MiB, up to 10 MiB from segments of 20 MiB, larger ones have their own, in
multiples of 2 MiB; with expandable segments a pool is one segment that grows by 2 or 20 MiB.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import flint
from flint.errors import FlintError
from flint.graph.allocations import BEFORE, FIRST_STEP, HOST, NEVER, Allocations
from flint.simulation.caching_allocator import usage

MIB = 2**20


def of(*rows, expandable=False, limit=None):
    """Usage of rows (bytes, born, freed[, pool])."""
    rows = sorted((row if len(row) == 4 else (*row, 0) for row in rows), key=lambda row: row[1])
    table = [(size, pool, born, freed, born) for size, born, freed, pool in rows]
    return usage(Allocations.from_rows(np.array(table, np.int64), expandable), limit)


@pytest.mark.parametrize(
    ("size", "reserved"),
    [
        (1, 2 * MIB),
        (MIB, 2 * MIB),
        (MIB + 1, 20 * MIB),
        (10 * MIB - 512, 20 * MIB),
        (10 * MIB, 10 * MIB),
        (30 * MIB + 1, 32 * MIB),
    ],
)
def test_a_block_comes_from_a_segment_of_its_kind(size, reserved):
    found = of((size, 0, 1))
    assert (found.allocated, found.reserved) == (size, reserved)


def test_small_blocks_share_a_segment_in_multiples_of_512_bytes():
    """4096 blocks of 1 byte take 512 each: one segment of 2 MiB; one more takes another."""
    rows = [(1, 0, 1)] * 4096
    assert of(*rows).reserved == 2 * MIB
    assert of(*rows, (1, 0, 1)).reserved == 4 * MIB


def test_what_is_freed_is_used_again():
    assert of((64 * MIB, 0, 1), (64 * MIB, 1, 2)).reserved == 64 * MIB


def test_memory_that_one_stream_has_freed_is_not_available_to_others():
    """All-gathers on their own stream: the peaks of both add up, though never alive together."""
    found = of((64 * MIB, 0, 1, 0), (64 * MIB, 1, 2, 1))
    assert (found.allocated, found.reserved) == (64 * MIB, 128 * MIB)


def test_a_block_is_split_and_its_parts_are_joined_when_both_are_free():
    """60 MiB freed serve 20 and 40 at once, then 60 again."""
    rows = (60 * MIB, 0, 1), (20 * MIB, 1, 3), (40 * MIB, 2, 3), (60 * MIB, 3, 4)
    assert of(*rows).reserved == 60 * MIB


def test_free_blocks_of_two_segments_do_not_make_one_large_block():
    """Two of 30 MiB are free, 60 are asked for; a segment that grows has them side by side."""
    rows = (30 * MIB, 0, 1), (30 * MIB, 0, 1), (60 * MIB, 1, 2)
    assert of(*rows).reserved == 120 * MIB
    assert of(*rows, expandable=True).reserved == 60 * MIB


def test_the_loss_leaves_a_hole_of_the_scores_in_half_precision():
    """Scores in bf16 (4 units) and f32 (8), log-softmax (8); then the first two are free, and the
    gradient of the loss (8) takes the place of f32, or of 8 of the 12 that lie side by side; that
    of log-softmax (8) finds no room: 4 + 8 + 8 + 8, where 24 are alive."""
    unit = 100 * MIB
    rows = (4 * unit, 0, 3), (8 * unit, 1, 3), (8 * unit, 2, 6), (8 * unit, 4, 6), (8 * unit, 5, 7)
    for expandable in (False, True):
        found = of(*rows, expandable=expandable)
        assert found.allocated == 24 * unit
        assert found.reserved == 28 * unit


@pytest.mark.parametrize("expandable", [False, True])
def test_a_full_device_gets_back_what_is_free_as_a_whole(expandable):
    """60 MiB on one stream, then 60 on another, of 100: the first ones go back to CUDA, in each of
    the steps that are run; beyond that nothing can."""
    rows = (60 * MIB, 0, 1, 0), (60 * MIB, 1, 2, 1)
    assert of(*rows, expandable=expandable).retries == 0
    found = of(*rows, expandable=expandable, limit=100 * MIB)
    assert (found.reserved, found.retries) == (60 * MIB, 2)
    assert of(*rows, expandable=expandable, limit=50 * MIB).reserved > 50 * MIB


def test_a_hole_that_was_given_back_is_used_again():
    """40 MiB between two blocks that stay go back for 40 on another stream, and are asked for
    again when those are free."""
    kept = [(20 * MIB, 0, 9), (40 * MIB, 1, 3), (20 * MIB, 2, 9)]
    rows = (*kept, (40 * MIB, 4, 5, 1), (40 * MIB, 6, 9))
    found = of(*rows, expandable=True, limit=80 * MIB)
    assert (found.reserved, found.allocated) == (80 * MIB, 80 * MIB)


def test_the_best_fit_is_the_smallest_block_that_is_large_enough():
    """Of 100 and 50 MiB, 40 take the one of 50, so that 100 are found afterwards."""
    rows = (100 * MIB, 0, 1), (50 * MIB, 0, 1), (40 * MIB, 1, 3), (100 * MIB, 2, 3)
    assert of(*rows).reserved == 150 * MIB


def test_optimizer_state_lies_where_activations_of_the_first_step_were():
    """100 MiB of activations, then 30 of state in their place: the next step's need 100 anew."""
    found = of((30 * MIB, FIRST_STEP, NEVER), (100 * MIB, 0, 1))
    assert (found.allocated, found.reserved) == (130 * MIB, 200 * MIB)
    assert of((30 * MIB, BEFORE, NEVER), (100 * MIB, 0, 1)).reserved == 130 * MIB


def test_what_outlives_the_step_is_there_once():
    assert of((64 * MIB, 0, NEVER)).reserved == 64 * MIB


def test_memory_of_the_host_is_none_of_the_device():
    found = of((64 * MIB, 0, 1, HOST), (2 * MIB, 0, 1))
    assert (found.host, found.allocated, found.reserved) == (64 * MIB, 2 * MIB, 20 * MIB)


def test_a_compiler_gives_back_after_the_last_use():
    table = np.array([[10 * MIB, 0, 0, 9, 3], [10 * MIB, 0, 5, 9, 8]], np.int64)
    held = Allocations.from_rows(table, False)
    assert (usage(held).allocated, usage(held.until_last_use()).allocated) == (20 * MIB, 10 * MIB)


@given(
    st.lists(
        st.tuples(st.integers(1, 70 * MIB), st.integers(0, 20), st.integers(1, 20)), min_size=1
    ),
    st.booleans(),
)
def test_segments_hold_what_is_alive(rows, expandable):
    rows = [(size, born, born + length, born % 2) for size, born, length in rows]
    found = of(*rows, expandable=expandable)
    assert found.reserved >= found.allocated
    assert found.reserved % (2 * MIB) == 0
    full = of(*rows, expandable=expandable, limit=found.reserved - MIB)
    assert full.allocated == found.allocated <= full.reserved


def test_allocations_survive_their_file():
    table = np.array([[10, 0, FIRST_STEP, NEVER, 3], [20, 1, 5, 9, 8]], np.int64)
    read = Allocations.from_bytes(Allocations.from_rows(table, True).to_bytes(), "x")
    assert read.expandable
    assert (read.rows() == table).all()


@pytest.mark.parametrize(
    "row",
    [[0, 0, 0, 1, 0], [8, -2, 0, 1, 0], [8, 0, 5, 4, 5], [8, 0, -3, 4, 5], [2**50, 0, 0, 1, 0]],
)
def test_allocations_that_cannot_be_are_refused(row):
    whole = Allocations.from_rows(np.array([[8, 0, 0, 1, 0]], np.int64), False)
    for name, value in zip(("size", "pool", "born", "freed", "used"), row, strict=True):
        getattr(whole, name)[0] = value
    with pytest.raises(FlintError, match="x: not allocations written by Flint"):
        Allocations.from_bytes(whole.to_bytes(), "x")


@pytest.mark.parametrize(
    "stated",
    [
        '"none"',
        "dense<1> : tensor<100000000000x5xi64>",
        "dense<[1, 2, 3]> : tensor<3xi64>",
        "dense<[[8, 0, 0, -9, 0]]> : tensor<1x5xi64>",
    ],
)
def test_a_module_that_states_allocations_that_cannot_be_is_refused(tmp_path, stated):
    text = f"""module attributes {{flint.recorded, flint.allocations = {stated}}} {{
      func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {{
        return %x : tensor<4xf32>
      }}
    }}"""
    path = tmp_path / "step.mlir"
    path.write_text(text)
    with pytest.raises(FlintError, match="allocations: "):
        flint.convert(path)
