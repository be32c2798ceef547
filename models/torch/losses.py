"""The head of a language model: scores of the next token, or the loss without all of them at once.

What is kept of T tokens' scores over a vocabulary V for the backward pass:

    "whole"     all scores, and their loss in one piece: T V elements, twice (in the loss's dtype)
    "chunked"   the loss of one part of the tokens after the other (torchtune's
                ``CEWithChunkedOutputLoss``): the same is kept, but copies and gradients in the
                loss's dtype are of a part
    "fused"     nothing: the forward pass makes the gradients too, part after part (Hsu et al.,
                "Liger Kernel", 2024, section 3.2): those of the head's input and of its weight
    "in place"  all scores in the loss's dtype and a copy without the last token's, as Hugging
                Face's models make them; one kernel overwrites the copy with its gradients
                (fms-acceleration's "fast cross entropy")
    "compiled"  all scores as the head makes them, and their gradients, as in torchtitan, which
                compiles the loss: what is in between stays in kernels (here, of one part of the
                tokens after the other)

    head = Head(4096, 128256, "fused")
    head(x)                 # scores
    head(x, targets)        # the loss
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

#: Rows (T, D), a weight (V, D), targets (T,), the number of parts, the loss's dtype -> mean loss.
Loss = Callable[[torch.Tensor, torch.Tensor, torch.Tensor, int, torch.dtype], torch.Tensor]


def _chunked(
    x: torch.Tensor, weight: torch.Tensor, targets: torch.Tensor, chunks: int, dtype: torch.dtype
) -> torch.Tensor:
    scores = [F.linear(rows, weight) for rows in x.chunk(chunks)]
    parts = zip(scores, targets.chunk(chunks), strict=True)
    losses = [F.cross_entropy(each.to(dtype), goals, reduction="sum") for each, goals in parts]
    return torch.stack(losses).sum() / len(targets)


def _of_scores(scores: torch.Tensor, goals: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The sum of the losses, and its gradient: the softmax, less 1 at each target."""
    logs = F.log_softmax(scores, -1)
    loss = F.nll_loss(logs, goals, reduction="sum")
    return loss, logs.exp_().scatter_add_(1, goals[:, None], logs.new_full((len(goals), 1), -1))


class _Fused(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: torch.Tensor,
        weight: torch.Tensor,
        targets: torch.Tensor,
        chunks: int,
        dtype: torch.dtype,
    ) -> torch.Tensor:
        of_x, of_weight = torch.empty_like(x), torch.zeros_like(weight)
        total = x.new_zeros((), dtype=dtype)
        parts = (item.chunk(chunks) for item in (x, targets, of_x))
        for rows, goals, made in zip(*parts, strict=True):
            loss, gradient = _of_scores((rows @ weight.t()).to(dtype), goals)
            total += loss
            gradient = gradient.div_(len(x)).to(x.dtype)
            made.copy_(gradient @ weight)
            of_weight.addmm_(gradient.t(), rows)
            del gradient
        ctx.save_for_backward(of_x, of_weight)
        return total / len(x)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        of_x, of_weight = ctx.saved_tensors
        return of_x.mul_(gradient), of_weight.mul_(gradient), None, None, None


class _InPlace(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, scores: torch.Tensor, goals: torch.Tensor) -> torch.Tensor:
        sums = scores.logsumexp(-1)
        ctx.save_for_backward(scores, sums, goals)
        return (sums - scores.gather(1, goals[:, None]).squeeze(1)).mean()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        scores, sums, goals = ctx.saved_tensors
        scores.sub_(sums[:, None]).exp_()
        scores.scatter_add_(1, goals[:, None], scores.new_full((len(goals), 1), -1))
        return scores.mul_(gradient / len(goals)), None


def _in_place(
    x: torch.Tensor, weight: torch.Tensor, targets: torch.Tensor, chunks: int, dtype: torch.dtype
) -> torch.Tensor:
    scores = F.linear(x, weight).to(dtype)
    loss: torch.Tensor = _InPlace.apply(scores[:-1].clone(), targets[:-1])
    return loss


class _Compiled(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, scores: torch.Tensor, goals: torch.Tensor, chunks: int, dtype: torch.dtype
    ) -> torch.Tensor:
        sums = torch.cat([part.to(dtype).logsumexp(-1) for part in scores.chunk(chunks)])
        ctx.save_for_backward(scores, sums, goals)
        ctx.chunks = chunks
        return (sums - scores.gather(1, goals[:, None]).squeeze(1)).mean()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        made, goals = torch.empty_like(ctx.saved_tensors[0]), ctx.saved_tensors[2]
        parts = (item.chunk(ctx.chunks) for item in (*ctx.saved_tensors, made))
        for scores, sums, wanted, place in zip(*parts, strict=True):
            softmax = scores.to(sums.dtype).sub_(sums[:, None]).exp_()
            softmax.scatter_add_(1, wanted[:, None], sums.new_full((len(wanted), 1), -1))
            place.copy_(softmax.mul_(gradient / len(goals)))
            del softmax
        return made, None, None, None


def _compiled(
    x: torch.Tensor, weight: torch.Tensor, targets: torch.Tensor, chunks: int, dtype: torch.dtype
) -> torch.Tensor:
    loss: torch.Tensor = _Compiled.apply(F.linear(x, weight), targets, chunks, dtype)
    return loss


#: Name -> how the loss is made of the head's input; None: of all scores, by ``batches.loss_of``.
LOSSES: dict[str, Loss | None] = {
    "whole": None, "chunked": _chunked, "fused": _Fused.apply, "in place": _in_place,
    "compiled": _compiled,
}  # fmt: skip


class Head(nn.Linear):
    """The last projection.

    Args:
        width: of the residual stream.
        vocabulary: number of tokens.
        loss: a key of ``LOSSES``.
        chunks: parts of the tokens.
        dtype: that scores are cast to for the loss.
        tied: there is no weight of its own: it is given with each input.
    """

    def __init__(
        self, width: int, vocabulary: int, loss: str = "whole", chunks: int = 1,
        dtype: torch.dtype = torch.float32, *, tied: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(width, vocabulary, bias=False)
        self._loss, self._chunks, self._dtype = LOSSES[loss], chunks, dtype
        if tied:
            del self.weight
            self.register_parameter("weight", None)

    def forward(
        self,
        x: torch.Tensor,
        targets: torch.Tensor | None = None,
        tied: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Scores (B, S, V) of (B, S, D); with ``targets`` (B, S), and a ``LOSSES`` that makes it
        of ``x``, the mean loss."""
        weight = self.weight if tied is None else tied
        if targets is None or self._loss is None:
            return F.linear(x, weight)
        rows, goals = x.flatten(0, 1), targets.flatten()
        return self._loss(rows, weight, goals, self._chunks, self._dtype)
