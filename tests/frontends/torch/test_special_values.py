"""Pointwise ops and reductions against eager PyTorch on the inputs that kernels differ on."""

from __future__ import annotations

import pytest
import torch

from flint.frontends.torch.emission import emitted
from tests.frontends.torch.executing import execute
from tests.frontends.torch.real_recording import record
from tests.frontends.torch.special_values import SPECIAL

#: Relative to each value: two roundings of a half type are one unit in its last place apart at
#: most; what is computed in single precision has other approximations of the same functions.
TOLERANCE = {
    torch.bfloat16: 2.0**-7, torch.float16: 2.0**-10, torch.float32: 2e-5, torch.float64: 1e-12,
}  # fmt: skip
#: Of values next to 0 that are differences of larger ones.
NEAR_ZERO = 3e-6

#: They take one of two values, or multiply by what is nearly 0: which of +0 and -0 is up to the
#: kernel, and to the vectors of the processor (gelu: AVX2 and AVX-512 differ).
EITHER_ZERO = {
    "relu", "maximum", "minimum", "fmax", "fmin", "max", "min", "amax", "amin", "clamp", "sort",
    "topk", "log_sigmoid_forward", "addcdiv", "addcmul", "_softmax", "gelu",
}  # fmt: skip


def wrong(ours, theirs, signs):
    """Where two results of one op differ; bool."""
    if not theirs.dtype.is_floating_point:
        return ours != theirs
    a, b = ours.double(), theirs.double()
    same = (a - b).abs() <= TOLERANCE[theirs.dtype] * b.abs() + NEAR_ZERO
    same |= (a == b) | (a.isnan() & b.isnan())
    if signs:
        same &= (a != 0) | (b != 0) | (a.signbit() == b.signbit())
    return ~same


@pytest.mark.parametrize("name", SPECIAL)
def test_special_values_come_out_as_in_eager_pytorch(name):
    """All calls of an op in one module: what takes time is XLA."""
    counts = []

    def step(*tensors):
        left, results = list(tensors), []
        for function, given in SPECIAL[name]:
            made = function(*[left.pop(0) for _ in given])
            made = [made] if isinstance(made, torch.Tensor) else list(made)
            counts.append(len(made))
            results += made
        return results

    given = [tensor.clone() for _, tensors in SPECIAL[name] for tensor in tensors]
    with torch.no_grad():
        recorded = record(step, *given)
    outputs, aliases = execute(emitted(recorded.recording, strict=True).data, recorded.inputs)
    pairs = list(zip(outputs[len(aliases) :], recorded.results, strict=True))
    found = []
    for (_, tensors), count in zip(SPECIAL[name], counts, strict=True):
        for ours, theirs in [pairs.pop(0) for _ in range(count)]:
            assert (ours.shape, ours.dtype) == (theirs.shape, theirs.dtype)
            if ours.is_complex():
                ours, theirs = torch.view_as_real(ours), torch.view_as_real(theirs)
            bad = wrong(ours, theirs, name not in EITHER_ZERO)
            if bad.any():
                found.append(([list(item.shape) for item in tensors], ours[bad], theirs[bad]))
    assert not found


def test_a_wrong_value_or_sign_is_seen():
    one = torch.tensor([1.0, 0.0, float("nan")])
    assert wrong(one, torch.tensor([1.0001, -0.0, 0.0]), True).all()
    assert not wrong(one, one, True).any()
