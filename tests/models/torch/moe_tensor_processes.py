"""A mixture on two real processes that share its heads and experts, against one process alone.

python -m tests.models.torch.moe_tensor_processes FOLDER        # writes FOLDER/result.json
"""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, distribute_tensor

from flint.models.torch import moe
from flint.models.torch.batches import loss_of
from flint.models.torch.moe_parallel import experts_mesh
from flint.models.torch.moe_sizes import tiny
from flint.models.torch.parallel import parallel_loss

#: Norms of queries and keys; and none.
NAMES = ("qwen3-30b", "mixtral-8x7b")
AXES = ("dp", "ep", "tp")


def gradients(name, mesh):
    """The loss, and gradients whole, with the same values of all parameters on any mesh."""
    config = replace(tiny(name), sequence=32, dtype=torch.float32)
    model, _, _, _ = moe.build(config, mesh)
    experts, generator = experts_mesh(mesh), torch.Generator().manual_seed(0)
    with torch.no_grad():
        for key, item in model.named_parameters():
            shape = list(item.shape)
            own = ".experts." in key
            shape[0] *= experts.size() if own else 1
            whole = float(key.endswith("norm.weight")) + 0.3 * torch.randn(
                shape, generator=generator
            )
            part = whole.chunk(experts.size())[experts.get_local_rank()] if own else whole
            item.copy_(distribute_tensor(part.clone(), item.device_mesh, item.placements))
    shape = (2, 1, config.sequence)
    tokens, targets = torch.randint(config.model.vocabulary, shape, generator=generator)
    with parallel_loss(mesh):
        loss = loss_of(model(tokens), targets)
        loss.backward()
    found = {}
    for key, item in model.named_parameters():
        gradient = item.grad.full_tensor()
        if ".experts." in key:
            parts = [torch.empty_like(gradient) for _ in range(experts.size())]
            dist.all_gather(parts, gradient, group=experts.get_group())
            gradient = torch.cat(parts)
        found[key] = gradient
    return (loss.full_tensor() if isinstance(loss, DTensor) else loss).item(), found


def work(rank, folder, ranks):
    torch.set_num_threads(1)
    store = dist.FileStore(f"{folder}/store{ranks}", ranks)
    dist.init_process_group("gloo", rank=rank, world_size=ranks, store=store)
    mesh = init_device_mesh("cpu", (1, 1, ranks), mesh_dim_names=AXES)
    found = {name: gradients(name, mesh) for name in NAMES}
    if rank == 0:
        torch.save(found, f"{folder}/{ranks}.pt")
    dist.barrier()
    dist.destroy_process_group()


def main(folder):
    for ranks in (1, 2):
        mp.start_processes(work, (folder, ranks), ranks, start_method="fork")
    alone, shared = (torch.load(f"{folder}/{ranks}.pt") for ranks in (1, 2))
    found = {}
    for name in NAMES:
        (loss, exact), (other, split) = alone[name], shared[name]
        errors = [abs(other / loss - 1)]
        errors += [float((split[key] - exact[key]).norm() / exact[key].norm()) for key in exact]
        found[name] = max(errors)
    (Path(folder) / "result.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1])
