"""Every lowering against PyTorch's eager kernel: one call on random inputs, executed by XLA."""

from __future__ import annotations

import pytest
import torch

from flint.frontends.torch.lowerings import TABLE
from flint.frontends.torch.lowerings.table import entry_of
from tests.frontends.torch.checking import CANCELLED, check, skip_if_not_decomposed
from tests.frontends.torch.lowering_cases import CASES
from tests.frontends.torch.lowering_cases.random_numbers import RANDOM
from tests.frontends.torch.real_recording import record

#: Kernels that round to a half type before the last sum, relative to the largest value: weights of
#: attention, which add up to 1, to bfloat16's nearest, at most 2**-9 of each away on either side.
ROUNDED_WITHIN = {"flash attention bf16": 2.0**-8}


@pytest.mark.parametrize("name", CASES)
def test_a_lowering_computes_what_eager_pytorch_computes(name):
    skip_if_not_decomposed(name)
    function, tensors = CASES[name]

    def step(*tensors):
        out = function(*tensors)
        return [out] if isinstance(out, torch.Tensor) else list(out)

    with torch.no_grad():
        recorded = record(step, *[tensor.clone() for tensor in tensors])
    check(recorded, cancelled=ROUNDED_WITHIN.get(name, CANCELLED))


_BY_HAND = "no kernel here: recorded by hand in test_ops_by_hand"
_SYNCHRONISED = "no kernel here: test_unseen_batch_norm"
_RECURRENT = "no kernel here: recorded by hand in test_recurrent_cells"

#: Rows of the table that no case calls, and where they are tested instead.
ELSEWHERE = {
    "aten._copy_from": _BY_HAND,
    "aten._efficientzerotensor": _BY_HAND,
    "aten._fused_rms_norm_backward": _BY_HAND,
    "aten._grouped_mm": _BY_HAND,
    "aten._scaled_dot_product_cudnn_attention": _BY_HAND,
    "aten._scaled_dot_product_cudnn_attention_backward": _BY_HAND,
    "aten._scaled_dot_product_efficient_attention": _BY_HAND,
    "aten._scaled_dot_product_efficient_attention_backward": _BY_HAND,
    "aten._scaled_dot_product_flash_attention": _BY_HAND,
    "aten._scaled_dot_product_flash_attention_backward": _BY_HAND,
    "aten._scaled_mm": _BY_HAND,
    "aten._thnn_fused_gru_cell": _RECURRENT,
    "aten._thnn_fused_gru_cell_backward": _RECURRENT,
    "aten._thnn_fused_lstm_cell": _RECURRENT,
    "aten._thnn_fused_lstm_cell_backward_impl": _RECURRENT,
    "aten.batch_norm_backward_elemt": _SYNCHRONISED,
    "aten.batch_norm_backward_reduce": _SYNCHRONISED,
    "aten.batch_norm_elemt": _SYNCHRONISED,
    "aten.batch_norm_gather_stats_with_counts": _SYNCHRONISED,
    "aten.batch_norm_stats": _SYNCHRONISED,
    "aten.multinomial": "test_random_numbers",
    "aten.randperm": "test_random_numbers",
    "inductor_kernel": "inductor/test_compiled_steps",
}


def test_every_row_of_the_table_is_called_by_a_case_or_tested_elsewhere():
    """By the ops that PyTorch dispatches in a case, not by the cases' names."""
    called = set()
    for function, tensors in [*CASES.values(), *((case[0], []) for case in RANDOM.values())]:

        def step(*tensors, function=function):
            out = function(*tensors)
            return [out] if isinstance(out, torch.Tensor) else list(out)

        with torch.no_grad():
            recorded = record(step, *[tensor.clone() for tensor in tensors])
        called |= {entry_of(op.name) for op in recorded.recording.ops}
    assert set(TABLE) - called == set(ELSEWHERE)
