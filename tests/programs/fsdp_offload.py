"""FSDP2 that keeps parameters, gradients and the optimizer on the CPU: the norm is reduced there."""

import os

import torch
import torch.distributed as dist
from torch.distributed.fsdp import CPUOffloadPolicy, fully_shard

on_gpu = torch.cuda.is_available()
device = f"cuda:{os.environ['LOCAL_RANK']}" if on_gpu else "cpu"
dist.init_process_group("cpu:gloo,cuda:nccl" if on_gpu else "gloo")
torch.manual_seed(0)
model = torch.nn.Sequential(*(torch.nn.Linear(8, 8) for _ in range(2)))
for part in (*model, model):
    fully_shard(part, offload_policy=CPUOffloadPolicy(pin_memory=on_gpu))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for _ in range(5):
    model(torch.randn(4, 8, device=device)).sum().backward()
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)
    print(norm.full_tensor().item())
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
