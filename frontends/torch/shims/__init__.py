"""The changes that PyTorch needs to run on an absent cluster and device.

The idea: PyTorch is used unchanged; if it needs values, other ranks or a compiled backend, one
small file here supplies them.  Each file states why it is needed; all are applied together, once,
in the process of a capture, which ends with it.  They fit the versions of torch that
``versions.KNOWN_VERSIONS`` names.
"""

from __future__ import annotations

from flint.frontends.torch.shims import (
    addresses,
    all_ranks_shards,
    asynchronous,
    attention,
    autocast,
    checkpoints,
    compiled,
    control_flow,
    ctc,
    data_parallel,
    device_kernels,
    flex,
    foreach,
    jagged,
    lazy_modules,
    mesh,
    objects,
    own_memory,
    own_parameters,
    own_rank,
    own_tensors,
    packed,
    parameters,
    pipeline,
    process_group,
    refused,
    scripted,
    split_groups,
    storage_parts,
    symmetric,
    unseen_kinds,
    value_exits,
    values,
    work,
)

_SHIMS = (
    # other ranks
    mesh, process_group, split_groups, symmetric, own_rank, own_tensors, own_memory, objects,
    pipeline, work, data_parallel, all_ranks_shards,
    # values, which fake tensors have none of
    addresses, values, value_exits, checkpoints, ctc, packed, jagged, parameters, lazy_modules,
    own_parameters, storage_parts, unseen_kinds, refused,
    control_flow,
    # kernels of a GPU, and what compiles them
    device_kernels, attention, flex, autocast, asynchronous, compiled, scripted, foreach,
)  # fmt: skip


def apply_all() -> None:
    """Apply every shim to this process."""
    for shim in _SHIMS:
        shim.apply()
