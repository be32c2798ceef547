"""Packed sequences, whose sizes follow from lengths on the host.

PyTorch's C++ reads the lengths from memory, and fake tensors treat every result's shape as
dependent on values.  Lengths are on the host, where a program knows them: packing and its inverse
are here, op by op (``_pack_padded_sequence`` and ``_pad_packed_sequence`` in
aten/src/ATen/native/PackedSequence.cpp).  The code in between (recurrent networks, gradients) reads
the sizes that packing returns, which are real.  Unknown lengths are assumed to be those of the
padded sequences; a warning states this.
"""

from __future__ import annotations

from itertools import groupby
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor, unset_fake_temporarily

from flint.frontends.torch.context import capture
from flint.frontends.torch.patching import around
from flint.frontends.torch.recording.known_values import known_value
from flint.frontends.torch.user_lines import at_user_line


def apply() -> None:
    """Make packing of sequences, and padding them again, work."""
    around(torch._VF, "_pack_padded_sequence", _pack)
    around(torch._VF, "_pad_packed_sequence", _pad)


def _pack(pack: Any, input: torch.Tensor, lengths: torch.Tensor, batch_first: bool) -> Any:
    if not isinstance(input, FakeTensor):
        return pack(input, lengths, batch_first)
    packed: Any = _Packed.apply
    return packed(input, _known(lengths, input.shape[int(batch_first)]), batch_first)


def _pad(
    pad: Any,
    data: torch.Tensor,
    counts: torch.Tensor,
    batch_first: bool,
    value: float,
    longest: int,
) -> Any:
    if not isinstance(data, FakeTensor):
        return pad(data, counts, batch_first, value, longest)
    with unset_fake_temporarily():
        sizes: list[int] = counts.tolist()
    padded = data.new_full((longest, sizes[0], *data.shape[1:]), value)
    start = row = 0
    for size, steps in ((size, len(list(same))) for size, same in groupby(sizes)):
        rows = data[row : row + size * steps].view(steps, size, *data.shape[1:])
        padded[start : start + steps, :size].copy_(rows)
        start, row = start + steps, row + size * steps
    lengths = torch.tensor(
        [sum(size > at for size in sizes) for at in range(sizes[0])], device="cpu"
    )
    return padded.transpose(0, 1) if batch_first else padded, lengths


def _known(lengths: Any, longest: int) -> list[int]:
    real = known_value(lengths) if isinstance(lengths, FakeTensor) else lengths
    if real is not None:
        with unset_fake_temporarily():
            found: list[int] = real.tolist()
        return found
    capture().assume(
        f"sequences are packed{at_user_line()} by lengths that are not known: each is assumed to "
        f"be {longest}"
    )
    return [longest] * len(lengths)


class _Packed(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, input: torch.Tensor, lengths: list[int], batch_first: bool) -> Any:
        """Blocks of steps with the same number of sequences, one after another."""
        rows = input.transpose(0, 1) if batch_first else input
        if lengths != sorted(lengths, reverse=True) or min(lengths) <= 0:
            raise RuntimeError(
                "pack_padded_sequence: lengths must be positive and, with enforce_sorted=True, "
                "in decreasing order"
            )
        blocks: list[torch.Tensor] = []
        sizes: list[int] = []
        for at in reversed(range(len(lengths))):
            if lengths[at] > len(sizes):
                block = rows[len(sizes) : lengths[at], : at + 1].contiguous()
                blocks.append(block.view(-1, *rows.shape[2:]))
                sizes += [at + 1] * (lengths[at] - len(sizes))
        with unset_fake_temporarily():
            counts = torch.tensor(sizes, device="cpu")  # whatever the default device is
        ctx.input, ctx.batch_first, ctx.counts = input.shape, batch_first, counts
        ctx.mark_non_differentiable(counts)
        return torch.cat(blocks), counts

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor, _: Any) -> Any:
        op: Any = torch.ops.aten._pack_padded_sequence_backward.default
        return op(grad, ctx.input, ctx.counts, ctx.batch_first), None, None
