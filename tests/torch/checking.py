"""Emitted modules, executed, compared with what eager PyTorch computed."""

from __future__ import annotations

import torch

from flint.frontends.torch.emission import emitted
from tests.torch.executing import execute

#: Relative to the largest value: half types are computed in float32, but rounded in other places.
TOLERANCE = {torch.bfloat16: 2e-2, torch.float16: 2e-3, torch.float64: 1e-10}


def assert_equal(ours, theirs, name=""):
    assert ours.shape == theirs.shape, name
    if not theirs.dtype.is_floating_point and not theirs.dtype.is_complex:
        assert torch.equal(ours, theirs), name
        return
    tolerance = TOLERANCE.get(theirs.dtype, 2e-5)
    kind = torch.complex128 if theirs.dtype.is_complex else torch.float64
    ours, theirs = ours.to(kind), theirs.to(kind)
    finite = theirs[theirs.isfinite()].abs()
    scale = float(finite.max()) if finite.numel() else 1.0
    torch.testing.assert_close(
        ours, theirs, rtol=tolerance, atol=tolerance * scale + 1e-12, equal_nan=True, msg=name
    )


def check(recorded, strict=True):
    """Execute what is emitted; compare results and mutated inputs; gives the outputs."""
    made = emitted(recorded.recording, strict=strict)
    outputs, aliases = execute(made.data, recorded.inputs)
    results = outputs[len(aliases) :]
    for ours, theirs in zip(results, recorded.results, strict=True):
        assert_equal(ours, theirs)
    for number, after in recorded.mutated.items():
        if number in aliases:
            assert_equal(outputs[aliases[number]], after, f"input {number}")
        else:
            assert torch.equal(recorded.inputs[number], after), f"input {number} has changed"
    return outputs
