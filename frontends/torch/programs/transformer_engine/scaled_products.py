"""Products of quantised tensors.

The idea: with one scale per tensor they are ``torch._scaled_mm``, of rows with the transposed copy
that the package keeps.  Scales of blocks, and sums into a buffer of gradients, are a kernel of
their own with the same work.

    computed(weight, x, "TN", torch.bfloat16, None, None, False)
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from flint.errors import FlintError
from flint.frontends.torch.programs.transformer_engine.enums import torch_dtype
from flint.frontends.torch.programs.transformer_engine.kernels import kernel, writing_kernel
from flint.frontends.torch.user_lines import at_user_line


def computed(
    left: Any, right: Any, layout: str, dtype: torch.dtype | None, bias: Tensor | None,
    out: Tensor | None, accumulate: bool,
) -> Tensor:  # fmt: skip
    """The product ``op(right) @ op(left)``; see ``products.py``."""
    one, one_scale, per_tensor = _operand(right, layout[1] != "T")
    other, other_scale, _ = _operand(left, layout[0] == "T")
    dtype = dtype or (torch.bfloat16 if out is None else out.dtype)
    scales = one_scale, other_scale
    if out is not None:
        target = out.view(one.shape[0], other.shape[0])
        previous = target if accumulate else None
        _scaled_product_into(one, other, *scales, bias, previous, dtype, out=[target])
        return out
    if per_tensor and dtype != torch.float32:
        made = torch._scaled_mm(one, other.t(), *scales, bias=bias, out_dtype=dtype)
    else:
        made = _scaled_product(one, other, *scales, bias, dtype)
    if layout[1] == "T":
        return made
    return made.view(*right.size()[:-1], made.shape[-1])


def _operand(item: Any, rowwise: bool) -> tuple[Tensor, Tensor, bool]:
    """Rows of an operand that a product reads, their scales, whether one is for all.

    Args:
        item: the quantised tensor, [rows, size].
        rowwise: its rows are multiplied; else its columns.
    """
    if hasattr(item, "_transpose"):  # one scale
        data = item._data if rowwise else item._transpose
        if data is None and not rowwise:
            item._create_transpose()
            data = item._transpose
        found, scale, one = data, item._scale_inv, True
    elif hasattr(item, "_rowwise_scale_inv"):
        data, scale = item._rowwise_data, item._rowwise_scale_inv
        if not rowwise:
            data, scale = item._columnwise_data, item._columnwise_scale_inv
        found, one = data, False
        if not rowwise and type(item).__name__.startswith("MXFP8"):  # not transposed in memory
            return _typed(item, data.reshape(-1, data.shape[-1]).t()), scale, False
    else:
        raise FlintError(f"a product of {type(item).__name__}{at_user_line()} has no stand-in")
    rows = found.reshape(-1, found.shape[-1]) if rowwise else found.reshape(found.shape[0], -1)
    return _typed(item, rows), scale, one


def _typed(item: Any, data: Tensor) -> Tensor:
    """Bytes as the numbers that they are."""
    return data.view(torch_dtype(item._fp8_dtype)) if data.dtype == torch.uint8 else data


def _work(
    one: Tensor, other: Tensor, bias: Tensor | None, added: Tensor | None, dtype: torch.dtype
) -> Tensor:
    unit = torch.ones((), dtype=torch.float32, device=one.device)
    made = torch._scaled_mm(
        one.contiguous(), other.contiguous().t(), unit, unit, out_dtype=torch.bfloat16
    ).to(dtype)
    made = made if bias is None else made + bias
    return made if added is None else made + added


@kernel
def _scaled_product(
    one: Tensor, other: Tensor, one_scale: Tensor, other_scale: Tensor, bias: Tensor | None,
    dtype: torch.dtype,
) -> Tensor:  # fmt: skip
    return _work(one, other, bias, None, dtype)


@writing_kernel
def _scaled_product_into(
    one: Tensor, other: Tensor, one_scale: Tensor, other_scale: Tensor, bias: Tensor | None,
    added: Tensor | None, dtype: torch.dtype,
) -> list[Tensor]:  # fmt: skip
    return [_work(one, other, bias, added, dtype)]
