"""A step's cell of a recurrent layer, forward and backward, once its gates are multiplied.

The idea: a GPU has one kernel for all that is not a product (aten/src/ATen/native/cuda/RNN.cu).  It
keeps what its gradient needs in a workspace [batch, k x hidden]: the gates, and for a GRU the state
and the hidden part of the new state.  Gates come in the order of the weights' rows: reset, input,
new of a GRU; input, forget, cell, output of an LSTM.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from flint.frontends.torch.lowerings.calls import Call
from flint.frontends.torch.lowerings.table import in_torch


def _plus(gates: Tensor, bias: Tensor | None) -> Tensor:
    return gates if bias is None else gates + bias


@in_torch("aten._thnn_fused_gru_cell")
def _gru_cell(
    call: Call, input_gates: Tensor, hidden_gates: Tensor, state: Tensor,
    input_bias: Tensor | None = None, hidden_bias: Tensor | None = None,
) -> list[Tensor]:  # fmt: skip
    reset_in, input_in, new_in = _plus(input_gates, input_bias).chunk(3, 1)
    reset_hidden, input_hidden, new_hidden = _plus(hidden_gates, hidden_bias).chunk(3, 1)
    reset = torch.sigmoid(reset_in + reset_hidden)
    update = torch.sigmoid(input_in + input_hidden)
    new = torch.tanh(new_in + reset * new_hidden)
    workspace = torch.cat([reset, update, new, state, new_hidden], 1)
    return [new + update * (state - new), workspace]


@in_torch("aten._thnn_fused_gru_cell_backward")
def _gru_cell_backward(call: Call, grad: Tensor, workspace: Tensor, has_bias: bool) -> list[Tensor]:
    reset, update, new, state, new_hidden = workspace.chunk(5, 1)
    of_update = grad * (state - new) * (1 - update) * update
    of_new = grad * (1 - update) * (1 - new * new)
    of_reset = of_new * new_hidden * (1 - reset) * reset
    inputs = torch.cat([of_reset, of_update, of_new], 1)
    hidden = torch.cat([of_reset, of_update, of_new * reset], 1)
    none = grad.new_zeros(0)
    biases = [inputs.sum(0), hidden.sum(0)] if has_bias else [none, none]
    return [inputs, hidden, grad * update, *biases]


@in_torch("aten._thnn_fused_lstm_cell")
def _lstm_cell(
    call: Call, input_gates: Tensor, hidden_gates: Tensor, cell: Tensor,
    input_bias: Tensor | None = None, hidden_bias: Tensor | None = None,
) -> list[Tensor]:  # fmt: skip
    gates = _plus(input_gates, input_bias) + _plus(hidden_gates, hidden_bias)
    put, kept, new, out = gates.chunk(4, 1)
    put, kept, new, out = put.sigmoid(), kept.sigmoid(), new.tanh(), out.sigmoid()
    after = kept * cell + put * new
    return [out * after.tanh(), after, torch.cat([put, kept, new, out], 1)]


@in_torch("aten._thnn_fused_lstm_cell_backward_impl")
def _lstm_cell_backward(
    call: Call, grad: Tensor | None, cell_grad: Tensor | None, before: Tensor, after: Tensor,
    workspace: Tensor, has_bias: bool,
) -> list[Any]:  # fmt: skip
    put, kept, new, out = workspace.chunk(4, 1)
    state = after.tanh()
    of_cell = torch.zeros_like(after) if cell_grad is None else cell_grad
    of_out = torch.zeros_like(after)
    if grad is not None:
        of_cell = of_cell + grad * out * (1 - state * state)
        of_out = grad * state * (1 - out) * out
    gates = torch.cat(
        [
            of_cell * new * (1 - put) * put,
            of_cell * before * (1 - kept) * kept,
            of_cell * put * (1 - new * new),
            of_out,
        ],
        1,
    )
    return [gates, of_cell * kept, *([gates.sum(0)] if has_bias else [])]
