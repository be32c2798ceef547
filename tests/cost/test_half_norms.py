"""Batch norms of half-precision images and volumes with channels first against profiles."""

from __future__ import annotations

from statistics import fmean

import pytest

from flint.cost.systems import load_system
from tests.cost.test_library_kernels import microseconds, norm

#: Microseconds of cuDNN's batch norms in f16, forward and backward, channels and sides -> means of
#: the profile of ``segment`` on an H100 (8 images); and of instance norms of volumes on an H200,
#: not used for the rates (``unet3d``: 64 channels of 128 x 128 x 128).
HALF_NORMS = {
    (64, 256): (357.2, 762.6), (64, 128): (66.7, 178.7), (128, 128): (95.3, 204.2),
    (256, 128): (133.6, 228.0),
}  # fmt: skip
VOLUMES = (1345.8, 2912.6)


@pytest.mark.parametrize("backward", [False, True])
def test_batch_norms_in_half_precision_take_what_was_measured(backward):
    ratios = [
        microseconds(norm(8, *size, backward, "f16")) / times[backward]
        for size, times in HALF_NORMS.items()
    ]
    assert all(0.8 < ratio < 1.4 for ratio in ratios), ratios
    assert 0.85 < fmean(ratios) < 1.15
    volume = microseconds(norm(128, 64, 128, backward, "f16"), load_system("hgx-h200"))
    assert volume / VOLUMES[backward] == pytest.approx(1, abs=0.1)
