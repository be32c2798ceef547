"""Training steps on two ranks with ops that the CPU runs in another form, by name in ``STEPS``."""

from __future__ import annotations

import functools

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    create_selective_checkpoint_contexts,
)

from tests.validation.plain_torch import Experts, _replicated, _step


class Spoken(nn.Module):
    """Two recurrent layers in both directions, and a cell that looks at their states each time."""

    def __init__(self, words=50, width=24, hidden=32):
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.heard = nn.GRU(width, hidden, 2, batch_first=True, bidirectional=True)
        self.cell = nn.GRUCell(width, 2 * hidden)
        self.seen = nn.Linear(2 * hidden, 2 * hidden)
        self.head = nn.Linear(4 * hidden, words)

    def forward(self, x):
        states, _ = self.heard(self.words(x))
        state, said = states.mean(1), []
        for word in self.words(x[:, :5]).unbind(1):
            state = self.cell(word, state)
            weights = torch.bmm(states, self.seen(state)[:, :, None]).softmax(1)
            said.append(self.head(torch.cat([state, (weights * states).sum(1)], -1)))
        return torch.stack(said, 1)


class Neighbours(nn.Module):
    """Edges' scores with a maximum over all of them, and sums over a node's edges."""

    def __init__(self, width=16):
        super().__init__()
        self.nodes, self.head = nn.Linear(width, width), nn.Linear(width, 4)
        self.score = nn.Parameter(torch.ones(width))

    def forward(self, x):
        nodes = self.nodes(x)
        start = torch.arange(len(x), device=x.device)
        end = start.flip(0)
        scores = ((nodes[start] + nodes[end]) * self.score).sum(-1)
        weights = (scores - scores.max()).exp()
        return self.head(torch.zeros_like(nodes).index_add(0, end, nodes[start] * weights[:, None]))


def keeping(_, op, *args, **kwargs):
    """Exchanges are kept for the backward pass, all else is computed again."""
    is_exchange = op == torch.ops._c10d_functional.all_to_all_single.default
    return CheckpointPolicy.MUST_SAVE if is_exchange else CheckpointPolicy.PREFER_RECOMPUTE


class Keeping(Experts):
    """Experts in a selective checkpoint."""

    def forward(self, x):
        contexts = functools.partial(create_selective_checkpoint_contexts, keeping)
        return checkpoint(super().forward, x, use_reentrant=False, context_fn=contexts)


class Marked(Experts):
    """Experts whose tokens are marked by a one-hot of the choices."""

    def forward(self, x):
        return super().forward(x * F.one_hot(self.head(x).argmax(-1), x.shape[-1]))


class Dropped(nn.Module):
    """PyTorch's own layers, with dropout within attention, recomputed; few rows in some weights."""

    def __init__(self, width=32):
        super().__init__()
        self.first = nn.Parameter(torch.zeros(1, 1, width))
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(width, 4, 2 * width, batch_first=True) for _ in range(2)
        )

    def forward(self, x):
        x = x + self.first
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=False)
        return x


class Adapted(nn.Module):
    """Frozen weights with a trained one of low rank, recomputed: the last product saves a frozen
    weight, of which a CPU calls nothing, and is not needed."""

    def __init__(self, width=16):
        super().__init__()
        self.frozen = nn.ParameterList(nn.Parameter(torch.ones(width, width)) for _ in range(2))
        self.frozen.requires_grad_(False)
        self.down, self.up = nn.Linear(width, 2, bias=False), nn.Linear(2, width, bias=False)

    def layer(self, x):
        first, last = self.frozen
        return x + (x @ first + self.up(self.down(x))).relu() @ last

    def forward(self, x):
        return checkpoint(self.layer, x, use_reentrant=False)


class Surrogate(nn.Module):
    """The smaller of two gains, as policies are clipped, and what is largest in each row."""

    def __init__(self, width=16):
        super().__init__()
        self.ratio = nn.Linear(width, width)

    def forward(self, x):
        ratio = self.ratio(x)
        gain = torch.min(ratio * x, ratio.clamp(0.8, 1.2) * x)
        return torch.max(gain, torch.sin(ratio)) + ratio.max(1, keepdim=True).values


def _dropped(mesh):
    model = Dropped()
    for part in (*model.layers, model):
        fully_shard(part, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, foreach=False)
    return model, optimizer, torch.ones(2, 17, 32)


def _experts(make, mesh):
    model = make(mesh)
    return model, torch.optim.SGD(model.parameters(), lr=0.1, foreach=True), torch.ones(8, 16)


def per_sample(model, optimizer, x):
    """The gradient of each sample, clipped alone, as private training has it."""
    weights = {name: weight.detach() for name, weight in model.named_parameters()}

    def loss(weights, one):
        return torch.func.functional_call(model, weights, (one[None],)).square().sum()

    grads = torch.func.vmap(torch.func.grad(loss), (None, 0))(weights, x)
    norms = torch.stack([grad.flatten(1).norm(dim=1) for grad in grads.values()]).norm(dim=0)
    share = (1 / (norms + 1e-6)).clamp(max=1)
    for name, weight in model.named_parameters():
        weight.grad = torch.einsum("b,b...->...", share, grads[name])
        dist.all_reduce(weight.grad)
    optimizer.step()
    optimizer.zero_grad()


def _perceptron(_):
    model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 3))
    return model, torch.optim.SGD(model.parameters(), lr=0.1, foreach=True), torch.ones(5, 8)


_adamax = functools.partial(torch.optim.Adamax, lr=0.1, foreach=True)
_adagrad = functools.partial(torch.optim.Adagrad, lr=0.1, foreach=True)

STEPS = {
    "ddp_spoken": _replicated(Spoken, _adamax, lambda: torch.ones(4, 10, dtype=torch.long)),
    "ddp_neighbours": _replicated(Neighbours, _adagrad, lambda: torch.ones(12, 16)),
    "ddp_surrogate": _replicated(Surrogate, _adagrad, lambda: torch.ones(6, 16)),
    "ddp_adapted": _replicated(Adapted, _adagrad, lambda: torch.ones(6, 16)),
    "moe_marked": _step(functools.partial(_experts, Marked)),
    "moe_keeping": _step(functools.partial(_experts, Keeping)),
    "fsdp_dropped": _step(_dropped),
    "by_hand_per_sample": _step(_perceptron, per_sample),
}
