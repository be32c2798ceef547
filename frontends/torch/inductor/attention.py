"""FlexAttention's kernels: Inductor's templates, whose products are those of the visited blocks.

The idea: the template says which arguments have the numbers of blocks; the op that was lowered has
the mask's graph, which is kept as text, and the tensors that it captures.  How many blocks are
visited is known when the kernel is called, from the values that its arguments then have.

    watch()                                   # once: lowered attention is described
    products_of(node, kernel)                 # of a scheduled template, None if it is none
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from flint.frontends.torch.inductor import adapter
from flint.frontends.torch.inductor.operations import TRANSCENDENTAL
from flint.frontends.torch.visited_blocks import part_visited

#: Where the description of an attention is kept: at the buffer of its kernel's result.
_LOWERED = "flint_attention"


@dataclass(frozen=True, slots=True)
class Lowered:
    """An attention that was lowered.

    Attributes:
        flops: of its products, if all blocks are visited.
        score: elementary operations and special functions of what it changes about scores
            (backward also of their gradients), likewise.
        dtype: of their operands.
        mask: text of the mask's function, of a batch, a head, a query, a key and what it captures.
        captured: tensors that it captures; None for what is none, or is not used.
        lengths: queries and keys.
    """

    flops: int
    score: tuple[int, int]
    dtype: str
    mask: str
    captured: tuple[adapter.Part | None, ...]
    lengths: tuple[int, int]


@dataclass(frozen=True, slots=True)
class Products:
    """The products of an attention's kernel.

    Attributes:
        attention: what was lowered.
        buffers: names of the kernel's tensors, in the order of its call.
        numbers: of blocks that are partly masked, and of full ones (or None).
        sizes: of a block, queries and keys.
    """

    attention: Lowered
    buffers: tuple[str, ...]
    numbers: tuple[adapter.Part, adapter.Part | None]
    sizes: tuple[int, int]

    def work(self, tensors: Sequence[torch.Tensor]) -> tuple[int, int, int]:
        """Of the blocks that a call with these tensors visits: FLOPs of products, elementary
        operations and special functions on scores.
        """
        lowered, given = self.attention, dict(zip(self.buffers, tensors, strict=True))
        partly, full = (_tensor(item, given) for item in self.numbers)
        captured = [_tensor(item, given) for item in lowered.captured]
        mask = _function(lowered.mask, len(captured))
        if any(item is not None for item in captured):
            mask = functools.partial(_with, _function(lowered.mask), captured)
        part = part_visited(mask, (partly, full), self.sizes, lowered.lengths)
        plain, special = lowered.score
        return int(lowered.flops * part), int(plain * part), int(special * part)


def _tensor(part: adapter.Part | None, given: Mapping[str, torch.Tensor]) -> torch.Tensor | None:
    """A part of a buffer that a kernel is given; None if it is given none."""
    if part is None or part.buffer not in given:
        return None
    whole = given[part.buffer]
    layout = part.size, part.stride, part.offset
    if (tuple(whole.shape), whole.stride(), 0) == layout:
        return whole
    return torch.as_strided(whole, *layout)


def _with(mask: Callable[..., Any], captured: Sequence[Any], *position: Any) -> Any:
    return mask(*position, *captured)


@functools.cache
def _function(text: str, unused: int = 0) -> Callable[..., Any]:
    """The function of a mask's graph; its constants are on the host.

    Args:
        text: of the graph.
        unused: tensors that it captures and does not need.
    """
    names: dict[str, Any] = {
        "torch": torch, "inf": float("inf"), "nan": float("nan"),
        "device": lambda *_, **__: torch.device("cpu"),
    }  # fmt: skip
    exec(text, names)
    forward = names["forward"]  # its first argument is the graph
    return lambda *given: forward(None, *given, *[None] * unused)


def watch() -> None:
    """Describe each attention that Inductor lowers, permanently."""
    adapter.around_attention(_lower)


def _lower(original: Any, is_backward: bool, *args: Any) -> Any:
    """Lower an attention, and describe the template that this has added."""
    known = adapter.templates()
    result = original(*args)
    query, key, value, *_ = args
    scores, mask = args[7:9] if is_backward else args[3:4], args[9 if is_backward else 4][-1]
    (batch, heads, queries, size), keys = map(int, query.get_size()), int(key.get_size()[-2])
    other = int(value.get_size()[-1])
    # Scores and weighted values; backward the scores again, and four gradients.
    pairs = batch * heads * queries * keys
    per_pair = 3 * size + 2 * other if is_backward else size + other
    named = [name for score in scores for name in adapter.operations(score)]
    special = sum(name in TRANSCENDENTAL for name in named)
    plain = len(named) - special
    for template in adapter.templates():
        if template not in known:
            captured = template.subgraph_inps[-len(args[-1]) :] if args[-1] else ()
            used = [bool(node.users) for node in adapter.placeholders(mask)[4:]]
            described = Lowered(
                flops=2 * pairs * per_pair,
                score=(pairs * plain, pairs * special),
                dtype=str(query.get_dtype()).removeprefix("torch."),
                mask=mask.graph_module.code,
                captured=tuple(
                    adapter.part(item) if is_used else None
                    for item, is_used in zip(captured, used, strict=True)
                ),
                lengths=(queries, keys),
            )
            setattr(template, _LOWERED, described)
    return result


def products_of(buffer: Any, kernel: Any, names: Sequence[str]) -> Products | None:
    """The products of a template's kernel.

    Args:
        buffer: of its result.
        kernel: Inductor's own description.
        names: of the buffers that it is called with, in the order of its call.
    """
    lowered: Lowered | None = getattr(buffer, _LOWERED, None)
    if lowered is None:
        return None
    partly, full = (
        adapter.part(kernel.named_input_nodes[name]) for name in ("KV_NUM_BLKS", "FULL_KV_NUM_BLKS")
    )
    if partly is None:
        return None
    has_full = kernel.meta["HAS_FULL_BLOCKS"]
    sizes = int(kernel.meta["SPARSE_Q_BLOCK_SIZE"]), int(kernel.meta["SPARSE_KV_BLOCK_SIZE"])
    return Products(lowered, tuple(names), (partly, full if has_full else None), sizes)
