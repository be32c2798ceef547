"""Groups by dims and by table."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flint.converters.chakra.network import Network, group_id, read_group_table, read_npus_count
from flint.errors import FlintError


@st.composite
def networks(draw):
    extents = tuple(draw(st.lists(st.integers(1, 4), min_size=1, max_size=4)))
    return Network(extents), tuple(draw(st.booleans()) for _ in extents)


@given(networks())
def test_groups_are_those_of_the_coordinates(drawn):
    """Ranks enumerated with dim 0 fastest; a group shares the coordinates outside the mask."""
    network, mask = drawn
    backwards = itertools.product(*(range(extent) for extent in reversed(network.npus_count)))
    coordinates = [tuple(reversed(item)) for item in backwards]
    fixed = [
        tuple(c for c, use in zip(place, mask, strict=True) if not use) for place in coordinates
    ]
    groups = network.along(mask)
    leader = groups.base(np.arange(network.ranks))
    for rank in range(network.ranks):
        group = [other for other in range(network.ranks) if fixed[other] == fixed[rank]]
        assert groups.members(rank).tolist() == group
        assert leader[rank] == group[0] and groups.size == len(group)


def test_dims_spanned():
    network = Network((2, 4))
    assert network.dims_spanned(np.array([0, 1])) == 1
    assert network.dims_spanned(np.array([1, 3, 5])) == 1
    assert network.dims_spanned(np.array([0, 3])) == 2
    assert network.dims_spanned(np.array([5])) == 0


@pytest.mark.parametrize(
    ("text", "number"), [("1", 1), ("42", 42), ("0", None), ("", None), ("٣", None), ("1e3", None)]
)
def test_group_ids(text, number):
    assert group_id(text) == number


@pytest.mark.parametrize("text", ["", "a: [", "npus_count: 4", "npus_count: [0]", "npus_count: []"])
def test_network_file_without_extents(tmp_path, text):
    path = tmp_path / "network.yml"
    path.write_text(text)
    with pytest.raises(FlintError, match=r"network\.yml"):
        read_npus_count(path)


def test_json_number_of_too_many_digits_is_a_clear_error(tmp_path):
    path = tmp_path / "comm_groups.json"
    path.write_text('{"1": [' + "9" * 5000 + "]}")
    with pytest.raises(FlintError, match="not JSON"):
        read_group_table(path, 4)
