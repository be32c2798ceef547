"""Programs that ``jax.export`` has serialised."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import flint
from flint.errors import FlintError
from flint.frontends.saved.kinds import Kind
from flint.frontends.saved.wrappers import opened

FILE = Path(__file__).parents[2] / "data/exported/sum_of_squares.jax_export"
DATA = FILE.read_bytes()
LIMIT = 1 << 20


def test_it_is_partitioned_like_other_saved_programs():
    """On each device the product of [8, 64] and [64, 32]; the sum is reduced over both axes."""
    workload = flint.convert(FILE, level="partitioned")
    assert str(workload.mesh) == "data=4 x model=2"
    [product] = [node for node in workload.graph if node.op == "dot_general"]
    assert product.work.flops == 2 * 8 * 64 * 32
    reduced = [node.communication for node in workload.graph if node.communication is not None]
    assert sorted((item.groups.size, item.bytes_in) for item in reduced) == [(2, 4), (4, 4)]


def test_it_may_be_packed():
    assert opened(gzip.compress(DATA), "step.gz", LIMIT) == opened(DATA, "step", LIMIT)
    assert opened(DATA, "step", LIMIT)[1] is Kind.VHLO


@given(st.integers(0, len(DATA) - 1), st.binary(min_size=1, max_size=8))
def test_damage_is_an_error_or_other_bytes(place, put):
    """Of a file that is cut off or overwritten, nothing outside is read."""
    for damaged in (DATA[:place], DATA[:place] + put + DATA[place + len(put) :]):
        try:
            found, _ = opened(damaged, "step", LIMIT)
        except FlintError as error:
            assert str(error).startswith("step: a damaged jax.export.Exported")
        else:
            assert found in damaged


def test_one_that_is_cut_off_says_so():
    with pytest.raises(FlintError, match=r"damaged jax\.export\.Exported"):
        opened(DATA[: len(DATA) - 1200], "step", LIMIT)
