"""Hosts, slices and places in a torus, as Cloud TPU's documentation has them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flint.errors import UsageError
from flint.frontends.jax.cluster.layout import Layout, layout_of

SLICES = [
    ("tpu-v4", 512, 1), ("tpu-v5p", 4096, 1), ("tpu-v5p", 512, 4), ("tpu-v5e", 256, 1),
    ("tpu-v6e", 1024, 4), ("tpu7x", 128, 1), ("tpu-v5p", 4, 1), ("tpu-v5e", 1, 1),
]  # fmt: skip


@pytest.mark.parametrize(("target", "devices", "slices"), SLICES)
def test_every_device_has_its_own_place_and_they_fill_each_slice(target, devices, slices):
    layout = layout_of(devices, target, slices=slices)
    places = {(layout.slice_of(n), *layout.coords_of(n), layout.core_of(n)) for n in range(devices)}
    assert len(places) == devices
    for dim, size in enumerate((*layout.shape, 1)[:3]):
        assert {place[1 + dim] for place in places} == set(range(size))


@pytest.mark.parametrize(("target", "devices", "slices"), SLICES)
def test_a_host_is_a_square_of_four_chips(target, devices, slices):
    layout = layout_of(devices, target, slices=slices)
    for host in (0, layout.hosts - 1):
        chips = {layout.coords_of(n) for n in range(devices) if layout.host_of(n) == host}
        (x, y, z), (to_x, to_y, to_z) = np.min([*chips], axis=0), np.max([*chips], axis=0)
        assert (to_x - x, to_y - y, to_z - z) in ((1, 1, 0), (0, 0, 0))
        assert len(chips) == (to_x - x + 1) * (to_y - y + 1)


def test_gpus_have_eight_or_four_on_a_host_and_one_slice():
    assert layout_of(512, "h100").hosts == 64
    assert layout_of(512, "gb200").hosts == 128
    assert layout_of(4, "h100").hosts == 1
    assert {layout_of(512, "h100").slice_of(n) for n in range(512)} == {0}


def test_a_host_of_the_user_counts():
    layout = layout_of(64, "h100", hosts=16, slices=2)
    assert [layout.host_of(n) for n in (0, 3, 4, 63)] == [0, 0, 1, 15]
    assert [layout.slice_of(n) for n in (0, 31, 32, 63)] == [0, 0, 1, 1]


@pytest.mark.parametrize(
    ("devices", "target", "hosts", "slices", "said"),
    [
        (12, "h100", 5, None, "12 devices do not divide into 5 hosts"),
        (12, None, None, 5, "12 devices do not divide into 5 slices"),
        (102, "tpu-v5e", None, None, "no slice has 102 devices; the nearest sizes are"),
        (100, "tpu-v5e", None, 3, "100 devices do not divide into 3 slices"),
    ],
)
def test_what_does_not_fit_is_refused(devices, target, hosts, slices, said):
    with pytest.raises(UsageError, match=said):
        layout_of(devices, target, hosts, slices)


@given(st.integers(1, 64), st.integers(1, 8), st.integers(1, 8))
def test_hosts_and_slices_are_of_equal_size_and_in_order(per_host, hosts, slices):
    layout = Layout(devices=per_host * hosts * slices, hosts=hosts * slices, slices=slices)
    found = [(layout.slice_of(n), layout.host_of(n)) for n in range(layout.devices)]
    assert found == sorted(found)
    assert {found.count(pair) for pair in found} == {per_host}
