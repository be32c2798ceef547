"""FlexAttention: one fused kernel forward, and one backward.

On a GPU its function is compiled: its operations on scores and masks become part of a kernel that
visits the blocks of the score matrix named by the block mask.  Under fake tensors nothing is
compiled, and PyTorch refuses devices without such a kernel.  Here it is a separate op, whose FLOPs
are those of the visited blocks.  Where the block mask's own numbers of blocks are known, they say
how many (a program may limit them to a window); else ``mask_mod`` is evaluated outside of the
capture, with the known values of the tensors that it reads (numbers of documents): for every
position, or for evenly spaced rows of blocks of a large mask.  A mask that needs unknown values
counts as if nothing were masked.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.nn.attention import flex_attention as flex
from torch.utils._pytree import tree_map
from torch.utils.flop_counter import register_flop_formula
from torch.utils.weak import WeakIdKeyDictionary

from flint.frontends.torch.context import capture
from flint.frontends.torch.modes import function_mode
from flint.frontends.torch.patching import replace
from flint.frontends.torch.recording.known_values import known_value
from flint.frontends.torch.shims.mesh import with_real_tensors
from flint.frontends.torch.user_lines import at_user_line

#: Positions (queries x keys x batches x heads) for which a mask is evaluated; of a larger one, some
#: rows of blocks.
_MAX_POSITIONS = 2**28
#: Positions that are evaluated at once.
_AT_ONCE = 2**24

_library: Any = None
_new_library: Any = torch.library.Library

#: (mask_mod, lengths, block sizes, batches, heads) -> part of the blocks that are visited.
_visited: dict[tuple[Any, ...], float | None] = {}
#: The same by the numbers of blocks of a mask that needs values, which may be others in the next.
_visited_by_values: Any = WeakIdKeyDictionary()


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
    replace(flex, "flex_attention_hop", _attention)


def _attention(
    query: Any, key: Any, value: Any, score_mod: Any, block_mask: tuple[Any, ...], scale: float,
    *_: Any,
) -> tuple[Any, Any, Any]:  # fmt: skip
    """The results of FlexAttention's op: output, log-sum-exp and largest scores (not computed)."""
    visited = _part_visited(block_mask, query.shape[-2], key.shape[-2])
    if visited is None:
        _assume("a mask that needs values: counted as if nothing was masked")
    if score_mod is not flex._identity:
        _assume("the arithmetic of score_mod is not counted")
    mask = [item for item in block_mask if isinstance(item, torch.Tensor)]
    ops: Any = torch.ops.flint
    part = 1.0 if visited is None else visited
    output, logsumexp = ops.flex_attention(query, key, value, mask, scale, part)
    return output, logsumexp, query.new_empty(0)


def _assume(what: str) -> None:
    capture().notice(f"FlexAttention{at_user_line()}: {what}")


def _part_visited(block_mask: tuple[Any, ...], queries: int, keys: int) -> float | None:
    """The share of blocks that are not fully masked; None if it depends on values."""
    mask_mod, sizes = block_mask[-1], block_mask[-3:-1]
    if sizes[0] >= queries and sizes[1] >= keys and mask_mod is flex.noop_mask:
        return 1.0
    batches, heads = block_mask[2].shape[:2]
    stated = _stated(block_mask, -(-keys // sizes[1]))
    if stated is not None:
        return stated
    known = (mask_mod, queries, keys, *sizes, batches, heads)
    if known not in _visited and block_mask[2] not in _visited_by_values:
        part, by_values = _evaluated(mask_mod, queries, keys, sizes, batches, heads)
        if by_values:
            _visited_by_values[block_mask[2]] = part
        else:
            _visited[known] = part
    if known in _visited:
        return _visited[known]
    found: float | None = _visited_by_values[block_mask[2]]
    return found


def _stated(block_mask: tuple[Any, ...], columns: int) -> float | None:
    """What a block mask's own numbers of blocks say: partly masked ones, and full ones apart."""
    counts = [item for item in (block_mask[2], block_mask[4]) if item is not None]
    known = [found for found in map(known_value, counts) if found is not None]
    if len(known) < len(counts):
        return None
    blocks: int = counts[0].numel() * columns
    return sum(int(item.sum()) for item in known) / blocks


def _evaluated(mask_mod: Callable[..., Any], *sizes: Any) -> tuple[float | None, bool]:
    """The part of a mask's blocks that is not empty, and whether that needs values of tensors."""
    from torch._dynamo._trace_wrapped_higher_order_op import TransformGetItemToIndex

    read: list[torch.Tensor] = []

    def known(func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        return func(*tree_map(value, args), **tree_map(value, kwargs))

    def value(item: Any) -> Any:
        if not isinstance(item, FakeTensor):
            return item
        read.append(item)
        found = known_value(item)
        if found is None:
            raise LookupError("its values are not known")
        return found

    # As FlexAttention does: an index is a tensor of one number.
    with TransformGetItemToIndex(), function_mode(known):
        try:
            return with_real_tensors(_count)(mask_mod, *sizes), bool(read)
        except Exception:  # the user's mask, whatever it raises
            return None, True


def _count(
    mask_mod: Callable[..., Any], queries: int, keys: int, sizes: tuple[int, int], batches: int,
    heads: int,
) -> float:  # fmt: skip
    """Evaluate a mask everywhere; returns the share of its blocks that are not empty."""
    evaluate: Any = flex._vmap_for_bhqkv(mask_mod, prefix=())
    rows, columns = -(-queries // sizes[0]), -(-keys // sizes[1])
    across = max(keys * batches * heads, 1) * sizes[0]
    seen = min(max(_MAX_POSITIONS // across, 1), rows)
    if seen < rows:
        _assume(f"blocks of a large mask are counted in {seen} of {rows} rows, evenly spaced")
    chosen = [(2 * index + 1) * rows // (2 * seen) for index in range(seen)]
    step = max(_AT_ONCE // across, 1)
    count = 0
    for start in range(0, seen, step):
        rows_now = torch.tensor(chosen[start : start + step])
        positions = rows_now[:, None] * sizes[0] + torch.arange(sizes[0])
        inside = positions < queries
        found = evaluate(
            torch.arange(batches), torch.arange(heads), positions[inside], torch.arange(keys)
        ).expand(batches, heads, int(inside.sum()), keys)
        padding = (0, columns * sizes[1] - keys, 0, inside.numel() - found.shape[-2])
        whole: Any = torch.nn.functional.pad(found, padding)
        blocks = whole.unflatten(-1, (columns, sizes[1])).unflatten(-3, (-1, sizes[0]))
        count += int(blocks.any(-1).any(-2).sum())
    return count / (seen * columns * batches * heads)


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
