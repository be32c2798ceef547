"""The runtime's memory in addition to a program's."""

from __future__ import annotations

import pytest

from flint.cost.accelerators import load_accelerator
from flint.cost.reserve import preallocated, reserve_of


def test_each_communicator_has_its_buffers():
    """24 channels; per channel LL 8 * 512 * 8 * 16, LL128 120 * 640 * 8 * 8, Simple 4 MiB."""
    h100 = load_accelerator("h100-sxm")
    channel = 8 * 512 * 8 * 16 + 120 * 640 * 8 * 8 + 4 * 2**20
    more = reserve_of(h100, 3) - reserve_of(h100, 2)
    assert more == 24 * channel
    assert reserve_of(h100, 0) == pytest.approx(0.49 * 2**30)


def test_a_tpu_has_neither():
    v5p = load_accelerator("tpu-v5p")
    assert (reserve_of(v5p, 3), preallocated(v5p)) == (0, 1.0)
