"""Published kernel counts of Llama 3 8B's training step on H200 GPUs, against captures.

The publication tells how many kernels of each kind Kineto saw under three parallelisms, not how the
modules were split; ``EXPLANATION`` says what the numbers tell of that.

    counts(plain("TP8", LLAMA3_8B).capture())           # (675, 64, 224, 0, 0)
"""

from __future__ import annotations

import functools
from collections import Counter
from dataclasses import replace

import torch
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

import flint
from flint.models.torch import llama3
from flint.models.torch.batches import batch_of
from flint.observed.classes import OpClass
from flint.validation.expected.ops import expected_of

COUNTED = (
    OpClass.GEMM, OpClass.ATTENTION, OpClass.ALL_REDUCE, OpClass.ALL_GATHER, OpClass.REDUCE_SCATTER
)  # fmt: skip

#: Name -> (mesh, axes, published numbers of ``COUNTED``).
PARALLELISMS = {
    "TP8": ((8,), ("tp",), (675, 64, 224, 1, 1)),
    "TP8 x FSDP2": ((2, 8), ("dp", "tp"), (675, 64, 225, 292, 292)),
    "TP2 x FSDP2 x DP2": ((2, 2, 2), ("dp_replicate", "dp", "tp"), (675, 64, 516, 292, 292)),
}

#: Where the numbers come from, as lines of Markdown.
EXPLANATION = (
    "The model has 32 layers of 9 parameters (7 of them in products) and 3 at the ends, of which "
    "the head is a product.",
    "",
    "- GEMM 675 = 3 x (7 x 32 + 1): each product forward, for its input and for its weight.",
    "- attention 64 = 2 x 32: forward and backward.",
    "- all-reduce 224 = 7 x 32: tensor parallelism without sequence parallelism, with every "
    "linear layer wrapped separately. Forward, one after each product that sums over ranks (2); "
    "backward, one for the input of each other product (q, k, v, gate, up: 5).",
    "- all-gather and reduce-scatter 292 = 9 x 32 + 3, and 1: every parameter is sharded "
    "separately, gathered once, and kept from the forward pass for the backward pass.",
    "- all-reduce 516 = 225 + 9 x 32 + 3: each gradient over the two replicas.",
    "",
    "Captured with this split, all these counts agree. The captures lack one all-gather and one "
    "reduce-scatter of tensor parallelism, and one all-reduce if there is data parallelism. "
    "These do not grow with the layers. The publication does not say how the embedding, the "
    "head and the loss were split; in these captures they are not.",
    "",
    "`models/torch/llama3.py` differs by choice. Per layer, sequence parallelism has 4 "
    "all-gathers and 4 reduce-scatters instead of the 7 all-reduces, and all-reduces of 2 "
    "norms' gradients (once each with FSDP; without, at each of 4 uses of a gradient that is "
    "still a partial sum). FSDP2 gathers a layer's 9 parameters at once, forward and backward, "
    "and scatters them once; replicas add an all-reduce. The ends are split too, and there is "
    "an optimizer with a norm of all gradients.",
    "",
)

_PLAN = {
    "attention.wq": ColwiseParallel(),
    "attention.wk": ColwiseParallel(),
    "attention.wv": ColwiseParallel(),
    "attention.wo": RowwiseParallel(),
    "mlp.gate": ColwiseParallel(),
    "mlp.up": ColwiseParallel(),
    "mlp.down": RowwiseParallel(),
}


def build(config, mesh):
    """A Llama whose layers are split plainly, and each parameter by itself over "dp"."""
    names = mesh.mesh_dim_names
    with torch.device("meta"):
        model = llama3.Llama(config)
    for block in model.layers.values():
        parallelize_module(block, mesh["tp"], _PLAN, src_data_rank=None)
    data = tuple(name for name in names if name != "tp")
    if data:
        for module in model.modules():
            if isinstance(module, nn.Linear | nn.RMSNorm | nn.Embedding):
                fully_shard(module, mesh=mesh[data], reshard_after_forward=False)
    model.to_empty(device=mesh.device_type)
    with torch.no_grad():
        model.initialise()
    return model, batch_of(config.vocabulary, (1, config.sequence), mesh.device_type)


def step(model, batch):
    """Forward and backward pass: the counts have no optimizer in them."""
    tokens, targets = batch
    llama3.loss_of(model(tokens), targets).backward()
    for parameter in model.parameters():
        parameter.grad = None


def plain(name, config):
    """The step of a parallelism with the split that the counts tell."""
    shape, axes, _ = PARALLELISMS[name]
    setup = functools.partial(build, config)
    return flint.capture(step, mesh=shape, axes=axes, setup=setup, framework="torch")


def sequence_parallel(name, config):
    """The step as ``flint.models.torch.llama3`` has it."""
    shape, axes, _ = PARALLELISMS[name]
    return llama3.training(config, mesh=shape, axes=axes)


def counts(workload):
    """How many ops of each of ``COUNTED`` rank 0 runs."""
    expected = expected_of(workload, 0)
    found = Counter(expected.facts[number].kind for number in expected.op.tolist())
    return tuple(found[kind] for kind in COUNTED)


def tiny(layers):
    """A configuration of that many layers: the number of kernels does not depend on sizes."""
    heads = replace(llama3.TINY.heads, queries=8, keys=8)
    return replace(llama3.TINY, layers=layers, heads=heads)
