"""CTC loss, whose lattice is as long as the longest target.

PyTorch treats its shape as dependent on values, and its C++ around the kernel writes lengths into
memory that fake tensors do not have: that part is here, op by op (ctc_loss in
aten/src/ATen/native/LossCTC.cpp).  The lattice follows from lengths that the host knows.  For other
lengths, which it waits for, inputs and targets count with their padding, or as equally long if
targets are concatenated; a warning states this.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch._subclasses import fake_impls
from torch._subclasses.fake_tensor import FakeTensor, unset_fake_temporarily

from flint.frontends.torch.context import capture
from flint.frontends.torch.patching import replace
from flint.frontends.torch.recording.known_values import known_value
from flint.frontends.torch.user_lines import at_user_line

#: PyTorch's numbers of reductions.
_MEAN, _SUM = 1, 2


def apply() -> None:
    """Let the loss and its gradient have shapes."""
    table: Any = fake_impls.op_implementations_dict
    aten: Any = torch.ops.aten
    table[aten._ctc_loss.default] = _lattice
    table[aten._ctc_loss_backward.default] = _gradient
    replace(torch, "ctc_loss", _loss)


def _loss(
    log_probs: torch.Tensor, targets: torch.Tensor, input_lengths: Any, target_lengths: Any,
    blank: int = 0, reduction: int = _MEAN, zero_infinity: bool = False,
) -> torch.Tensor:  # fmt: skip
    batched = log_probs.dim() == 3
    if not batched:
        log_probs, targets = log_probs.unsqueeze(1), targets.unsqueeze(0)
    time, batch = log_probs.shape[:2]
    inputs = _lengths(input_lengths, batch, time)
    longest = targets.shape[1] if targets.dim() == 2 else -(-targets.shape[0] // max(batch, 1))
    wanted = _lengths(target_lengths, batch, longest)
    function: Any = torch._ctc_loss
    loss: torch.Tensor = function(log_probs, targets, inputs, wanted, blank, zero_infinity)[0]
    if zero_infinity:
        nothing = torch.zeros((), dtype=loss.dtype, device=loss.device)
        loss = torch.where(loss == torch.inf, nothing, loss)
    if reduction == _MEAN:
        shares = torch.tensor(wanted, dtype=loss.dtype, device=loss.device)
        return (loss / shares.clamp_min(1)).mean()
    if reduction == _SUM:
        return loss.sum()
    return loss if batched else loss.squeeze(0)


def _lengths(given: Any, batch: int, longest: int) -> list[int]:
    if isinstance(given, Sequence):
        return [int(item) for item in given]
    given.cpu()  # the host waits for them
    real = known_value(given) if isinstance(given, FakeTensor) else given
    if real is not None:
        with unset_fake_temporarily():
            return [int(item) for item in real.tolist()]
    capture().assume(
        f"ctc_loss{at_user_line()}: lengths are not known: each is assumed to be {longest}"
    )
    return [longest] * batch


def _lattice(
    mode: Any, op: Any, log_probs: Any, targets: Any, input_lengths: Any, target_lengths: Any,
    *_: Any, **__: Any,
) -> Any:  # fmt: skip
    time, batch = log_probs.shape[:2]
    states = 2 * max(target_lengths, default=0) + 1
    with mode:
        return log_probs.new_empty(batch), log_probs.new_empty(batch, time, states)


def _gradient(mode: Any, op: Any, grad: Any, log_probs: Any, *_: Any, **__: Any) -> Any:
    with mode:
        return torch.empty_like(log_probs)
