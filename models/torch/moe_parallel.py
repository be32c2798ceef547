"""How a mixture of experts is split over a cluster: the mesh's axes by their names.

axis    what is applied
"dp"    ranks with sequences of their own; experts are split over them by FSDP
"cp"    a sequence is split (``parallel.split_sequence``); each rank routes its own tokens
"ep"    as "dp", but experts are split over these ranks, and rows of tokens are exchanged
"tp"    heads and vocabulary are split; between them each rank has a part of the sequence, routes
        the tokens of that, and has experts of its own (Megatron-Core's expert parallelism over
        tensor-parallel ranks, ``expert_tensor_parallel_size`` 1).  Networks of dense layers and
        shared experts are split by their hidden width

What is not of the experts is split by FSDP over "dp", "cp" and "ep" together.
"""

from __future__ import annotations

import functools
from typing import Any

import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)

from flint.models.torch.checkpointing import checkpoint_blocks
from flint.models.torch.moe_model import Block, Config, Model
from flint.models.torch.parallel import size
from flint.models.torch.splitting import split_tensors

#: The names that mesh axes may have, in their order.
AXES = ("pp", "dp", "cp", "ep", "tp")


def _flat(mesh: DeviceMesh, *axes: str) -> DeviceMesh:
    """The ranks along some axes together, of those that the mesh has."""
    names = tuple(axis for axis in axes if axis in (mesh.mesh_dim_names or ()))
    return mesh[names]._flatten("_".join(names)) if names[1:] else mesh[names[0]]


def experts_mesh(mesh: DeviceMesh) -> DeviceMesh:
    """The ranks that together have all experts."""
    return _flat(mesh, "ep", "tp")


def everyone(mesh: DeviceMesh) -> DeviceMesh:
    """The ranks that have tokens of their own for the same weights."""
    return _flat(mesh, "dp", "cp", "ep")


def token_groups(mesh: DeviceMesh) -> list[dist.ProcessGroup]:
    """Groups over which, one after the other, a sum is one over all tokens."""
    own = [mesh.get_group("tp")] if size(mesh, "tp") > 1 else []
    return [everyone(mesh).get_group(), *own]


def parallelise(model: Model, mesh: DeviceMesh, keep: bool = False) -> None:
    """Split a model over a mesh, in place; the axis "pp" is ignored.

    Args:
        model: on the meta device.
        mesh: of the cluster.
        keep: do not free gathered parameters after the forward pass, as in a pipeline.
    """
    if size(mesh, "tp") > 1:
        _split_tensors(model, mesh["tp"])
    checkpoint_blocks(model, model.config.checkpoint)
    _shard(model, mesh, keep)


def _split_tensors(model: Model, mesh: DeviceMesh) -> None:
    split_tensors(model, mesh, blocks=False)
    for block in model.layers.values():
        parallelize_module(block, mesh, _plan(block), src_data_rank=None)


def _plan(block: Block) -> dict[str, Any]:
    whole, rows = (Replicate(), None), RowwiseParallel(output_layouts=Shard(1))
    plan: dict[str, Any] = {
        "attention_norm": SequenceParallel(),
        "attention": PrepareModuleInput(
            input_layouts=(Shard(1), None), desired_input_layouts=whole
        ),
        **{f"attention.{name}": ColwiseParallel() for name in ("wq", "wk", "wv")},
        "attention.wo": rows,
    }
    for name in ("q_norm", "k_norm"):  # a head is normed by itself
        if getattr(block.attention, name) is not None:
            plan[f"attention.{name}"] = SequenceParallel(sequence_dim=2, use_local_output=True)
    if block.moe is None:
        plan |= {"moe_norm": SequenceParallel(), **_network("mlp", 1)}
    else:
        plan |= {"moe_norm": SequenceParallel(use_local_output=True)}
        plan |= {"moe.router": SequenceParallel(sequence_dim=0, use_local_output=True)}
        plan |= _network("moe.shared", 0) if block.moe.shared is not None else {}
    return plan


def _network(name: str, tokens: int) -> dict[str, Any]:
    """Of a feed-forward network whose input is split along a dim: that of its tokens."""
    return {
        name: PrepareModuleInput(
            input_layouts=(Shard(tokens),), desired_input_layouts=(Replicate(),)
        ),
        f"{name}.gate": ColwiseParallel(),
        f"{name}.up": ColwiseParallel(),
        f"{name}.down": RowwiseParallel(output_layouts=Shard(tokens)),
    }


def _shard(model: Model, mesh: DeviceMesh, keep: bool) -> None:
    """FSDP: experts over "dp" and "cp", everything else over all ranks but those of "tp"."""
    config = model.config
    policy = MixedPrecisionPolicy(param_dtype=config.dtype, reduce_dtype=config.reduce_dtype)
    ranks = everyone(mesh)
    options: dict[str, Any] = {"mp_policy": policy, "reshard_after_forward": not keep}
    # What tensor parallelism splits stays split along that dim, and FSDP splits the first.
    tensors = size(mesh, "tp") > 1
    evenly = None if tensors else functools.partial(evenly_placed, ranks.size())
    for block in model.layers.values():
        if block.moe is not None:
            experts, data = block.moe.experts, _flat(mesh, "dp", "cp")
            placed = functools.partial(evenly_placed, data.size())
            fully_shard(experts, mesh=data, shard_placement_fn=placed, **options)
            # Tokens of all ranks come to an expert, and the loss is the mean over all ranks.
            experts.set_gradient_divide_factor(ranks.size())
        fully_shard(block, mesh=ranks, shard_placement_fn=evenly, **options)
    fully_shard(model, mesh=ranks, mp_policy=policy, shard_placement_fn=evenly)


def evenly_placed(ranks: int, parameter: nn.Parameter) -> Shard:
    """Split a parameter along its first dim that divides among the ranks, else along the first.

    A router has fewer rows than there are ranks, a rank one expert: split by these, most ranks
    would have none and gather what is mostly padding.
    """
    even = (dim for dim, size in enumerate(parameter.shape) if size % ranks == 0)
    return Shard(next(even, 0))


def check(config: Config, mesh: DeviceMesh) -> None:
    """Refuse a mesh that the model cannot be split over.

    Raises:
        ValueError: axes in another order; sizes that do not divide; attention that is not split.
    """
    names, model = tuple(mesh.mesh_dim_names or ()), config.model
    if names != tuple(axis for axis in AXES if axis in names) or not {"dp", "ep"} <= {*names}:
        raise ValueError(f'mesh axes {names}: "dp" and "ep", of {", ".join(AXES)} in this order')
    tensors, contexts = size(mesh, "tp"), size(mesh, "cp")
    count, ranks = model.experts.count, size(mesh, "ep") * tensors
    if count % ranks:
        raise ValueError(f"{count} experts do not divide among {ranks} ranks")
    form = model.form
    latent, sinks = form is not None and form.latent, form is not None and form.sinks
    windows = any(kind.span.window or kind.span.chunk for kind in model.period)
    if tensors > 1 and (latent or sinks):
        raise ValueError('latents and sinks are not split over the axis "tp"')
    if contexts > 1 and (sinks or windows):
        raise ValueError('windows, chunks and sinks are not split over the axis "cp"')
    for what, number in (
        ("key heads", model.heads.keys),
        ("tokens of the vocabulary", model.vocabulary),
    ):
        if number % tensors:
            raise ValueError(f'{number} {what} cannot be split over {tensors} ranks of "tp"')
    parts = tensors * (2 * contexts if contexts > 1 else 1)
    if config.sequence % parts:
        raise ValueError(f"{config.sequence} positions cannot be split into {parts} parts")
