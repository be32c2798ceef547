"""One call per case of every lowering: a function and the tensors that it is given.

The idea: a case does not contain results; those are eager PyTorch's, or another compiler's.

    function, tensors = CASES["mm bf16"]
"""

from __future__ import annotations

from tests.frontends.torch.lowering_cases import (
    further,
    lists,
    losses,
    movement,
    normalisations,
    places,
    pointwise,
    products,
    reductions,
    resampled,
    windows,
)

CASES = {}
for family in (
    pointwise, products, reductions, normalisations, windows, losses, places, movement, lists,
    further, resampled,
):  # fmt: skip
    assert not CASES.keys() & family.CASES.keys()
    CASES.update(family.CASES)
