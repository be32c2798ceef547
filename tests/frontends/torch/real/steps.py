"""Small models and steps over them, parallel in every way, on whatever device the mesh is of.

Longer than 300 lines because it is one list of models and steps, which more than one test takes
from here.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

from tests.frontends.torch.real.models import DIM, LENGTH, Norm, ResNet, Transformer


def layer_norm():
    return nn.LayerNorm(DIM)


def rms_norm():
    return nn.RMSNorm(DIM, eps=1e-5)


def tokens_on(mesh, size=2):
    tokens = torch.zeros(size, LENGTH, dtype=torch.int64, device=mesh.device_type)
    return tokens, tokens.clone()


def adamw(model):
    return torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=True)


def loss_of(output, labels):
    return F.cross_entropy(output.flatten(0, 1).float(), labels.flatten())


def step(model, optimizer, tokens, labels):
    loss = loss_of(model(tokens), labels)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss


def clipped_step(model, optimizer, tokens, labels):
    loss = loss_of(model(tokens), labels)
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=True)
    optimizer.step()
    optimizer.zero_grad()
    return loss


# One rank.


def plain(norm=Norm):
    def setup(mesh):
        model = Transformer(norm=norm).to(mesh.device_type)
        return model, adamw(model), *tokens_on(mesh)

    return setup


def single_tensor(mesh):
    """Parameters one by one instead of in lists, and momentum."""
    model = Transformer().to(mesh.device_type)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, foreach=False)
    return model, optimizer, *tokens_on(mesh)


def autocast_step(model, optimizer, tokens, labels):
    with torch.autocast(tokens.device.type, torch.bfloat16):
        loss = loss_of(model(tokens), labels)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss


def images_on(mesh):
    images = torch.ones(4, 3, 16, 16, device=mesh.device_type)
    return images, torch.zeros(4, dtype=torch.int64, device=mesh.device_type)


def resnet(mesh):
    model = ResNet().to(mesh.device_type)
    return model, torch.optim.SGD(model.parameters(), 0.1, foreach=True), *images_on(mesh)


def resnet_step(model, optimizer, images, labels):
    optimizer.zero_grad()
    loss = F.cross_entropy(model(images), labels)
    loss.backward()
    optimizer.step()
    return loss


def numbers(mesh):
    return torch.ones(4, 6, device=mesh.device_type), torch.arange(2, device=mesh.device_type)


def assigning_step(x, rows):
    """Numbers assigned to parts of a tensor, made on the device, and read."""
    x[x > 2] = 0
    x[0] = 1.5
    x[:, 1:3] = 2
    x[0, 0] = True
    x[rows] = 3.0
    x *= torch.full((), 0.5, device=x.device)
    assert x.sum().item() != 0


# Data parallel.


def ddp(mesh):
    model = nn.parallel.DistributedDataParallel(
        Transformer().to(mesh.device_type), bucket_cap_mb=0.02
    )
    # Adam's factors depend on how many steps there were: one more in real runs.
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, foreach=True)
    return model, optimizer, *tokens_on(mesh)


def ddp_resnet(mesh):
    model = nn.parallel.DistributedDataParallel(ResNet().to(mesh.device_type))
    return model, torch.optim.SGD(model.parameters(), 0.1, foreach=True), *images_on(mesh)


def sharded(mixed=False, checkpointed=False, reshard=True):
    """FSDP2 over all axes but "tp"; two of them are replicas and shards."""

    def setup(mesh):
        from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
        from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

        policy = MixedPrecisionPolicy()
        if mixed:
            policy = MixedPrecisionPolicy(torch.bfloat16, torch.float32)
        names = tuple(name for name in mesh.mesh_dim_names if name != "tp")
        with torch.device("meta"):
            model = Transformer()
        if "tp" in mesh.mesh_dim_names:
            tensor_parallel(model, mesh["tp"])
        for name, layer in model.layers.items():
            if checkpointed:
                layer = model.layers[name] = checkpoint_wrapper(layer)
            fully_shard(layer, mesh=mesh[names], mp_policy=policy, reshard_after_forward=reshard)
        fully_shard(model, mesh=mesh[names], mp_policy=policy)
        model.to_empty(device=mesh.device_type)
        return model.start(), adamw(model), *tokens_on(mesh)

    return setup


# Tensor and sequence parallel.


def tensor_parallel(model, mesh):
    from torch.distributed.tensor import Replicate, Shard
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        PrepareModuleInput,
        RowwiseParallel,
        SequenceParallel,
        parallelize_module,
    )

    plan = {
        "embedding": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1)),
        "norm": SequenceParallel(),
        "head": ColwiseParallel(input_layouts=Shard(1), output_layouts=Replicate()),
    }
    for i in model.layers:
        plan |= {
            f"layers.{i}.norm1": SequenceParallel(),
            f"layers.{i}.norm2": SequenceParallel(),
            f"layers.{i}.attention": PrepareModuleInput(
                input_layouts=(Shard(1), None), desired_input_layouts=(Replicate(), None)
            ),
            f"layers.{i}.attention.wq": ColwiseParallel(),
            f"layers.{i}.attention.wk": ColwiseParallel(),
            f"layers.{i}.attention.wv": ColwiseParallel(),
            f"layers.{i}.attention.wo": RowwiseParallel(output_layouts=Shard(1)),
            f"layers.{i}.mlp": PrepareModuleInput(
                input_layouts=(Shard(1),), desired_input_layouts=(Replicate(),)
            ),
            f"layers.{i}.mlp.w1": ColwiseParallel(),
            f"layers.{i}.mlp.w3": ColwiseParallel(),
            f"layers.{i}.mlp.w2": RowwiseParallel(output_layouts=Shard(1)),
        }
    parallelize_module(model, mesh, plan, src_data_rank=None)


def tensor_parallel_only(mesh):
    with torch.device("meta"):
        model = Transformer()
    tensor_parallel(model, mesh["tp"])
    model.to_empty(device=mesh.device_type)
    return model.start(), adamw(model), *tokens_on(mesh)


# Pipeline parallel.


def stages(kind="1F1B", microbatches=4, per_rank=1):
    """A pipeline over the axis "pp", one layer to a stage; FSDP2 over "dp"."""

    def setup(mesh):
        from torch.distributed.fsdp import fully_shard
        from torch.distributed.pipelining import PipelineStage
        from torch.distributed.pipelining.schedules import get_schedule_class

        here, ranks = mesh["pp"].get_local_rank(), mesh["pp"].size()
        count = ranks * per_rank
        made = []
        for index in range(here, count, ranks):
            with torch.device("meta"):
                part = Transformer([index], index == 0, index == count - 1)
            if "tp" in mesh.mesh_dim_names:
                tensor_parallel(part, mesh["tp"])
            if "dp" in mesh.mesh_dim_names:
                for layer in part.layers.values():
                    fully_shard(layer, mesh=mesh["dp"])
                fully_shard(part, mesh=mesh["dp"])
            part.to_empty(device=mesh.device_type)
            device = torch.device(mesh.device_type)
            made.append(
                PipelineStage(part.start(), index, count, device, group=mesh.get_group("pp"))
            )
        schedule = get_schedule_class(kind)(
            made if per_rank > 1 else made[0], microbatches, loss_fn=loss_of
        )
        optimizers = [adamw(stage.submod) for stage in made]
        return schedule, optimizers, *tokens_on(mesh, microbatches), here == 0, here == ranks - 1

    return setup


def pipeline_step(schedule, optimizers, tokens, labels, first, last):
    schedule.step(*([tokens] if first else []), **({"target": labels} if last else {}))
    for optimizer in optimizers:
        optimizer.step()
        optimizer.zero_grad()


# Context parallel: every rank has a part of the sequence, keys and values go round.


def context_parallel_setup(mesh):
    model = Transformer().to(mesh.device_type, torch.bfloat16)
    return model, adamw(model), *tokens_on(mesh), mesh["cp"]


def context_parallel_step(model, optimizer, tokens, labels, mesh):
    from torch.distributed.tensor.experimental import context_parallel

    turns = model.turns
    with context_parallel(mesh, buffers=[tokens, labels, turns], buffer_seq_dims=[1, 1, 0]):
        loss = loss_of(model(tokens), labels)
        loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss


# Communication by hand: collectives of torch.distributed, uneven splits, messages.


def exchange_setup(mesh):
    device, rank = mesh.device_type, dist.get_rank()
    return torch.ones(2 * 4 + 4, 8, device=device, requires_grad=True), mesh, rank


def exchange_step(x, mesh, rank):
    """Row i of the splits: i + 1 rows go to rank i from everybody."""
    import torch.distributed.nn.functional as differentiable

    world = dist.get_world_size()
    out = [rank + 1] * world
    give = [i + 1 for i in range(world)]
    rows = x[: sum(give)]
    got = rows.new_empty(sum(out), rows.shape[1])
    got = differentiable.all_to_all_single(got, rows, out, give)
    (got * got).sum().backward()
    with torch.no_grad():
        flat = got.detach().new_zeros(world, 8)
        dist.all_to_all_single(flat, torch.ones_like(flat))
        dist.all_reduce(flat, op=dist.ReduceOp.MAX)
        dist.broadcast(flat, src=1)
        whole = flat.new_empty(world * world, 8)
        dist.all_gather_into_tensor(whole, flat)
        dist.all_gather([torch.empty_like(flat) for _ in range(world)], flat)
        part = flat.new_empty(world, 8)
        dist.reduce_scatter_tensor(part, whole)
        work = dist.all_reduce(part, group=mesh.get_group("x"), async_op=True)
        work.wait()
        other = rank ^ 1
        into = torch.empty_like(part)
        sends = [
            dist.P2POp(dist.isend, part, other, tag=3),
            dist.P2POp(dist.irecv, into, other, tag=3),
        ]
        for request in dist.batch_isend_irecv(sends):
            request.wait()
        dist.reduce(into, dst=2)
        gathered = [torch.empty_like(part) for _ in range(world)] if rank == 2 else None
        dist.gather(part, gathered, dst=2)
        dist.scatter(into, [part] * world if rank == 1 else None, src=1)
        dist.barrier()
