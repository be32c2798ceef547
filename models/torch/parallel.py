"""How a transformer is split over a cluster: the mesh's axes by their names.

axis                     what is applied
"pp"                     pipeline stages: PipelineStage and a schedule
"dp_replicate"           replicas of FSDP's groups (HSDP): fully_shard over two mesh axes
"dp"                     fully_shard: parameters, gradients and optimizer state are split
"cp"                     context_parallel: the sequence is split, attention goes round a ring;
                         parameters are split over these ranks too
"tp"                     parallelize_module: heads, hidden width and vocabulary are split,
                         between them the residual stream's sequence (Korthikanti et al., 2022)

mesh = init_device_mesh("cuda", (64, 8), mesh_dim_names=("dp", "tp"))
parallelise(model, mesh, torch.bfloat16)
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.experimental import context_parallel
from torch.distributed.tensor.experimental._attention import set_rotate_method
from torch.distributed.tensor.parallel import (
    loss_parallel,
)

from flint.models.torch.checkpointing import checkpoint_blocks
from flint.models.torch.splitting import split_tensors

#: The names that mesh axes may have.
AXES = ("pp", "dp_replicate", "dp", "cp", "tp")


@dataclass(frozen=True, slots=True)
class Ends:
    """How the embedding and the head are split.

    Attributes:
        together: they are one group of FSDP, else each is one.
        whole: over the axis "tp" every rank has the whole embedding, and gathers the scores of the
            whole vocabulary; else rows and scores stay split.
    """

    together: bool
    whole: bool


#: By name; "together" is torchtitan's of 2024, "whole" is KempnerForge's.
ENDS = {
    "split": Ends(together=False, whole=False),
    "together": Ends(together=True, whole=False),
    "whole": Ends(together=True, whole=True),
}


def size(mesh: DeviceMesh, axis: str) -> int:
    """Ranks along an axis; 1 if the mesh has none of that name."""
    return mesh[axis].size() if axis in (mesh.mesh_dim_names or ()) else 1


def check_axes(mesh: DeviceMesh) -> None:
    """Refuse a mesh that this file has no rule for.

    Raises:
        ValueError: an unknown axis; replicas of nothing.
    """
    names = mesh.mesh_dim_names or ()
    unknown = [name for name in names if name not in AXES]
    if unknown:
        raise ValueError(f"mesh axes {unknown}: there are {', '.join(AXES)}")
    if "dp_replicate" in names and not {"dp", "cp"} & {*names}:
        raise ValueError('"dp_replicate" replicates FSDP\'s groups: the mesh needs "dp" as well')


def parallelise(
    model: nn.Module,
    mesh: DeviceMesh,
    dtype: torch.dtype,
    reduce_dtype: torch.dtype = torch.float32,
    *,
    checkpoint: bool | int | str = False,
    keep: bool = False,
    ends: str = "split",
) -> None:
    """Split a model over a mesh, in place; the axis "pp" is ignored.

    Args:
        model: has ``layers`` (a ModuleDict of blocks) and, where it has them, ``embedding``,
            ``norm`` and ``head``.
        mesh: whose axes are in ``AXES``.
        dtype: of activations, and of weights in products.
        reduce_dtype: that FSDP reduces gradients in.
        checkpoint: as of ``checkpoint_blocks``.
        keep: do not free gathered parameters after the forward pass.
        ends: a key of ``ENDS``.
    """
    if size(mesh, "tp") > 1:
        split_tensors(model, mesh["tp"], whole_ends=ENDS[ends].whole)
    checkpoint_blocks(model, checkpoint)
    shard_mesh = sharding_mesh(mesh)
    if shard_mesh is None:
        model.to(dtype)  # no master weights to gather from: the weights themselves
    else:
        keep = keep or size(mesh, "pp") > 1
        own = not ENDS[ends].together
        shard_parameters(model, shard_mesh, dtype, reduce_dtype, keep=keep, own_ends=own)


def sharding_mesh(mesh: DeviceMesh) -> DeviceMesh | None:
    """The mesh that FSDP shards over, of two axes with replicas; None: nothing to shard over."""
    names = mesh.mesh_dim_names or ()
    over = tuple(name for name in ("dp", "cp") if name in names)
    if not over:
        return None
    last = over[0]
    if len(over) == 2:
        last = "dp_cp"
        mesh[over]._flatten(last)
    return mesh["dp_replicate", last] if "dp_replicate" in names else mesh[last]


def shard_parameters(
    model: nn.Module,
    mesh: DeviceMesh,
    dtype: torch.dtype,
    reduce_dtype: torch.dtype,
    *,
    keep: bool,
    own_ends: bool = True,
) -> None:
    """FSDP2 (or, over a mesh of two axes, HSDP): a group per block, and for the ends.

    Args:
        model: as ``parallelise``'s.
        mesh: of one axis, or of replicas and shards.
        dtype: that parameters are gathered in.
        reduce_dtype: that gradients are reduced in.
        keep: do not free the gathered parameters after the forward pass: with a pipeline, they
            would be gathered anew for every microbatch.
        own_ends: each end is a group of its own; otherwise both form one.
    """
    policy = MixedPrecisionPolicy(param_dtype=dtype, reduce_dtype=reduce_dtype)
    options: dict[str, Any] = {"mesh": mesh, "mp_policy": policy}
    if own_ends and model.embedding is not None:
        fully_shard(model.embedding, reshard_after_forward=not keep, **options)
    for block in model.layers.values():
        fully_shard(block, reshard_after_forward=not keep, **options)
    if own_ends and model.head is not None:
        # The backward pass begins with these: they would be gathered again at once.
        fully_shard([model.norm, model.head], reshard_after_forward=False, **options)
    fully_shard(model, reshard_after_forward=None if own_ends else not keep, **options)


def exchange_gradients(
    model: nn.Module, mesh: DeviceMesh, reduce: bool, keep: bool | None = None
) -> None:
    """What the next backward pass does with gradients and gathered parameters (FSDP2).

    Args:
        model: split by ``parallelise``.
        mesh: of the cluster.
        reduce: it reduces gradients.
        keep: it keeps gathered parameters; None: as ``parallelise`` said.
    """
    if sharding_mesh(mesh) is not None:
        model.set_requires_gradient_sync(reduce)
        if keep is not None:
            model.set_reshard_after_backward(not keep)


def free_gathered(model: nn.Module) -> None:
    """Free gathered parameters, which an optimizer's step has made old."""
    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.reshard()


@contextlib.contextmanager
def split_sequence(
    mesh: DeviceMesh,
    batch: Sequence[torch.Tensor],
    tables: Iterable[torch.Tensor],
    rotate: str = "allgather",
) -> Iterator[None]:
    """In this context, the sequence is split over the axis "cp", and attention attends across it.

    Of 2 n parts of the sequence, rank r of n has the r-th and the r-th from the end, so that all
    ranks compute the same amount; masked blocks are not computed.

    Args:
        mesh: of the cluster.
        batch: tensors (B, S).
        tables: tensors (S, ...), as ``layers.rotary_table``'s.
        rotate: how keys and values arrive, in the forward and again in the backward pass:
            "allgather", all at once, or "alltoall", from rank to rank.
    """
    if size(mesh, "cp") == 1:
        yield
        return
    tables = list(tables)
    set_rotate_method(rotate)
    with context_parallel(
        mesh["cp"],
        buffers=[*batch, *tables],
        buffer_seq_dims=[1] * len(batch) + [0] * len(tables),
    ):
        yield


def parallel_loss(mesh: DeviceMesh, ends: str = "split") -> contextlib.AbstractContextManager[Any]:
    """In this context, cross entropy takes scores as ``ENDS`` says: split over the vocabulary."""
    split = size(mesh, "tp") > 1 and not ENDS[ends].whole
    return loss_parallel() if split else contextlib.nullcontext()


def clip_gradients(parameters: Iterable[nn.Parameter], mesh: DeviceMesh, limit: float) -> None:
    """Scale gradients down to a norm of at most ``limit``, taken over all ranks."""
    parameters = list(parameters)
    if size(mesh, "pp") == 1:
        nn.utils.clip_grad_norm_(parameters, limit)
        return
    norm = nn.utils.get_total_norm([item.grad for item in parameters if item.grad is not None])
    if isinstance(norm, DTensor):
        norm = norm.full_tensor()
    norm = norm**2
    dist.all_reduce(norm, group=mesh.get_group("pp"))
    nn.utils.clip_grads_with_norm_(parameters, limit, norm**0.5)
