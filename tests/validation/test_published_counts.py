"""Kernel counts that others published, from captures of the same split.

Numbers of kernels grow by the same number with each layer, whatever its sizes: captures of one and
of two tiny layers tell those of 32.
"""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from tests.support.shared import quick  # noqa: E402
from tests.validation.published import PARALLELISMS, counts, plain, tiny  # noqa: E402

LAYERS = 32


@pytest.mark.thorough
@pytest.mark.parametrize("name", quick(PARALLELISMS, "TP8"))
def test_kernel_counts_are_those_that_were_published(name):
    """Of 32 layers of 9 parameters each, 7 of them in products, and 3 parameters at the ends.

    Published are one all-gather, one reduce-scatter and, with data parallelism, one all-reduce
    more: those of the ends, which are not split here, and not of the layers.
    """
    one, two = (counts(plain(name, tiny(layers)).capture()) for layers in (1, 2))
    found = tuple(a + (LAYERS - 1) * (b - a) for a, b in zip(one, two, strict=True))
    *_, (gemms, attentions, reduces, gathers, scatters) = PARALLELISMS[name]
    sharded = "dp" in PARALLELISMS[name][1]
    assert found == (gemms, attentions, reduces - sharded, gathers - 1, scatters - 1)
