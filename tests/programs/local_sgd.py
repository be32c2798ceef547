"""DiLoCo: each rank steps alone, and an outer optimizer steps on averaged differences, as a rank."""

import os

import torch
import torch.distributed as dist
from torch import nn

on_gpu = torch.cuda.is_available()
device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if on_gpu else torch.device("cpu")
dist.init_process_group("nccl" if on_gpu else "gloo")
ROUNDS, INNER = 4, 3

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4)).to(device)
inner = torch.optim.AdamW(model.parameters(), lr=1e-3)
outer = torch.optim.SGD(model.parameters(), lr=0.7, momentum=0.9, nesterov=True)
kept = [weight.detach().clone() for weight in model.parameters()]
for _ in range(ROUNDS):
    for _ in range(INNER):
        inner.zero_grad()
        model(torch.randn(8, 16).to(device)).square().mean().backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        inner.step()
    for weight, before in zip(model.parameters(), kept, strict=True):
        weight.grad = before - weight.detach()
        dist.all_reduce(weight.grad)
        weight.grad /= dist.get_world_size()
        weight.data.copy_(before)
    outer.step()
    for weight, before in zip(model.parameters(), kept, strict=True):
        before.copy_(weight.detach())
dist.destroy_process_group()
