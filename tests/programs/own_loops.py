"""Loops without an optimizer: training by hand, inference by functions, a model left with gradients.

python own_loops.py train|functions|model        # as a rank of torchrun
"""

import os
import sys

import torch
import torch.distributed as dist

on_gpu = torch.cuda.is_available()
device = f"cuda:{os.environ['LOCAL_RANK']}" if on_gpu else "cpu"
dist.init_process_group("nccl" if on_gpu else "gloo")
world = dist.get_world_size()
layers = [torch.nn.Linear(16, 16) for _ in range(4)]
model = torch.nn.Sequential(torch.nn.Embedding(100, 16), *layers, torch.nn.Linear(16, 100))
model.to(device)


def batch():
    return torch.randint(0, 100, (6, 8)).to(device)


def train(rounds):
    """Gradients of three parts of a batch are added up; a loss is printed every second time."""
    for at in range(rounds):
        for part in batch().chunk(3):
            loss = model(part).logsumexp(-1).mean()
            loss.backward()
        with torch.no_grad():
            for weight in model.parameters():
                dist.all_reduce(weight.grad)
                weight -= 0.1 / world * weight.grad
                weight.grad = None
        if at % 2 == 0:
            print(at, loss.item())


def functions(rounds):
    """Each rank has a part of every matrix; there is no module, and one warm-up of half the layers."""
    embedding = torch.randn(100, 32, device=device)
    up = [torch.randn(32, 64 // world, device=device) for _ in range(4)]
    down = [torch.randn(64 // world, 32, device=device) for _ in range(4)]

    def forward(tokens, count):
        x = embedding[tokens]
        for first, second in zip(up[:count], down[:count], strict=True):
            part = torch.relu(x @ first) @ second
            dist.all_reduce(part)
            x = x + part
        return (x @ embedding.T).argmax(-1)

    forward(torch.zeros(1, 1, dtype=torch.long, device=device), 2)
    for _ in range(rounds):
        tokens = batch()
        print(forward(tokens, 4).shape)


def whole(rounds):
    """A model that is called with gradients, two times for each batch."""
    for _ in range(rounds):
        tokens = batch()
        total = model(tokens) + model(tokens.flip(0))
        dist.all_reduce(total.detach())


{"train": train, "functions": functions, "model": whole}[sys.argv[1]](5)
dist.destroy_process_group()
