"""DeviceMesh under fake tensors.

A mesh computes with a tensor of rank numbers (``nonzero``, ``tolist``); under FakeTensorMode those
are data dependent.  Its methods run with real CPU tensors instead; values that programs compute
from ``mesh.mesh`` are known, and meshes are made from them.  So does the placement that
``fully_shard`` gives to tensor-parallel parameters, which finds a shard's size and offset by
splitting a tensor of indices.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
import torch.distributed as dist
from torch._subclasses.fake_tensor import FakeTensor, unset_fake_temporarily
from torch.utils._python_dispatch import _disable_current_modes

from flint.errors import FlintError
from flint.frontends.torch.modes import with_real_tensors
from flint.frontends.torch.patching import around, replace
from flint.frontends.torch.recording.known_values import given, known_value
from flint.frontends.torch.shims.places import note_mesh
from flint.frontends.torch.user_lines import at_user_line

#: Every tuple of ranks that a mesh has, once.
_MAPS: dict[tuple[int, ...], tuple[int, ...]] = {}

#: Methods that use the tensor of ranks.
_METHODS = ("__init__", "_flatten", "_unflatten", "_concatenate", "_get_all_submeshes")


def apply() -> None:
    """Let meshes compute with real tensors."""
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.tensor.placement_types import _StridedShard

    mesh: Any = DeviceMesh
    for name in _METHODS:
        if hasattr(mesh, name):
            around(mesh, name, _computed)
    around(mesh, "__init__", _with_real_ranks)
    around(mesh, "__init__", _with_one_map)
    replace(mesh, "mesh", property(functools.partial(_known_ranks, mesh.mesh.fget)))
    around(mesh, "__eq__", _equal)
    for name in ("get_local_rank", "get_group"):
        around(mesh, name, _of_members)
    around(_StridedShard, "local_shard_size_and_offset", _computed)


def _computed(original: Any, *args: Any, **kwargs: Any) -> Any:
    return with_real_tensors(original)(*args, **kwargs)


def _with_real_ranks(init: Any, *args: Any, **kwargs: Any) -> None:
    """``__init__`` as ``init_device_mesh`` calls it, which counts ranks from 0 in fake tensors, and
    as programs call it, with a tensor of ranks."""
    ranks = kwargs.get("_rank_map")
    if isinstance(ranks, FakeTensor):
        with unset_fake_temporarily(), _disable_current_modes(), torch.device("cpu"):
            kwargs["_rank_map"] = torch.arange(ranks.numel(), dtype=torch.int)
    kwargs = {key: _value_of(item) for key, item in kwargs.items()}
    init(*map(_value_of, args), **kwargs)


def _value_of(item: Any) -> Any:
    """A known tensor's value; any other object unchanged."""
    value = known_value(item) if isinstance(item, FakeTensor) else None
    return item if value is None else value


def _known_ranks(ranks: Any, mesh: Any) -> Any:
    """The property ``mesh``: its values and those of its parts are known."""
    tensor = with_real_tensors(ranks)(mesh)
    given(tensor)
    return tensor


def _with_one_map(init: Any, mesh: Any, /, *args: Any, **kwargs: Any) -> None:
    """``__init__`` after which meshes with the same ranks share the tuple of them."""
    init(mesh, *args, **kwargs)
    ranks = mesh._flatten_rank_map
    mesh._flatten_rank_map = _MAPS.setdefault(ranks, ranks)
    note_mesh(ranks)


def _of_members(method: Any, mesh: Any, *args: Any, **kwargs: Any) -> Any:
    """A method that fails with PyTorch's "list index out of range" on ranks outside of the mesh."""
    if mesh.get_coordinate() is None:
        ranks = mesh._flatten_rank_map
        shown = ", ".join(map(str, ranks[:8])) + (", ..." if len(ranks) > 8 else "")
        raise FlintError(
            f"rank {dist.get_rank()} is not in the mesh of {len(ranks)} ranks ({shown}) that "
            f"the program uses{at_user_line()}; PyTorch fails there too: leave out what is not "
            "for this rank (mesh.get_coordinate() is None), or make the mesh of all ranks (--mesh)"
        )
    return method(mesh, *args, **kwargs)


def _equal(equal: Any, mesh: Any, other: Any) -> bool:
    """``__eq__``, which DTensor calls per op, without comparing thousands of ranks one by one."""
    ranks = mesh._flatten_rank_map
    if mesh is other or ranks is not getattr(other, "_flatten_rank_map", None):
        return bool(equal(mesh, other))
    parts = ("_layout", "_device_type", "_mesh_dim_names", "_thread_id")
    return all(getattr(mesh, name) == getattr(other, name) for name in parts)
