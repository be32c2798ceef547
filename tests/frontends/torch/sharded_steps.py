"""Child process: parallel steps recorded on rank 0 of a fake group, executed on 4 XLA devices.

    python -m tests.frontends.torch.sharded_steps fsdp "tensor parallel"

Prints JSON: parallelism -> {"collectives": {op: count}, "compared": n, "worst": relative error,
"moved": least relative change from the initial values}.  The truth is the same model's step in one
process on the whole batch.
"""

from __future__ import annotations

import os

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=4"

import collections
import json
import re
import sys

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)
from torch.testing._internal.distributed.fake_pg import FakeStore

from flint.frontends.torch.emission import emitted
from flint.stablehlo.read.bindings import parse
from tests.frontends.torch.exchanges import differences
from tests.frontends.torch.executing import execute_on
from tests.frontends.torch.real_recording import Recorder, record
from tests.frontends.torch.tiny_models import Llama, token_batch

WORLD = 4
REDUCTIONS = {0: "sum", 1: "avg", 2: "product", 3: "min", 4: "max"}


class Communicating(Recorder):
    """Also gives the ranks and the reduction."""

    def communication(self, name, args):
        if not name.startswith(("c10d.", "_c10d_functional.", "_dtensor.")):
            return {}
        found = {}
        for item in args:
            ranks = group_ranks(item)
            if ranks is not None:
                found["group"] = self.groups.setdefault(tuple(ranks), len(self.groups))
            elif isinstance(item, torch.ScriptObject):
                found["reduction"] = REDUCTIONS[int(item.op())]
            elif isinstance(item, str):
                found["reduction"] = item
        return found


def group_ranks(item):
    try:
        if isinstance(item, torch.ScriptObject):
            return dist.get_process_group_ranks(dist.ProcessGroup.unbox(item))
        if isinstance(item, str):
            return dist.get_process_group_ranks(dist.distributed_c10d._resolve_process_group(item))
    except (RuntimeError, ValueError, TypeError, KeyError):
        pass
    return None


def made():
    torch.manual_seed(0)
    return Llama(kv_heads=8)


def stepped(model, tokens, labels):
    # Lists may not mix plain and distributed tensors, which a tensor-parallel model has.
    same = len({type(parameter.data) for parameter in model.parameters()}) == 1
    # A large epsilon keeps the first update from being the gradients' signs, rounding included.
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, eps=1e-2, foreach=same)

    def step(tokens, labels):
        loss = F.cross_entropy(model(tokens).flatten(0, 1), labels.flatten())
        loss.backward()
        optimizer.step()
        return loss

    return step


def fsdp(model):
    mesh = init_device_mesh("cpu", (WORLD,))
    for layer in model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)


def hsdp(model):
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))
    for layer in model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)


def tensor_parallel(model):
    mesh = init_device_mesh("cpu", (WORLD,))
    plan = {
        "attention.wq": ColwiseParallel(), "attention.wk": ColwiseParallel(),
        "attention.wv": ColwiseParallel(), "attention.wo": RowwiseParallel(),
        "mlp.w1": ColwiseParallel(), "mlp.w3": ColwiseParallel(), "mlp.w2": RowwiseParallel(),
    }  # fmt: skip
    for layer in model.layers:
        parallelize_module(layer, mesh, plan, src_data_rank=None)


def local(parameter):
    return parameter.to_local() if hasattr(parameter, "to_local") else parameter


def shard_of(full, parameter, rank):
    """What a rank holds of a parameter."""
    if not hasattr(parameter, "device_mesh"):
        return full
    mesh = parameter.device_mesh
    coordinates = (mesh.mesh == rank).nonzero()[0].tolist()
    part = full
    for axis, placement in enumerate(parameter.placements):
        if isinstance(placement, Shard):
            part = part.chunk(mesh.size(axis), placement.dim)[coordinates[axis]]
    return part


def compared(parallelise, split_batch):
    tokens, labels = token_batch()
    model = made()
    before = {name: item.detach().clone() for name, item in model.named_parameters()}
    stepped(model, tokens, labels)(tokens, labels)
    after = {name: item.detach().clone() for name, item in model.named_parameters()}

    model = made()
    parallelise(model)
    size = len(tokens) // WORLD if split_batch else len(tokens)
    own = [item[:size].clone() for item in (tokens, labels)]
    names = {}
    for name, parameter in model.named_parameters():
        names[local(parameter).untyped_storage()._cdata] = (name, parameter)
    recorder = Communicating()
    recorder.world = WORLD
    recorded = record(stepped(model, *own), *own, recorder=recorder)
    made_module = emitted(recorded.recording, strict=True)

    inputs = [[] for _ in range(WORLD)]
    parameters = {}
    storages = {number: cdata for cdata, number in recorder.storages.items()}
    data = {
        item.untyped_storage()._cdata: whole
        for item, whole in zip(own, (tokens, labels), strict=True)
    }
    for number, (item, value) in enumerate(
        zip(recorded.recording.inputs, recorded.inputs, strict=True)
    ):
        cdata = storages[item.view.storage]
        for rank in range(WORLD):
            given = value
            if cdata in names:
                name, parameter = names[cdata]
                given = shard_of(before[name], parameter, rank).reshape(value.shape)
                parameters[number] = (name, parameter)
            elif cdata in data and split_batch:
                given = data[cdata][rank * size : (rank + 1) * size].reshape(value.shape)
            inputs[rank].append(given)
    outputs, aliases = execute_on(inputs, made_module.data)
    worst, moved = 0.0, float("inf")
    for number, (name, parameter) in parameters.items():
        for rank in range(WORLD):
            ours = outputs[rank][aliases[number]].double()
            theirs = shard_of(after[name], parameter, rank).reshape(ours.shape).double()
            first = shard_of(before[name], parameter, rank).reshape(ours.shape).double()
            scale = float(theirs.abs().max())
            worst = max(worst, float((ours - theirs).abs().max()) / scale)
            moved = min(moved, float((first - theirs).abs().max()) / scale)
    text = str(parse(made_module.data))
    counts = collections.Counter(re.findall(r"stablehlo\.(all_\w+|reduce_scatter)\"", text))
    return {
        "collectives": dict(counts),
        "compared": len(parameters) * WORLD,
        "parameters": len(list(model.parameters())),
        "worst": worst,
        "moved": moved,
    }


MADE = {
    "fsdp": lambda: compared(fsdp, split_batch=True),
    "hsdp": lambda: compared(hsdp, split_batch=True),
    "tensor parallel": lambda: compared(tensor_parallel, split_batch=False),
    "exchanges": differences,
}


def main(*names):
    dist.init_process_group("fake", rank=0, world_size=WORLD, store=FakeStore())
    print(json.dumps({name: MADE[name]() for name in names}))


if __name__ == "__main__":
    main(*sys.argv[1:])
