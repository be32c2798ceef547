"""Steps of other kinds than language models, and uses of parallelism that those do not make."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

WIDTH = 16


def mlp(width=WIDTH):
    return nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))


def started(model, mesh):
    """Memory and values for what was made on the meta device."""
    model.to_empty(device=mesh.device_type)
    with torch.no_grad():
        for item in (*model.parameters(), *model.buffers()):
            item.fill_(0.01)
    return model


def rows_on(mesh, rows=4, width=WIDTH):
    return torch.ones(rows, width, device=mesh.device_type)


def sgd(parameters):
    return torch.optim.SGD(parameters, lr=0.1, foreach=True)


def square_step(model, optimizer, x):
    loss = model(x).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss


# FSDP2: gradients that add up before they are reduced; weights that do not learn.


def replicas_and_shards(mesh):
    from torch.distributed.fsdp import fully_shard

    with torch.device("meta"):
        model = nn.Sequential(mlp(), mlp())
    for layer in model:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return started(model, mesh), sgd(model.parameters()), rows_on(mesh)


def accumulating_step(model, optimizer, x):
    for last in (False, False, True):
        model.set_requires_gradient_sync(last)
        model.set_is_last_backward(last)
        (model(x).square().mean() / 3).backward()
    optimizer.step()
    optimizer.zero_grad()


def kept_by_two(mesh):
    """After the forward pass parameters stay in halves, on two ranks beside each other."""
    from torch.distributed.fsdp import fully_shard

    with torch.device("meta"):
        model = nn.Sequential(mlp(), mlp())
    for layer in model:
        fully_shard(layer, mesh=mesh, reshard_after_forward=2)
    fully_shard(model, mesh=mesh)
    return started(model, mesh), sgd(model.parameters()), rows_on(mesh)


class LowRank(nn.Module):
    """A frozen weight and a learned product of two small ones."""

    def __init__(self, width=WIDTH, rank=2):
        super().__init__()
        self.base = nn.Linear(width, width, bias=False).requires_grad_(False)
        self.down, self.up = nn.Linear(width, rank, bias=False), nn.Linear(rank, width, bias=False)

    def forward(self, x):
        return self.base(x) + 2.0 * self.up(self.down(x))


def low_rank(mesh):
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    policy = MixedPrecisionPolicy(torch.bfloat16, torch.float32)
    with torch.device("meta"):
        model = nn.Sequential(*(nn.Sequential(LowRank(), nn.SiLU(), LowRank()) for _ in range(2)))
    for layer in model:
        fully_shard(layer, mesh=mesh, mp_policy=policy)
    fully_shard(model, mesh=mesh, mp_policy=policy)
    started(model, mesh)
    learned = [item for item in model.parameters() if item.requires_grad]
    return model, sgd(learned), rows_on(mesh)


# Others over several ranks.


def sharded_optimizer(mesh):
    from torch.distributed.optim import ZeroRedundancyOptimizer

    model = nn.parallel.DistributedDataParallel(nn.Sequential(mlp(), mlp()).to(mesh.device_type))
    optimizer = ZeroRedundancyOptimizer(
        model.parameters(), torch.optim.SGD, lr=0.1, momentum=0.9, foreach=True
    )
    return model, optimizer, rows_on(mesh)


def parallel_loss(mesh):
    from torch.distributed.tensor import Shard
    from torch.distributed.tensor.parallel import ColwiseParallel, parallelize_module

    with torch.device("meta"):
        model = nn.Sequential(nn.Linear(WIDTH, 32))
    plan = {"0": ColwiseParallel(output_layouts=Shard(-1), use_local_output=False)}
    parallelize_module(model, mesh, plan, src_data_rank=None)
    started(model, mesh)
    labels = torch.zeros(4, dtype=torch.int64, device=mesh.device_type)
    return model, sgd(model.parameters()), rows_on(mesh), labels


def parallel_loss_step(model, optimizer, x, labels):
    from torch.distributed.tensor.parallel import loss_parallel

    with loss_parallel():
        F.cross_entropy(model(x), labels).backward()
    optimizer.step()
    optimizer.zero_grad()


# One rank: graphs, scans, two optimizers, gradients of single samples.


class Graph(nn.Module):
    """Messages along edges, added up, and attention among a node's neighbours."""

    def __init__(self):
        super().__init__()
        self.one, self.two = nn.Linear(8, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.weight, self.norm = nn.Linear(2 * WIDTH, 1), nn.BatchNorm1d(WIDTH)

    def forward(self, x, edges):
        source, target = edges
        h = self.one(x)
        ones = torch.ones_like(target, dtype=x.dtype)
        degree = torch.zeros(len(x), device=x.device).index_add_(0, target, ones).clamp_(min=1)
        where = target[:, None].expand(-1, h.shape[1])
        h = torch.zeros_like(h).scatter_add(0, where, h[source]) / degree[:, None]
        h = self.norm(F.leaky_relu(self.two(h), 0.2))
        score = self.weight(torch.cat([h[source], h[target]], -1)).squeeze(-1)
        low = torch.full((len(x),), -1e9, device=x.device)
        share = (score - low.scatter_reduce(0, target, score, "amax")[target]).exp()
        total = torch.zeros(len(x), device=x.device).scatter_add(0, target, share)
        return torch.zeros_like(h).index_add(
            0, target, (share / total[target])[:, None] * h[source]
        )


def graph(mesh):
    model = Graph().to(mesh.device_type)
    edges = torch.arange(30, device=mesh.device_type).view(2, 15) % 10
    return model, sgd(model.parameters()), rows_on(mesh, 10, 8), edges


def graph_step(model, optimizer, x, edges):
    model(x, edges).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()


class Scan(nn.Module):
    """A state space with a gate, as sums along the sequence."""

    def __init__(self, states=4):
        super().__init__()
        self.take = nn.Linear(WIDTH, 2 * WIDTH, bias=False)
        self.near = nn.Conv1d(WIDTH, WIDTH, 4, groups=WIDTH, padding=3)
        self.project = nn.Linear(WIDTH, 2 * states + 1, bias=False)
        self.step, self.give = nn.Linear(1, WIDTH), nn.Linear(WIDTH, WIDTH, bias=False)
        self.decay = nn.Parameter(torch.zeros(WIDTH, states))

    def forward(self, u):
        x, gate = self.take(u).chunk(2, -1)
        x = F.silu(self.near(x.transpose(1, 2))[..., : u.shape[1]].transpose(1, 2))
        step, b, c = self.project(x).split([1, *[self.decay.shape[1]] * 2], -1)
        step = F.softplus(self.step(step))
        fade = torch.einsum("bld,dn->bldn", step, -self.decay.exp()).cumsum(1)
        new = torch.einsum("bld,bln,bld->bldn", step, b, x)
        state = (new * (-fade).exp()).cumsum(1) * fade.exp()
        return self.give(torch.einsum("bldn,bln->bld", state, c) * F.silu(gate))


def scan(mesh):
    model = nn.Sequential(Scan(), nn.LayerNorm(WIDTH), Scan()).to(mesh.device_type)
    x = torch.ones(2, 8, WIDTH, device=mesh.device_type)
    return model, torch.optim.AdamW(model.parameters(), foreach=True), x


def adversaries(mesh):
    """A generator and a critic whose weight is normed by its largest singular value."""
    from torch.nn.utils.parametrizations import spectral_norm

    device = mesh.device_type
    up = [nn.ConvTranspose2d(8, 8, 4, 1, 0, bias=False), nn.BatchNorm2d(8), nn.ReLU(True)]
    maker = nn.Sequential(*up, nn.ConvTranspose2d(8, 3, 4, 2, 1), nn.Tanh()).to(device)
    first = spectral_norm(nn.Conv2d(3, 8, 4, 2, 1))
    critic = nn.Sequential(first, nn.LeakyReLU(0.2, True), nn.Conv2d(8, 1, 4), nn.Flatten())
    critic.to(device)
    both = (torch.optim.RMSprop(item.parameters(), foreach=True) for item in (maker, critic))
    return maker, critic, *both, torch.ones(4, 3, 8, 8, device=device)


def adversaries_step(maker, critic, for_maker, for_critic, x):
    made = maker(torch.ones(4, 8, 1, 1, device=x.device))
    for_critic.zero_grad()
    loss = F.softplus(-critic(x)).mean() + F.softplus(critic(made.detach())).mean()
    at = x.detach().clone().requires_grad_(True)
    (slope,) = torch.autograd.grad(critic(at).sum(), at, create_graph=True)
    (loss + 10 * (slope.flatten(1).norm(dim=1) - 1).square().mean()).backward()
    for_critic.step()
    for_maker.zero_grad()
    F.softplus(-critic(made)).mean().backward()
    for_maker.step()


def samples(mesh):
    device = mesh.device_type
    model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 3)).to(device)
    labels = torch.zeros(6, dtype=torch.int64, device=device)
    return model, sgd(model.parameters()), rows_on(mesh, 6, 8), labels


def samples_step(model, optimizer, x, labels):
    """Every sample's gradient is clipped by itself."""
    from torch.func import functional_call, grad, vmap

    def loss(weights, x, label):
        return F.cross_entropy(functional_call(model, weights, (x[None],)), label[None])

    weights = {name: item.detach() for name, item in model.named_parameters()}
    each = vmap(grad(loss), in_dims=(None, 0, 0))(weights, x, labels)
    norms = torch.stack([item.flatten(1).norm(dim=1) for item in each.values()], 1).norm(dim=1)
    for name, parameter in model.named_parameters():
        share = (1.0 / norms).clamp(max=1)
        parameter.grad = torch.einsum("b,b...->...", share, each[name])
    optimizer.step()
    optimizer.zero_grad()


def tangents(mesh):
    return mlp().to(mesh.device_type), rows_on(mesh)


def tangents_step(model, x):
    """Derivatives along a direction, which forward mode gives, and second ones over reverse."""
    directed = torch.func.jvp(model, (x,), (torch.ones_like(x),))[1]
    return directed.sum() + torch.func.hessian(lambda row: model(row).square().sum())(x[0]).sum()
