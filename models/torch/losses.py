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
    "by vocabulary"  nothing: scores of all tokens over one part of the vocabulary after the other,
                and the same again for the gradients, an operation a kernel (prime-rl's
                ``FusedOutputLinear``, which also makes the entropy)

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


class _ByVocabulary(torch.autograd.Function):
    """``_ChunkedLogProbEntropyFn`` of prime-rl's ``trainer/models/layers/lm_head.py`` at 8718eb14:
    the same operations, but that a part without targets is not left out of their sums."""

    @staticmethod
    def forward(
        ctx: Any, x: torch.Tensor, weight: torch.Tensor, targets: torch.Tensor, chunks: int,
        dtype: torch.dtype,
    ) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
        most = x.new_full((len(x),), -float("inf"), dtype=dtype)
        total, weighted, chosen = (torch.zeros_like(most) for _ in range(3))
        for start, rows in _parts(weight, chunks):
            scores = (x @ rows.t()).to(dtype).mul_(1.0)
            higher = torch.maximum(most, scores.amax(-1))
            shrunk = (most - higher).exp()
            exponents = (scores - higher[:, None]).exp()
            total = total * shrunk + exponents.sum(-1)
            weighted = weighted * shrunk + (exponents * scores).sum(-1)
            most = higher
            here, goals = _within(targets, start, len(rows))
            chosen = torch.where(here, scores.gather(1, goals[:, None]).squeeze(1), chosen)
        logs = most + total.log()
        ctx.save_for_backward(x, weight, targets, logs)
        ctx.chunks = chunks
        entropy = logs - weighted / total
        ctx.mark_non_differentiable(entropy)
        return chosen - logs, entropy

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor, _: torch.Tensor) -> Any:
        x, weight, targets, logs = ctx.saved_tensors
        of_x, of_weight = torch.zeros_like(x), torch.zeros_like(weight)
        for start, rows in _parts(weight, ctx.chunks):
            scores = (x @ rows.t()).to(logs.dtype).mul_(1.0)
            of_scores = (-gradient)[:, None] * (scores - logs[:, None]).exp()
            here, goals = _within(targets, start, len(rows))
            of_scores.scatter_add_(1, goals[:, None], torch.where(here, gradient, 0)[:, None])
            of_scores.mul_(1.0)
            of_x.add_(of_scores.to(x.dtype) @ rows)
            of_weight[start : start + len(rows)].add_(of_scores.to(weight.dtype).t() @ x)
        return of_x, of_weight, None, None, None


def _parts(weight: torch.Tensor, chunks: int) -> list[tuple[int, torch.Tensor]]:
    """Parts of a vocabulary: their first token, and their rows of the head's weight."""
    size = -(-len(weight) // chunks)
    return [(start, weight[start : start + size]) for start in range(0, len(weight), size)]


def _within(targets: torch.Tensor, start: int, size: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Which targets are in a part, and their places in it (0 for others)."""
    here = (targets >= start) & (targets < start + size)
    return here, torch.where(here, targets - start, 0)


def _by_vocabulary(
    x: torch.Tensor, weight: torch.Tensor, targets: torch.Tensor, chunks: int, dtype: torch.dtype
) -> torch.Tensor:
    chosen, _ = _ByVocabulary.apply(x, weight, targets, chunks, dtype)
    loss: torch.Tensor = -chosen.mean()
    return loss


#: Name -> how the loss is made of the head's input; None: of all scores, by ``batches.loss_of``.
LOSSES: dict[str, Loss | None] = {
    "whole": None, "chunked": _chunked, "fused": _Fused.apply, "in place": _in_place,
    "compiled": _compiled, "by vocabulary": _by_vocabulary,
}  # fmt: skip


class Head(nn.Linear):
    """The last projection.

    Args:
        width: of the residual stream.
        vocabulary: number of tokens.
        loss: a key of ``LOSSES``.
        chunks: parts of the tokens, or of the vocabulary.
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
