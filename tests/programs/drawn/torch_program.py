"""A training program of PyTorch drawn from a number: python torch_program.py 7, as a rank.

The number decides the model, the strategy with its options, and the loop around it, so that what
nobody has thought of is tried together.
"""

import contextlib
import itertools
import os
from functools import partial

import torch
import torch.distributed as dist
from drawing import pick
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.nn import functional
from torch_model import LENGTH, TIED, WORDS, Block, Feedforward, Model

on_gpu = torch.cuda.is_available()
device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if on_gpu else torch.device("cpu")
if on_gpu:
    torch.cuda.set_device(device)
dist.init_process_group("nccl" if on_gpu else "gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.backends.mha.set_fastpath_enabled(False)  # one kernel, whose products are not counted
STEPS, ROWS = 6, pick([2, 4, 6])
STRATEGY = pick(["ddp", "fsdp2", "hsdp", "fsdp1", "by_hand", "tp", "fsdp_tp", "zero"])
# Reentrant checkpoints need DDP's static graph, which makes buckets anew in the observed step.
KEPT = ["not reentrant"] if STRATEGY in ("ddp", "zero") else ["reentrant", "not reentrant"]
CHECKPOINT = pick([None, None, *KEPT]) if "tp" not in STRATEGY else None


def by_ddp(model):
    options = {
        "bucket_cap_mb": pick([25, 0.01, 0.002]), "gradient_as_bucket_view": pick([True, False]),
        "broadcast_buffers": pick([True, False]),
        "find_unused_parameters": CHECKPOINT is None and pick([True, False]),
    }  # fmt: skip
    wrapped = nn.parallel.DistributedDataParallel(model, **options)
    if pick([True, False, False]):
        from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

        wrapped.register_comm_hook(None, default_hooks.fp16_compress_hook)
    return wrapped, lambda last: contextlib.nullcontext() if last else wrapped.no_sync()


def by_fsdp1(model):
    from torch.distributed import fsdp
    from torch.distributed.fsdp.wrap import ModuleWrapPolicy, size_based_auto_wrap_policy

    by_size = partial(size_based_auto_wrap_policy, min_num_params=2000)
    policies = [ModuleWrapPolicy({Block}), *([] if TIED else [by_size, None])]
    lower = fsdp.MixedPrecision(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    wrapped = fsdp.FullyShardedDataParallel(
        model, device_id=device, auto_wrap_policy=pick(policies), use_orig_params=True,
        sharding_strategy=pick(list(fsdp.ShardingStrategy)[:3]), limit_all_gathers=pick([True, False]),
        backward_prefetch=pick([*fsdp.BackwardPrefetch, None]), forward_prefetch=pick([True, False]),
        mixed_precision=pick([None, lower]),
    )  # fmt: skip
    waits = pick([True, False])
    return (
        wrapped,
        lambda last: wrapped.no_sync() if waits and not last else contextlib.nullcontext(),
    )


def by_fsdp2(model):
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    options = {"reshard_after_forward": pick([True, False])}
    if STRATEGY == "hsdp" and world == 4:
        options["mesh"] = init_device_mesh(device.type, (2, 2), mesh_dim_names=("copy", "shard"))
    if STRATEGY == "fsdp_tp" and world == 4:
        mesh = init_device_mesh(device.type, (2, 2), mesh_dim_names=("data", "tensor"))
        options["mesh"] = mesh["data"]
        by_tensors(model, mesh["tensor"])
    if pick([True, False]):
        reduced = pick([torch.float32, torch.bfloat16, None])
        options["mp_policy"] = MixedPrecisionPolicy(torch.bfloat16, reduced)
    if pick([True, True, False]):
        for block in dict.fromkeys(model.blocks):
            fully_shard(block, **options)
    if not TIED and pick([True, False]):
        fully_shard([model.norm, model.head], **options)
    fully_shard(model, **options)
    waits = pick([True, False])

    def sync(last):
        if waits:
            model.set_requires_gradient_sync(last)
        return contextlib.nullcontext()

    return model, sync


def by_tensors(model, mesh=None):
    from torch.distributed.tensor import parallel

    mesh = mesh or init_device_mesh(device.type, (world,))
    plan = {"up": parallel.ColwiseParallel(), "gate": parallel.ColwiseParallel(),
            "down": parallel.RowwiseParallel()}  # fmt: skip
    for block in dict.fromkeys(model.blocks):
        if isinstance(block.feed, Feedforward):
            there = {
                name: way for name, way in plan.items() if getattr(block.feed, name) is not None
            }
            parallel.parallelize_module(block.feed, mesh, there)
    return model, lambda last: contextlib.nullcontext()


def by_hand(model):
    """Gradients that the program itself exchanges, at the end or as they come."""
    if pick([True, False, False]):
        for weight in model.parameters():
            weight.register_post_accumulate_grad_hook(lambda weight: dist.all_reduce(weight.grad))
    return model, lambda last: contextlib.nullcontext()


def exchange(grads, way):
    if way == "flat":
        whole = torch._utils._flatten_dense_tensors(grads)
        dist.all_reduce(whole)
        for grad, new in zip(
            grads, torch._utils._unflatten_dense_tensors(whole, grads), strict=True
        ):
            grad.copy_(new)
    elif way == "scattered":
        whole = torch.cat([grad.flatten() for grad in grads])
        whole = functional.pad(whole, (0, -len(whole) % world))
        own = whole.new_empty(len(whole) // world)
        dist.reduce_scatter_tensor(own, whole)
        dist.all_gather_into_tensor(whole, own / world)
    else:
        works = [dist.all_reduce(grad, async_op=way == "async") for grad in grads]
        for work in filter(None, works):
            work.wait()


def optimizers(model):
    weights = [weight for weight in model.parameters() if weight.requires_grad]
    if STRATEGY == "zero":
        from torch.distributed.optim import ZeroRedundancyOptimizer

        return [ZeroRedundancyOptimizer(weights, torch.optim.AdamW, lr=1e-3)]
    kinds = [torch.optim.SGD, torch.optim.AdamW, torch.optim.RMSprop, torch.optim.NAdam]
    make = partial(pick(kinds), lr=1e-3, foreach=False if "tp" in STRATEGY else None)
    if len(weights) > 3 and "tp" not in STRATEGY and pick([True, False, False]):
        return [make(weights[::2]), torch.optim.SGD(weights[1::2], lr=1e-3)]
    return [make(weights)]


def batches():
    if pick([True, False]):
        while True:
            yield torch.randint(WORDS, (ROWS, LENGTH)).to(device)
    rows = torch.randint(WORDS, (ROWS * world * STEPS, LENGTH)).unbind()
    sampler = torch.utils.data.DistributedSampler(rows, shuffle=pick([True, False]))
    loader = torch.utils.data.DataLoader(rows, ROWS, sampler=sampler, num_workers=pick([0, 2]))
    for epoch in itertools.count():
        sampler.set_epoch(epoch)
        for batch in loader:
            yield batch.to(device, non_blocking=True)


WAYS = {"ddp": by_ddp, "zero": by_ddp, "fsdp1": by_fsdp1, "tp": by_tensors, "by_hand": by_hand}


def main():
    torch.manual_seed(0)
    inner = Model(CHECKPOINT).to(device)
    model, sync = WAYS.get(STRATEGY, by_fsdp2)(inner)
    every, source = optimizers(model), batches()
    parts, logs = pick([1, 1, 2, 3]), pick(["nothing", "item", "reduced", "gathered", "some"])
    clip, way = (
        pick([True, False]) and "tp" not in STRATEGY,
        pick(["each", "flat", "async", "scattered"]),
    )
    lower = (
        torch.bfloat16 if STRATEGY in ("ddp", "zero", "by_hand") and pick([True, False]) else None
    )

    def loss_of():
        words = next(source)
        with torch.autocast(device.type, lower, enabled=lower is not None):
            found = model(words)
        return functional.cross_entropy(found[:, :-1].float().flatten(0, 1), words[:, 1:].flatten())

    for step in range(STEPS):
        for optimizer in every:
            optimizer.zero_grad()
        total = torch.zeros((), device=device)
        for part in range(parts):
            with sync(part == parts - 1):
                loss = loss_of() / parts
                loss.backward()
            total += loss.detach()
        if STRATEGY == "by_hand":
            exchange([weight.grad for weight in model.parameters()], way)
        if clip and STRATEGY == "fsdp1":
            model.clip_grad_norm_(1.0)
        elif clip:
            nn.utils.clip_grad_norm_(inner.parameters(), 1.0)
        for optimizer in every:
            optimizer.step()
        if logs == "item":
            print(total.item())
        elif logs == "reduced" or (logs == "some" and step % 2):
            dist.all_reduce(total)
        elif logs == "gathered":
            dist.all_gather([torch.zeros_like(total) for _ in range(world)], total)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
