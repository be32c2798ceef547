"""Emitted modules, executed, compared with what eager PyTorch computed."""

from __future__ import annotations

import pytest
import torch

from flint.frontends.torch.emission import emitted
from tests.frontends.torch.executing import execute

#: Relative to each value.  Half types are computed in float32 and rounded once, by PyTorch's
#: kernels and in what is emitted: from nearly the same float32 value the two come out equal or one
#: unit in the last place apart, at most 2 to the power of -(bits of the fraction) of the value.
TOLERANCE = {
    torch.bfloat16: 2.0**-7, torch.float16: 2.0**-10, torch.float32: 2e-5, torch.float64: 1e-10
}  # fmt: skip
#: Relative to the largest value: what is left of float32 sums in another order where they cancel.
CANCELLED = 2e-5


#: Words of cases whose ops PyTorch decomposes from 2.13 on; until then they are kernels of
#: estimated FLOPs.
_SINCE_2_13 = ("max_pool3d", "adaptive_max_pool")


def skip_if_not_decomposed(name):
    """Skip a case whose ops the installed torch does not decompose."""
    if torch.__version__ < "2.13" and name.startswith(_SINCE_2_13):
        pytest.skip("this torch does not decompose it")


def assert_equal(ours, theirs, name="", cancelled=CANCELLED):
    """Values are equal within the tolerances above."""
    assert ours.shape == theirs.shape, name
    if not theirs.dtype.is_floating_point and not theirs.dtype.is_complex:
        assert torch.equal(ours, theirs), name
        return
    relative = TOLERANCE.get(theirs.dtype, 2e-5)
    if theirs.dtype == torch.float64:
        cancelled = min(cancelled, relative)
    kind = torch.complex128 if theirs.dtype.is_complex else torch.float64
    ours, theirs = ours.to(kind), theirs.to(kind)
    finite = theirs[theirs.isfinite()].abs()
    scale = float(finite.max()) if finite.numel() else 1.0
    torch.testing.assert_close(
        ours, theirs, rtol=relative, atol=cancelled * scale + 1e-12, equal_nan=True, msg=name
    )


def check(recorded, strict=True, cancelled=CANCELLED):
    """Execute what is emitted; compare results and mutated inputs; gives the outputs."""
    made = emitted(recorded.recording, strict=strict)
    outputs, aliases = execute(made.data, recorded.inputs)
    results = outputs[len(aliases) :]
    for ours, theirs in zip(results, recorded.results, strict=True):
        assert_equal(ours, theirs, cancelled=cancelled)
    for number, after in recorded.mutated.items():
        if number in aliases:
            assert_equal(outputs[aliases[number]], after, f"input {number}", cancelled)
        else:
            torch.testing.assert_close(
                recorded.inputs[number], after, rtol=0, atol=0, equal_nan=True,
                msg=f"input {number} has changed",
            )  # fmt: skip
    return outputs
