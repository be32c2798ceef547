"""Lowerings against torch-mlir's of the same op: same inputs, both executed by XLA.

Every case of ``lowering_cases`` is compared, but for those in ``NOT_LOWERED``.

torch-mlir is in the ``oracles`` extra where a wheel exists (Linux on x86-64); elsewhere these tests
are skipped. ``NOT_LOWERED`` names what cannot be compared, and why; a test keeps it true.
"""

from __future__ import annotations

import io

import pytest
import torch

from flint.frontends.torch.emission import emitted
from flint.stablehlo.read.bindings import ir, parse
from tests.frontends.torch.checking import assert_equal
from tests.frontends.torch.executing import execute
from tests.frontends.torch.lowering_cases import CASES, further, lists, resampled
from tests.frontends.torch.real_recording import record
from tests.frontends.torch.torch_mlir_lowering import NotLowered, stablehlo_of

pytest.importorskip("torch_mlir")

pytestmark = pytest.mark.thorough

#: What torch-mlir does not lower to StableHLO, neither itself nor decomposed, and why.
NOT_LOWERED = {
    "shift": "constants left in its own dialect",
    "complex mul": "complex numbers",
    "sgn of complex numbers": "complex numbers",
    "angle": "not supported",
    "cumprod": "constants left in its own dialect",
    "native_batch_norm train=False": "its empty results do not fit",
    "native_batch_norm_backward train=False": "its empty results do not fit",
    "upsample_nearest2d_backward": "constants left in its own dialect",
    "flash attention backward": "not supported",
    "convolution transposed": "a wrong shape, found by its verifier",
    "convolution_backward dilated": "constants left in its own dialect",
    "convolution_backward grouped": "a wrong shape, found by its verifier",
    "max_pool backward": "constants left in its own dialect",
    "avg_pool without padding in the count": "a wrong shape, found by its verifier",
    "avg_pool backward": "constants left in its own dialect",
    "adaptive_avg_pool backward": "not supported",
    "scatter_reduce": "constants left in its own dialect",
    "index_put by a mask": "constants left in its own dialect",
    "index_put of rows by a mask": "constants left in its own dialect",
    "index_put of one row by a mask": "constants left in its own dialect",
    "index_put two apart": "not supported",
    "index by a mask": "a size that values decide",
    "masked_select": "a size that values decide",
    "masked_select of a number": "a size that values decide",
    "nonzero": "a size that values decide",
    "nonzero of numbers": "a size that values decide",
    "is all true": "not supported",
    "is any true": "not supported",
    "index_reduce amax": "not supported",
    "index_reduce mean": "not supported",
    "index_reduce prod of what comes": "not supported",
    "scatter of a scalar": "not supported",
    "scatter_reduce amin of what comes": "not supported",
    "scatter_reduce mean of what comes": "not supported",
    "sort stable": "not supported",
    "bincount": "constants left in its own dialect",
    "histc": "not supported",
    "searchsorted": "not supported",
    "repeat_interleave": "not supported",
    "_conj_physical": "complex numbers",
    "complex": "complex numbers",
    "bitwise_left_shift": "constants left in its own dialect",
    "bitwise_right_shift": "constants left in its own dialect",
    "__lshift__": "constants left in its own dialect",
    "addmv": "not supported",
    "norm of all": "not supported",
    "_batch_norm_with_update": "not supported",
    "_reshape_copy": "not supported",
    "view_copy": "not supported",
    "view_copy as another dtype": "not supported",
    "permute_copy": "not supported",
    "diagonal_copy": "not supported",
    "diagonal_copy below, of other dims": "not supported",
    "diagonal_copy above": "not supported",
    "split_copy": "not supported",
    "unbind_copy": "not supported",
    **dict.fromkeys(lists.CASES, "lists of tensors, or ops that PyTorch does not trace"),
    **dict.fromkeys(further.CASES, "not supported, or complex numbers"),
    **dict.fromkeys(resampled.CASES, "not supported, or constants left in its own dialect"),
}  # fmt: skip

#: Results that differ, by place, and why. PyTorch's own kernels agree with ours (test_lowerings).
DIFFERENT = {
    "remainder of negative ints": ({0}, "has the dividend's sign"),
    "abs of complex numbers": ({0}, "is that of the real part"),
    "leaky_relu_backward": ({0}, "takes the gradient for the input and the input for the gradient"),
    "index one": ({0}, "does not count negative places from the end"),
    "index_put two neighbours": ({0}, "does not count negative places from the end"),
    "native_batch_norm train=True": ({3, 4}, "leaves the running statistics as they were"),
    "flash attention": ({1}, "are weights, not their logsumexp"),
    "flash attention without mask": ({1}, "are weights, not their logsumexp"),
    "flash attention bf16": ({1}, "are weights, not their logsumexp"),
}

#: torch-mlir ends the process on the op itself; its decomposition is lowered.
CRASHES = (
    "nll_loss reduction=0", "nll_loss reduction=1", "nll_loss reduction=2", "nll_loss with weights",
)  # fmt: skip


def for_one_rank(text):
    """Bytecode of a module as ``execute`` takes it: one partition, no input aliased."""
    module = parse(text.encode())
    with module.context:
        kind = ir.IntegerType.get_signless(32)
        module.operation.attributes["mhlo.num_partitions"] = ir.IntegerAttr.get(kind, 1)
        [main] = module.body.operations
        plain = [ir.DictAttr.get({})] * len(main.regions[0].blocks[0].arguments)
        main.operation.attributes["arg_attrs"] = ir.ArrayAttr.get(plain)
    buffer = io.BytesIO()
    module.operation.write_bytecode(buffer)
    return buffer.getvalue()


def ours(name):
    function, tensors = CASES[name]

    def step(*tensors):
        out = function(*tensors)
        return [out] if isinstance(out, torch.Tensor) else list(out)

    with torch.no_grad():
        recorded = record(step, *[tensor.clone() for tensor in tensors])
    outputs, aliases = execute(emitted(recorded.recording, strict=True).data, recorded.inputs)
    return outputs[len(aliases) :]


def theirs(name):
    text = stablehlo_of(name, decomposed=True if name in CRASHES else None)
    outputs, _ = execute(for_one_rank(text), CASES[name][1])
    return outputs


def agree(own, other):
    """As ``assert_equal``; in bfloat16 torch-mlir computes and rounds step by step: four roundings
    of the largest value."""
    try:
        assert own.dtype == other.dtype
        if own.dtype == torch.bfloat16:
            apart = (own.double() - other.double()).abs()
            assert apart.max() <= 4 * 2.0**-7 * other.double().abs().max()
        else:
            assert_equal(own, other)
    except AssertionError:
        return False
    return True


@pytest.mark.parametrize("name", [name for name in CASES if name not in NOT_LOWERED])
def test_a_lowering_computes_what_torch_mlirs_computes(name):
    pairs = list(zip(ours(name), theirs(name), strict=True))
    different, _ = DIFFERENT.get(name, (set(), ""))
    assert {at for at, pair in enumerate(pairs) if not agree(*pair)} == different


@pytest.mark.parametrize("name", NOT_LOWERED)
def test_what_is_not_compared_is_not_lowered_by_torch_mlir(name):
    with pytest.raises(NotLowered):
        stablehlo_of(name)


def test_a_crash_of_torch_mlir_is_an_answer():
    with pytest.raises(NotLowered, match="crashed"):
        stablehlo_of(CRASHES[0], decomposed=False)
    assert "stablehlo.abs" in stablehlo_of("abs float32")
