"""FLOPs and bytes of attention by the shapes of recorded ops: dense, ragged and over paged caches.

The idea: attention is two products over the pairs of positions that see each other, five in its
backward pass.  For one sequence, the pairs follow from shapes and mask.  For several in one tensor
(varlen), a trace records only their number, their total length and a bound for the longest; the
lengths are values, which traces do not record.  Where they are given (a capture may know them), the
pairs are those of each sequence.  Elsewhere their number is

- exact for one sequence; if number times bound is the total, so that all have that length; and if
  that is so only for the queries and each sees every key of its sequence;
- at least that of equal lengths if queries and keys have the same total (each sequence sees
  itself), because the pairs of a sequence are convex in its length;
- unknown otherwise, and if a table lists the pages of a cache that hold the keys, or a tensor says
  how many keys count.

    FORMULAS["_flash_attention_forward"](arguments, values)
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from math import prod
from typing import Any, Final, NamedTuple

from flint.cost.recorded_op import Arguments, Formula, Items, OpWork
from flint.graph.work import Unit, WorkItem

LOWER_BOUND: Final = (
    "attention over several sequences in one tensor: their lengths are values (cu_seqlens), "
    "which traces do not record; its FLOPs are those of equal lengths, a lower bound"
)
UNKNOWN: Final = (
    "attention over an unrecorded number of keys per query (lengths and pages of a cache are "
    "values: cu_seqlens, seqused_k, block_table): its FLOPs are unknown, and so are its bytes "
    "if keys are in pages"
)


class _Attention(NamedTuple):
    """Positions of an attention op's arguments, and the layout of its tensors; -1 for none.

    Attributes:
        query: its position; key and value follow.
        causal: the position of the argument for it.
        heads_first: whether shapes are [batch, heads, positions, size], else heads after positions.
        backward: whether it is the backward pass.
        starts: the position of the offsets of a ragged batch's queries; those of the keys follow.
        longest: the position of the bound for the queries of a sequence; that for the keys follows.
        window: the position of how many keys before its own a query sees; the number of those after
            it follows, or both are a list there.  Only FlashAttention's ops have one; their causal
            mask ends at the last key, not at as many keys as there are queries.
        hiding: positions of arguments that say which keys count, or where they are.
    """

    query: int
    causal: int
    heads_first: bool
    backward: bool = False
    starts: int = -1
    longest: int = -1
    window: int = -1
    hiding: tuple[int, ...] = ()


#: From the schemas of PyTorch, of FlashAttention (flash_attn_interface.py and hopper/flash_api.cpp)
#: and of vLLM's version of it (vllm_flash_attn, csrc/flash_attn/flash_api_torch_lib.cpp).
_HOPPER: Final = _Attention(0, 24, False, False, 7, 12, 25, (3, 10, 11, 14, 15, 16))
_ATTENTIONS: Final = {
    "scaled_dot_product_attention": _Attention(0, 5, True),
    "_scaled_dot_product_flash_attention": _Attention(0, 4, True),
    "_scaled_dot_product_flash_attention_for_cpu": _Attention(0, 4, True),
    "_scaled_dot_product_efficient_attention": _Attention(0, 6, True),
    "_scaled_dot_product_cudnn_attention": _Attention(0, 6, True),
    "_scaled_dot_product_flash_attention_backward": _Attention(1, 11, True, True),
    "_scaled_dot_product_flash_attention_for_cpu_backward": _Attention(1, 7, True, True),
    "_scaled_dot_product_efficient_attention_backward": _Attention(1, 11, True, True),
    "_scaled_dot_product_cudnn_attention_backward": _Attention(1, 14, True, True),
    "_cudnn_attention_forward": _Attention(0, 10, True, False, 4, 6),
    "_cudnn_attention_backward": _Attention(1, 14, True, True, 9, 11),
    "_flash_attention_forward": _Attention(0, 8, False, False, 3, 5, 11, (13, 15)),
    "_flash_attention_backward": _Attention(1, 11, False, True, 6, 8, 15),
    "_efficient_attention_forward": _Attention(0, 9, False, False, 4, 6, -1, (12,)),
    "_efficient_attention_backward": _Attention(1, 14, False, True, 6, 8),
    "_varlen_attn": _Attention(0, 7, False, False, 3, 5, 9, (11, 12)),
    "_varlen_attn_backward": _Attention(1, 10, False, True, 6, 8, 13),
    "_flash_attn_forward": _Attention(0, 5, False, False, -1, -1, 6),
    "_flash_attn_backward": _Attention(1, 11, False, True, -1, -1, 12),
    "_flash_attn_varlen_forward": _Attention(0, 9, False, False, 3, 5, 10, (15, 16, 17)),
    "_flash_attn_varlen_backward": _Attention(1, 15, False, True, 9, 11, 16),
    "varlen_fwd": _Attention(0, 15, False, False, 4, 10, 16, (6, 7, 8)),
    "flash_attn_3::fwd": _HOPPER,
    "flash_attn_3::_flash_attn_forward": _HOPPER,
    "_vllm_fa3_C::fwd": _HOPPER,
    "sgl_kernel::fwd": _HOPPER,
}
#: ``CausalFromBottomRight`` of ``_efficient_attention_forward``.
_FROM_BOTTOM_RIGHT: Final = 2
#: Per score: scale, maximum, difference, sum, quotient and mask; and one exponential.
_SCORE: Final = 6


class _Mask(NamedTuple):
    """Which keys a query sees: how many before and after its own; None for all.

    ``last``: the last query's own key is the last one, else the first query's is the first.
    """

    before: int | None
    behind: int | None
    last: bool

    def pairs(self, rows: int, columns: int) -> int:
        """Pairs that see each other among the queries and keys of one sequence."""
        own = columns - rows if self.last else 0
        found = rows * columns
        if self.behind is not None:
            found = _keys_below(rows, own + self.behind + 1, columns)
        if self.before is not None:
            found -= _keys_below(rows, own - self.before, columns)
        return found


def _keys_below(rows: int, first: int, columns: int) -> int:
    """The sum over rows i of first + i, kept within 0 and ``columns``."""

    def upto(end: int) -> int:
        inside = min(max(end, 0), columns + 1)
        return inside * (inside - 1) // 2 + max(end - inside, 0) * columns if end > 0 else 0

    return upto(first + rows) - upto(first)


class _Seen(NamedTuple):
    """Pairs of one or of all sequences; ``alike``: (sequences, queries, keys) if all are equal."""

    pairs: int
    alike: tuple[int, int, int] | None
    lacks: str = ""


def _ragged(
    rows: int, columns: int, sequences: int, longest: Sequence[Any], mask: _Mask
) -> _Seen | None:
    """The pairs of sequences that follow each other in one tensor; None if unknown.

    Args:
        rows, columns: total number of queries and of keys.
        sequences: number of sequences.
        longest: bounds for the queries and the keys of one sequence; None if not recorded.
        mask: the mask of each sequence.
    """
    each = [total // sequences for total in (rows, columns)]
    known = [
        sequences == 1 or (length is not None and int(length) * sequences == total)
        for length, total in zip(longest, (rows, columns), strict=True)
    ]
    if all(known):
        return _Seen(sequences * mask.pairs(*each), (sequences, each[0], each[1]))
    sees_all = mask.before is None and (mask.behind is None or (mask.last and each[0] == 1))
    if known[0] and sees_all:
        return _Seen(each[0] * columns, None)
    if rows != columns:
        return None
    longer = rows % sequences
    pairs = longer * mask.pairs(each[0] + 1, each[0] + 1)
    pairs += (sequences - longer) * mask.pairs(each[0], each[0])
    return _Seen(pairs, None if longer else (sequences, each[0], each[0]), LOWER_BOUND)


def _of_offsets(
    offsets: Sequence[Any], totals: Sequence[int], sequences: int, mask: _Mask
) -> _Seen | None:
    """The pairs of sequences of known lengths; None if they are not, or no such lengths.

    Args:
        offsets: where each sequence of the queries and of the keys begins, and the last one ends.
        totals: number of queries and of keys.
        sequences: number of sequences.
        mask: the mask of each sequence.
    """
    # An execution trace has a list in a tensor's place, with its numbers and its device.
    known = [isinstance(item, list) and all(type(at) is int for at in item) for item in offsets]
    if known != [True, True]:
        return None
    lengths = [[end - start for start, end in pairwise(item)] for item in offsets]
    if any(length < 0 for item in lengths for length in item):
        return None
    if [len(item) for item in lengths] != [sequences, sequences] or any(
        item[0] or item[-1] > total for item, total in zip(offsets, totals, strict=True)
    ):
        return None
    each = Counter(zip(*lengths, strict=True))
    pairs = sum(count * mask.pairs(*sizes) for sizes, count in each.items())
    return _Seen(pairs, (len(lengths[0]), *next(iter(each))) if len(each) == 1 else None)


def _mask(layout: _Attention, values: Sequence[Any]) -> _Mask:
    def value(place: int) -> Any:
        return values[place] if 0 <= place < len(values) else None

    causal, window, last = value(layout.causal), value(layout.window), layout.window >= 0
    sides = window if isinstance(window, list) else [window, value(layout.window + 1)]
    before, behind = (
        int(side) if type(side) is int and side >= 0 else None for side in [*sides, None, None][:2]
    )
    if causal is True or (type(causal) is int and causal > 0):
        last, behind = last or (causal is not True and causal == _FROM_BOTTOM_RIGHT), 0
    return _Mask(before, behind, last)


def _attention(layout: _Attention) -> Formula:
    def formula(arguments: Arguments, values: Sequence[Any]) -> Items | OpWork | None:
        if any(place < len(arguments) and arguments[place] for place in layout.hiding):
            return of_pages(arguments, values)
        tensors = [arguments[layout.query + i][0] for i in range(3)]
        dtype, mask = tensors[0][1] or "bf16", _mask(layout, values)
        (*_, size), (*_, wide) = tensors[0][0], tensors[2][0]
        starts = arguments[layout.starts : layout.starts + 1] if layout.starts >= 0 else ()
        if starts and starts[0]:
            sequences = starts[0][0][0][0] - 1
            q, k, _ = (shape[-3:] for shape, _ in tensors)  # CUTLASS puts a batch of one in front
            if sequences < 1 or any(prod(shape[:-3]) != 1 for shape, _ in tensors):
                return None
            bounds = [*values[layout.longest : layout.longest + 2], None, None][:2]
            heads = q[1]
            offsets = values[layout.starts : layout.starts + 2]
            found = _of_offsets(offsets, (q[0], k[0]), sequences, mask)
            found = found or _ragged(q[0], k[0], sequences, bounds, mask)
        else:
            q, k, _ = (shape for shape, _ in tensors)
            if any(len(shape) != 4 for shape, _ in tensors):
                return None
            heads, rows = (q[1], q[2]) if layout.heads_first else (q[2], q[1])
            columns = k[2] if layout.heads_first else k[1]
            found = _Seen(q[0] * mask.pairs(rows, columns), (q[0], rows, columns))
        if found is None:
            return OpWork(None, None, UNKNOWN)
        items = _items(heads, found, (size, wide), dtype, backward=layout.backward)
        return OpWork(items, None, found.lacks) if found.lacks else items

    return formula


def _items(heads: int, seen: _Seen, sizes: tuple[int, int], dtype: str, *, backward: bool) -> Items:
    """The work of all pairs in all heads, for these sizes of keys and values."""
    scores, alike = heads * seen.pairs, seen.alike
    whole = alike is not None and prod(alike) == seen.pairs
    # Backward: scores and the gradients of q and k; the gradients of v and of the scores.
    times = (3, 2) if backward else (1, 1)
    return (
        *(
            WorkItem(
                Unit.MATMUL, dtype, 2 * scores * size,
                (heads * alike[0], alike[1], alike[2], size) if alike and whole else None,
            )
            for size, often in zip(sizes, times, strict=True)
            for _ in range(often)
        ),
        WorkItem(Unit.VECTOR, "f32", _SCORE * scores),
        WorkItem(Unit.TRANSCENDENTAL, "f32", scores),
    )  # fmt: skip


def of_pages(arguments: Arguments, values: Sequence[Any]) -> OpWork:
    """Queries over a cache: its shape is that of all existing pages, not of the pages read."""
    return OpWork(None, (0, 0), UNKNOWN)


def _names(text: str) -> tuple[str, ...]:
    return tuple(text.split())


FORMULAS: Final[dict[str, Formula]] = {
    **{name: _attention(layout) for name, layout in _ATTENTIONS.items()},
    # vLLM (csrc/torch_bindings.cpp), AITER and FlashMLA.
    **dict.fromkeys(
        _names(
            "paged_attention_v1 paged_attention_v2 paged_attention paged_attention_rocm "
            "paged_attention_ragged unified_attention unified_attention_with_output "
            "unified_mla_attention unified_mla_attention_with_output fwd_kvcache fwd_kvcache_mla"
        ),
        of_pages,
    ),
}
#: FlashInfer's ops have types and sizes in their names: ``batch_decode_with_kv_cache_..._run``.
FLASHINFER: Final = re.compile(r"batch_(decode|prefill)_.*_run")


def offsets_of(name: str) -> tuple[int, ...]:
    """Positions of an op's arguments with the offsets of packed queries and keys; () without."""
    layout = _ATTENTIONS.get(name)
    return () if layout is None or layout.starts < 0 else (layout.starts, layout.starts + 1)


def needs_values(name: str) -> bool:
    """Whether an op's work depends on its mask, its window or the bounds of its lengths."""
    return name in _ATTENTIONS
