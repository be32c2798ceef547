"""FlexAttention: one fused kernel forward, and one backward.

On a GPU its function is compiled: its operations on scores and masks become part of a kernel that
visits the blocks of the score matrix named by the block mask.  Under fake tensors nothing is
compiled, and PyTorch refuses devices without such a kernel.  Here it is a separate op, whose FLOPs
are those of the visited blocks (``visited_blocks``).  Code that Dynamo traces keeps PyTorch's own
op, which Inductor lowers.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.attention import flex_attention as flex
from torch.utils.flop_counter import register_flop_formula

from flint.frontends.torch.patching import replace
from flint.frontends.torch.visited_blocks import SCORE, assume, part_visited

_library: Any = None
_new_library: Any = torch.library.Library


def apply() -> None:
    """Give the recording device its FlexAttention."""
    global _library
    _library = _new_library("flint", "DEF")
    _library.define(
        "flex_attention(Tensor query, Tensor key, Tensor value, Tensor[] mask, float scale, "
        "float visited) -> (Tensor, Tensor)"
    )
    _library.define(
        "flex_attention_backward(Tensor gradient, Tensor query, Tensor key, Tensor value, "
        "Tensor output, Tensor logsumexp, Tensor[] mask, float scale, float visited) "
        "-> (Tensor, Tensor, Tensor)"
    )
    library: Any = torch.library
    library.register_fake("flint::flex_attention", _fake, lib=_library)
    library.register_fake("flint::flex_attention_backward", _fake_backward, lib=_library)
    library.register_autograd("flint::flex_attention", _backward, setup_context=_keep, lib=_library)
    ops: Any = torch.ops.flint
    register_flop_formula(ops.flex_attention)(_flops)
    register_flop_formula(ops.flex_attention_backward)(_flops_backward)
    replace(flex, "_FLEX_ATTENTION_DISABLE_COMPILE_DEBUG", True)
    replace(flex, "_validate_device", lambda *_: None)
    replace(flex, "_warn_once", lambda *_, **__: None)
    original: Any = torch.ops.higher_order.flex_attention

    def attention(*args: Any) -> Any:
        return original(*args) if torch.compiler.is_dynamo_compiling() else _attention(*args)

    replace(flex, "flex_attention_hop", attention)


def _attention(
    query: Any, key: Any, value: Any, score_mod: Any, block_mask: tuple[Any, ...], scale: float,
    *_: Any,
) -> tuple[Any, Any, Any]:  # fmt: skip
    """The results of FlexAttention's op: output, log-sum-exp and largest scores (not computed)."""
    mask_mod, numbers = block_mask[-1], (block_mask[2], block_mask[4])
    lengths = query.shape[-2], key.shape[-2]
    part = part_visited(mask_mod, numbers, block_mask[-3:-1], lengths)
    if score_mod is not flex._identity:
        assume(SCORE)
    mask = [item for item in block_mask if isinstance(item, torch.Tensor)]
    ops: Any = torch.ops.flint
    output, logsumexp = ops.flex_attention(query, key, value, mask, scale, part)
    return output, logsumexp, query.new_empty(0)


def _fake(query: Any, key: Any, value: Any, mask: Any, scale: float, visited: float) -> Any:
    batch, heads, queries = query.shape[:3]
    return (
        query.new_empty(batch, heads, queries, value.shape[-1]),
        query.new_empty(batch, heads, queries, dtype=torch.float32),
    )


def _fake_backward(gradient: Any, query: Any, key: Any, value: Any, *_: Any) -> Any:
    return tuple(torch.empty_like(item) for item in (query, key, value))


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Any, Any]) -> None:
    query, key, value, mask, ctx.scale, ctx.visited = inputs
    ctx.mark_non_differentiable(output[1])
    ctx.save_for_backward(query, key, value, *output, *mask)


def _backward(ctx: Any, gradient: Any, _: Any) -> Any:
    query, key, value, output, logsumexp, *mask = ctx.saved_tensors
    ops: Any = torch.ops.flint
    found = ops.flex_attention_backward(
        gradient, query, key, value, output, logsumexp, mask, ctx.scale, ctx.visited
    )
    return (*found, [None] * len(mask), None, None)


def _flops(
    query: Any, key: Any, value: Any, mask: Any, scale: float, visited: float, **_: Any
) -> int:
    """Scores and weighted values, of the visited blocks."""
    batch, heads, queries, size = query
    return int(2 * batch * heads * queries * key[-2] * (size + value[-1]) * visited)


def _flops_backward(
    gradient: Any, query: Any, key: Any, value: Any, output: Any, logsumexp: Any, mask: Any,
    scale: float, visited: float, **_: Any,
) -> int:  # fmt: skip
    """The scores again, the gradients of query, key and value, and of the weights."""
    batch, heads, queries, size = query
    return int(2 * batch * heads * queries * key[-2] * (3 * size + 2 * value[-1]) * visited)
