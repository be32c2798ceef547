"""The blocks of a score matrix that FlexAttention's kernels visit, as a share of all.

The idea: where the block mask's own numbers of blocks are known, they say how many (a program may
limit them to a window); else ``mask_mod`` is evaluated outside of the capture, with the known
values of the tensors that it reads (numbers of documents): for every position, or for evenly spaced
rows of blocks of a large mask.  A mask that needs unknown values counts as if nothing were masked.

    part_visited(causal, (numbers, None), (128, 128), (512, 512))        # 10 of 16 blocks: 0.625
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.nn.attention import flex_attention as flex
from torch.utils._pytree import tree_map
from torch.utils.weak import WeakIdKeyDictionary

from flint.frontends.torch.context import capture
from flint.frontends.torch.modes import function_mode, with_real_tensors
from flint.frontends.torch.recording.known_values import known_value
from flint.frontends.torch.user_lines import at_user_line

#: Positions (queries x keys x batches x heads) for which a mask is evaluated; of a larger one, some
#: rows of blocks.
_MAX_POSITIONS = 2**28
#: Positions that are evaluated at once.
_AT_ONCE = 2**24

#: What is said of a changed score.
SCORE = "the arithmetic of score_mod is not counted"

#: (mask_mod, lengths, block sizes, batches, heads) -> part of the blocks that are visited.
_visited: dict[tuple[Any, ...], float | None] = {}
#: The same by the numbers of blocks of a mask that needs values, which may be others in the next.
_visited_by_values: Any = WeakIdKeyDictionary()


def assume(what: str) -> None:
    """Note an assumption about an attention, with the program's line."""
    capture().notice(f"FlexAttention{at_user_line()}: {what}")


def part_visited(
    mask_mod: Callable[..., Any], numbers: tuple[Any, Any], sizes: tuple[int, int],
    lengths: tuple[int, int],
) -> float:  # fmt: skip
    """The share of blocks that are not fully masked; if it depends on unknown values, 1, with a
    warning.

    Args:
        mask_mod: says of a batch, a head, a query and a key whether they attend.
        numbers: of blocks that are partly masked, and of full ones (or None), for each row of
            blocks: [batches, heads, rows].
        sizes: of a block, queries and keys.
        lengths: queries and keys.
    """
    if sizes[0] >= lengths[0] and sizes[1] >= lengths[1]:
        return 1.0
    counts = [item for item in numbers if item is not None]
    found = _stated(counts, -(-lengths[1] // sizes[1]))
    if found is None:
        found = _by_mask(mask_mod, counts[0], sizes, lengths)
    if found is None:
        assume("a mask that needs values: counted as if nothing was masked")
    return 1.0 if found is None else found


def _stated(counts: list[Any], columns: int) -> float | None:
    """What a block mask's own numbers of blocks say."""
    known = [found for found in map(known_value, counts) if found is not None]
    if len(known) < len(counts):
        return None
    blocks: int = counts[0].numel() * columns
    return sum(int(item.sum()) for item in known) / blocks


def _by_mask(
    mask_mod: Callable[..., Any], numbers: Any, sizes: tuple[int, int], lengths: tuple[int, int]
) -> float | None:
    """What the mask says; None if it depends on unknown values."""
    known = (mask_mod, *lengths, sizes, *numbers.shape[:2])
    if known in _visited:
        return _visited[known]
    if numbers not in _visited_by_values:
        part, by_values = _evaluated(*known)
        if not by_values:
            _visited[known] = part
            return part
        _visited_by_values[numbers] = part
    found: float | None = _visited_by_values[numbers]
    return found


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
        assume(f"blocks of a large mask are counted in {seen} of {rows} rows, evenly spaced")
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
