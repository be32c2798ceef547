"""Tensor parallelism with sequence parallelism inside of FSDP2, on a mesh of the program's own."""

import os

import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)
from transformer import Transformer

world = int(os.environ["WORLD_SIZE"])
tp_size = 2
device_type = "cuda" if torch.cuda.is_available() else "cpu"
mesh = init_device_mesh(device_type, (world // tp_size, tp_size), mesh_dim_names=("dp", "tp"))
dp_rank = mesh["dp"].get_local_rank()
model = Transformer().to(device_type)
model = parallelize_module(model, mesh["tp"], {
    "tok": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1)),
    "pos": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(0)),
    "norm": SequenceParallel(),
    "output": ColwiseParallel(input_layouts=Shard(1), output_layouts=Replicate()),
})  # fmt: skip
for layer in model.layers:
    layer.attention.heads //= tp_size
    parallelize_module(layer, mesh["tp"], {
        "attention_norm": SequenceParallel(),
        "attention": PrepareModuleInput(input_layouts=(Shard(1),), desired_input_layouts=(Replicate(),)),
        "attention.wq": ColwiseParallel(),
        "attention.wk": ColwiseParallel(),
        "attention.wv": ColwiseParallel(),
        "attention.wo": RowwiseParallel(output_layouts=Shard(1)),
        "norm": SequenceParallel(),
        "w1": ColwiseParallel(input_layouts=Shard(1)),
        "w2": RowwiseParallel(output_layouts=Shard(1)),
    })  # fmt: skip
    layer.attention.heads *= tp_size
model = fully_shard(model, mesh=mesh["dp"])
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=True)
for step in range(6):
    torch.manual_seed(step + dp_rank)
    tokens = torch.randint(96, (2, 16), device=device_type)
    output = model(tokens)
    output.sum().backward()
    optimizer.step()
    optimizer.zero_grad()
