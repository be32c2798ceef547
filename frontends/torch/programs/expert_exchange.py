"""DeepEP's exchanges by PyTorch's collectives, for programs that import it where it is not
installed.

The idea: ``deep_ep`` sends a token once to each rank that has some of its experts, and the token's
experts and weights with it; results come back the same way and are added up.  Here these are
all-to-alls of the same rows: counts first, which the host reads, then rows, experts and weights.
Arguments and results are those of DeepEP 1.2's ``Buffer`` (its kernels of high throughput).

Between nodes DeepEP sends a token once to each node, which passes it on; here it goes to each rank.

    buffer = Buffer(group)
    counts, _, of_experts, goes, event = buffer.get_dispatch_layout(choices, experts)
    rows, choices, weights, local, handle, event = buffer.dispatch(x, topk_idx=choices, ...)
    x, weights, event = buffer.combine(rows, handle)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor, unset_fake_temporarily

from flint.frontends.torch.context import capture
from flint.frontends.torch.recording.known_values import Known
from flint.frontends.torch.user_lines import at_user_line

#: Ranks that DeepEP connects by NVLink.
_NODE = 8


class EventHandle:
    """An event of a stream; here all streams are the program's."""

    def current_stream_wait(self) -> None:
        """Nothing is left to wait for."""


class EventOverlap:
    """The same, with tensors that it keeps."""

    def __init__(self, event: Any = None, extra_tensors: Any = None) -> None:
        self.event = event or EventHandle()

    def current_stream_wait(self) -> None:
        """Nothing is left to wait for."""

    def __enter__(self) -> EventOverlap:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing is left to wait for."""


class Config:
    """Sizes of DeepEP's buffers, which do not exist here."""

    def __init__(self, *_: int) -> None:
        """Take any."""

    def get_nvl_buffer_size_hint(self, hidden_bytes: int, num_ranks: int) -> int:
        """Bytes for ranks of the same node."""
        return hidden_bytes * num_ranks

    def get_rdma_buffer_size_hint(self, hidden_bytes: int, num_ranks: int) -> int:
        """Bytes for other nodes."""
        return hidden_bytes * num_ranks if num_ranks > _NODE else 0


@dataclass(frozen=True, slots=True)
class Handle:
    """A dispatch, for what comes back.

    Attributes:
        tokens: of this rank.
        token: of each row that was sent, shape [rows].
        sent, received: rows to and from each rank.
    """

    tokens: int
    token: Tensor
    sent: list[int]
    received: list[int]


class Buffer:
    """Exchanges of a group's tokens."""

    num_sms = 20

    def __init__(self, group: Any, *_: Any, **__: Any) -> None:
        self.group = group
        self.rank, self.group_size = group.rank(), group.size()

    @staticmethod
    def set_num_sms(new_num_sms: int) -> None:
        """Multiprocessors for the kernels."""
        Buffer.num_sms = new_num_sms

    @staticmethod
    def capture() -> EventOverlap:
        """An event of the current stream."""
        return EventOverlap()

    @staticmethod
    def get_dispatch_config(num_ranks: int) -> Config:
        """For a number of ranks."""
        return Config()

    @staticmethod
    def get_combine_config(num_ranks: int) -> Config:
        """For a number of ranks."""
        return Config()

    def get_dispatch_layout(self, topk_idx: Tensor, num_experts: int, *_: Any, **__: Any) -> Any:
        """Tokens by rank, by node (None within one), by expert, and which token goes to which rank.

        Args:
            topk_idx: each token's experts, [tokens, k].
            num_experts: of all ranks.
        """
        here = num_experts // self.group_size
        goes = _marks(topk_idx // here, self.group_size)
        nodes = None
        if self.group_size > _NODE:
            nodes = _marks(topk_idx // (here * _NODE), -(-self.group_size // _NODE)).sum(0).int()
        chosen = torch.histc(topk_idx.float(), num_experts, min=0, max=num_experts)
        return goes.sum(0).int(), nodes, chosen.int(), goes.bool(), EventOverlap()

    def dispatch(
        self, x: Any, handle: Handle | None = None, num_tokens_per_rank: Tensor | None = None,
        num_tokens_per_rdma_rank: Tensor | None = None, is_token_in_rank: Tensor | None = None,
        num_tokens_per_expert: Tensor | None = None, topk_idx: Tensor | None = None,
        topk_weights: Tensor | None = None, expert_alignment: int = 1, *_: Any, **__: Any,
    ) -> Any:  # fmt: skip
        """Send tokens to the ranks of their experts.

        Args:
            x: [tokens, width], or such values in FP8 and their scales.
            handle: of an earlier dispatch that is repeated with other rows.
            num_tokens_per_rank, is_token_in_rank, num_tokens_per_expert: as
                ``get_dispatch_layout`` gives them.
            topk_idx, topk_weights: experts and weights of each token, [tokens, k].
            expert_alignment: what the rows of each expert are rounded up to in the list.

        Returns:
            The rows that arrive, their experts (of this rank, -1: of others) and weights, a list of
            the rows of each expert, a handle and an event.
        """
        if handle is not None:
            return self._rows(x, handle), None, None, None, None, EventOverlap()
        assert num_tokens_per_rank is not None and is_token_in_rank is not None
        assert num_tokens_per_expert is not None
        if self.group_size > _NODE:
            capture().notice(
                f"deep_ep{at_user_line()} sends tokens to other nodes: counted once for each rank, "
                "not once for each node"
            )
        by_expert = num_tokens_per_expert.view(self.group_size, -1)
        counts = torch.cat([num_tokens_per_rank[:, None], by_expert], 1).long()
        arriving = torch.empty_like(counts)
        dist.all_to_all_single(arriving, counts, group=self.group)
        each = arriving[:, 1:].sum(0).tolist()
        sent, received = counts[:, 0].tolist(), arriving[:, 0].tolist()
        stays = 1 - is_token_in_rank.t().flatten().long()
        token = torch.argsort(stays, stable=True)[: sum(sent)] % len(is_token_in_rank)
        handle = Handle(len(is_token_in_rank), token, sent, received)
        choices = weights = None
        if topk_idx is not None:
            choices = self._choices(self._rows(topk_idx, handle), each)
        if topk_weights is not None:
            weights = self._rows(topk_weights, handle)
            weights = weights if choices is None else weights * (choices >= 0)
        aligned = [-(-count // expert_alignment) * expert_alignment for count in each]
        return self._rows(x, handle), choices, weights, aligned, handle, EventOverlap()

    def combine(
        self, x: Tensor, handle: Handle, topk_weights: Tensor | None = None, *_: Any, **__: Any
    ) -> Any:
        """Send rows back, where those of the same token are added up.

        Args:
            x: as ``dispatch`` brought them, [rows, width].
            handle: of that dispatch.
            topk_weights: of the rows, which go back too.

        Returns:
            [tokens, width], the weights [tokens, k], and an event.
        """
        weights = None if topk_weights is None else self._back(topk_weights, handle)
        return self._back(x, handle), weights, EventOverlap()

    def _rows(self, x: Any, handle: Handle) -> Any:
        if isinstance(x, tuple):
            return tuple(self._rows(item, handle) for item in x)
        return self._exchanged(x[handle.token], handle.received, handle.sent)

    def _back(self, x: Tensor, handle: Handle) -> Tensor:
        rows = self._exchanged(x, handle.sent, handle.received)
        return rows.new_zeros(handle.tokens, *rows.shape[1:]).index_add_(0, handle.token, rows)

    def _exchanged(self, rows: Tensor, received: list[int], sent: list[int]) -> Tensor:
        got = rows.new_empty(sum(received), *rows.shape[1:])
        dist.all_to_all_single(got, rows.contiguous(), received, sent, group=self.group)
        return got

    def _choices(self, chosen: Tensor, each: list[int]) -> Tensor:
        """The experts of rows by their numbers on this rank, and -1."""
        local = chosen - self.rank * len(each)
        local = torch.where((local >= 0) & (local < len(each)), local, -1)
        if isinstance(local, FakeTensor):
            with unset_fake_temporarily():
                places = _spread(local.shape, each)
            origin = f"{capture().routing.name} routing: the experts of rows that arrive"
            capture().known_values[local] = Known(places, origin + at_user_line(), chosen=True)
        return local


def _marks(places: Tensor, count: int) -> Tensor:
    """1 where a row has a place, shape [rows, count]."""
    zeros = torch.zeros(len(places), count, dtype=torch.int64, device=places.device)
    return zeros.scatter(1, places.clamp(min=0), 1)


def _spread(shape: torch.Size, each: list[int]) -> Tensor:
    """Experts of rows: as many of each as stated, none twice in a row, -1 in other places."""
    rows, most = shape
    chosen = torch.repeat_interleave(torch.arange(len(each)), torch.tensor(each))
    rest = torch.full((rows * most - len(chosen),), -1)
    return torch.cat([chosen, rest]).view(most, rows).T.contiguous()
