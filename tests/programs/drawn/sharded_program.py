"""A training on tensors whose placements are drawn from a number: python sharded_program.py 7.

Every weight, the input and some values between have placements of their own on a mesh of one or two
dims, so that PyTorch has to redistribute nearly everything.
"""

import os

import torch
import torch.distributed as dist
from drawing import pick
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard, _redistribute, distribute_tensor
from torch.nn import functional

on_gpu = torch.cuda.is_available()
if on_gpu:
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
else:
    torch.cpu.device_count = lambda: 8  # PyTorch's costs of redistributions: one host
    _redistribute._are_we_tracing = lambda: True  # plans that do not depend on earlier ones
dist.init_process_group("nccl" if on_gpu else "gloo")
world = dist.get_world_size()
shape = pick([(4,), (2, 2)]) if world == 4 else (world,)
mesh = init_device_mesh("cuda" if on_gpu else "cpu", shape)
WIDTH, WORDS, LENGTH, ROWS = pick([16, 24]), pick([32, 48]), 8, 8


def placements(dims):
    return [pick([*map(Shard, range(dims)), Replicate()]) for _ in shape]


def weight(*sizes):
    made = torch.randn(sizes) * 0.05
    return nn.Parameter(distribute_tensor(made, mesh, placements(len(sizes))))


def attend(x, read, out):
    heads = functional.linear(x, read).chunk(3, -1)
    q, k, v = (item.reshape(ROWS, LENGTH, 2, WIDTH // 2).transpose(1, 2) for item in heads)
    found = (q @ k.transpose(-1, -2)).softmax(-1) @ v
    return x + functional.linear(found.transpose(1, 2).reshape(ROWS, LENGTH, WIDTH), out)


#: What a layer does, and the sizes of its weights in widths.
LAYERS = {
    "product": (lambda x, w: functional.linear(x, w).relu(), [(1, 1)]),
    "feedforward": (
        lambda x, up, bias, down: (
            x + functional.linear(functional.gelu(functional.linear(x, up, bias)), down)
        ),
        [(4, 1), (4,), (1, 4)],
    ),
    "gated": (
        lambda x, gate, up, down: (
            x
            + functional.linear(
                functional.silu(functional.linear(x, gate)) * functional.linear(x, up), down
            )
        ),
        [(2, 1), (2, 1), (1, 2)],
    ),
    "norm": (lambda x, w, b: functional.layer_norm(x, (WIDTH,), w, b), [(1,), (1,)]),
    "root": (lambda x, w: x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * w, [(1,)]),
    "attention": (attend, [(3, 1), (1, 1)]),
    "sum": (lambda x: x + x.sum(0, keepdim=True), []),
    "mean": (lambda x: x - x.mean(1, keepdim=True), []),
    "joined": (lambda x: torch.cat([x, x], -1)[..., :WIDTH], []),
    "cumulated": (lambda x: x.cumsum(1), []),
}


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.names = [pick(list(LAYERS)) for _ in range(pick([2, 3, 4, 5]))]
        self.moved = [placements(3) if pick([True, False, False]) else None for _ in self.names]
        self.weights = nn.ModuleList(
            nn.ParameterList(weight(*(WIDTH * size for size in sizes)) for sizes in LAYERS[name][1])
            for name in self.names
        )
        self.words, self.head = weight(WORDS, WIDTH), weight(WORDS, WIDTH)

    def forward(self, words):
        x = functional.embedding(words, self.words)
        for name, moved, weights in zip(self.names, self.moved, self.weights, strict=True):
            x = LAYERS[name][0](x, *weights)
            x = x if moved is None else x.redistribute(mesh, moved)
        return functional.linear(x, self.head)


def main():
    torch.manual_seed(0)
    model = Model()
    optimizer = pick([torch.optim.SGD, torch.optim.AdamW])(
        model.parameters(), lr=0.1, foreach=False
    )
    placed, clip, whole = placements(2), pick([True, False]), pick([True, False])
    for _ in range(5):
        words = torch.randint(WORDS, (ROWS, LENGTH))
        found = model(distribute_tensor(words, mesh, placed))
        loss = (found.full_tensor() if whole else found).square().mean()
        loss.backward()
        if clip:
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        print(float(loss.full_tensor() if isinstance(loss, DTensor) else loss))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
