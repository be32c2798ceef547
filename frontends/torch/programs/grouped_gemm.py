"""grouped_gemm's functions by PyTorch's ops, for programs that import it where it is not installed.

The idea: a product of each expert's rows with its matrix is one kernel of PyTorch's too
(``torch._grouped_mm``).  Rows are brought into the order of their experts by a sort and a copy, and
back by a copy and a sum.  Arguments and results are those of grouped_gemm 1.1.

    rows, places = permute(x, choices); y = unpermute(gmm(rows, weights, counts), places, scores)
"""

from __future__ import annotations

import torch
from torch import Tensor


def gmm(
    a: Tensor, b: Tensor, batch_sizes: Tensor, trans_a: bool = False, trans_b: bool = False
) -> Tensor:
    """Products of ``batch_sizes`` rows of ``a`` [rows, k] each with its own ``b`` [groups, k, n].

    With ``trans_a``, columns of the groups' rows with each other: [rows, m], [rows, n].
    """
    ends = batch_sizes.cumsum(0).to(a.device, torch.int32)
    left = a.transpose(-2, -1) if trans_a else a
    right = b.transpose(-2, -1) if trans_b else b
    return torch._grouped_mm(left, right, offs=ends)


def permute(
    input_act: Tensor, indices: Tensor, num_out_tokens: int | None = None, max_token_num: int = 0
) -> tuple[Tensor, Tensor]:
    """Rows [tokens, size] in the order of the experts that they choose, and where each has gone.

    Args:
        input_act: the rows.
        indices: experts that each row chooses, [tokens] or [tokens, choices].
        num_out_tokens: how many are kept; the first ones.
        max_token_num: not used.
    """
    choices = indices.numel() // indices.shape[0]
    order = torch.argsort(indices.reshape(-1), stable=True)
    kept = order[: num_out_tokens or order.shape[0]]
    return input_act.index_select(0, kept // choices), order.to(torch.int32)


def unpermute(
    input_act: Tensor, row_id_map: Tensor, probs: Tensor | None = None, max_tokens_num: int = 0
) -> Tensor:
    """The inverse; the rows of each token are weighted by ``probs`` [tokens, choices] and added."""
    size = input_act.shape[-1]
    rows = input_act.new_zeros(row_id_map.shape[0], size)
    rows = rows.index_copy(0, row_id_map[: input_act.shape[0]].long(), input_act)
    if probs is None:
        return rows
    return (rows.view(*probs.shape, size) * probs.unsqueeze(-1).to(rows.dtype)).sum(1)
