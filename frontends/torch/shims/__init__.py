"""What PyTorch needs to run on a cluster and a device that are not there.

The idea: PyTorch is used as it is; where it asks for values, for other ranks or for a compiled
backend, one small file here answers.  Each says why it is needed and for which versions; all are
applied together, once, in the process of a capture, which ends with it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from flint.frontends.torch.shims import (
    allocation,
    assignment,
    asynchronous,
    attention,
    autocast,
    chunk,
    coalesced,
    compiled,
    ctc,
    data_parallel,
    flex,
    foreach,
    foreach_support,
    fsdp1,
    fused,
    mesh,
    objects,
    own_rank,
    parameters,
    pipeline,
    process_group,
    random_offsets,
    receiving,
    sharding,
    sparse,
    value_exits,
    values,
)


@dataclass(frozen=True, slots=True)
class Shim:
    """A shim: what it does, and the versions of torch that it is known to fit."""

    apply: Callable[[], None]
    versions: str
    reason: str


_KNOWN = ">=2.13,<2.14"

SHIMS: tuple[Shim, ...] = (
    Shim(mesh.apply, _KNOWN, "meshes compute with rank numbers: real tensors, also in fake mode"),
    Shim(values.apply, _KNOWN, "fake tensors have no values: reading one follows a policy"),
    Shim(value_exits.apply, _KNOWN, "logging and checkpoints must not stop a capture"),
    Shim(allocation.apply, _KNOWN, "the recording device has no memory to allocate"),
    Shim(assignment.apply, _KNOWN, "a number goes to the device with the kernel that writes it"),
    Shim(asynchronous.apply, _KNOWN, "PyTorch takes itself to be compiling under fake tensors"),
    Shim(attention.apply, _KNOWN, "attention is one fused kernel, as on an accelerator"),
    Shim(flex.apply, _KNOWN, "FlexAttention is one fused kernel, made by a compiler"),
    Shim(fused.apply, _KNOWN, "ops that a GPU has one kernel for are not taken apart"),
    Shim(parameters.apply, _KNOWN, "parameters that are fake tensors are moved by swapping"),
    Shim(pipeline.apply, _KNOWN, "pipeline stages ask their neighbours for shapes"),
    Shim(sharding.apply, _KNOWN, "DTensor runs ops of global shapes to know their results"),
    Shim(sparse.apply, _KNOWN, "sparse gradients have sizes that only values tell"),
    Shim(autocast.apply, _KNOWN, "autocast has kernels for known kinds of devices only"),
    Shim(ctc.apply, _KNOWN, "the lattice of a CTC loss has a size that only values tell"),
    Shim(compiled.apply, _KNOWN, "nothing is compiled under fake tensors"),
    Shim(fsdp1.apply, _KNOWN, "FSDP1 cannot run on fake tensors"),
    Shim(process_group.apply, _KNOWN, "programs make the process group that is already there"),
    Shim(own_rank.apply, _KNOWN, "what a program asks about its rank tells which ranks differ"),
    Shim(receiving.apply, _KNOWN, "who sends first only a run decides"),
    Shim(objects.apply, _KNOWN, "Python objects of other ranks are not there"),
    Shim(coalesced.apply, _KNOWN, "coalesced collectives have no kernels for fake tensors"),
    Shim(chunk.apply, _KNOWN, "FSDP makes the shards of all ranks to keep one"),
    Shim(foreach_support.apply, _KNOWN, "fake parameters do not count as tensors for foreach"),
    Shim(data_parallel.apply, _KNOWN, "DDP's reducer works below the dispatcher"),
    Shim(random_offsets.apply, _KNOWN, "DTensor cuts all ranks' shards to place random numbers"),
    Shim(foreach.apply, _KNOWN, "DTensor works out the sharding of every tensor of a list anew"),
)


def apply_all() -> None:
    """Apply every shim to this process."""
    for shim in SHIMS:
        shim.apply()
