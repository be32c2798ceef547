"""DeviceMesh under fake tensors.

A mesh computes with a tensor of rank numbers (``nonzero``, ``tolist``); under FakeTensorMode those
are data dependent.  Its methods run with real CPU tensors instead; what programs compute from
``mesh.mesh`` is known, and meshes are made of it.  So does the placement that
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
from flint.frontends.torch.recording import routing
from flint.frontends.torch.shims.values import place

#: Every tuple of ranks that a mesh has, once.
_MAPS: dict[tuple[int, ...], tuple[int, ...]] = {}

#: Methods that touch the tensor of ranks.
_METHODS = ("__init__", "_flatten", "_unflatten", "_concatenate", "_get_all_submeshes")


def apply() -> None:
    """Let meshes compute with real tensors."""
    from torch.distributed import device_mesh
    from torch.distributed.tensor import placement_types

    for name in _METHODS:
        method = getattr(device_mesh.DeviceMesh, name, None)
        if method is not None:
            setattr(device_mesh.DeviceMesh, name, really(method))
    mesh: Any = device_mesh.DeviceMesh
    mesh.__init__ = _with_one_map(_with_real_ranks(mesh.__init__))
    mesh.mesh = property(_known_ranks(mesh.mesh.fget))
    mesh.__eq__ = _equal(mesh.__eq__)
    for name in ("get_local_rank", "get_group"):
        setattr(mesh, name, _of_members(getattr(mesh, name)))
    strided: Any = placement_types._StridedShard
    strided.local_shard_size_and_offset = really(strided.local_shard_size_and_offset)


def _with_real_ranks(init: Any) -> Any:
    """``__init__`` as ``init_device_mesh`` calls it, which counts ranks from 0 in fake tensors, and
    as programs call it, with a tensor of ranks."""

    @functools.wraps(init)
    def call(*args: Any, **kwargs: Any) -> Any:
        ranks = kwargs.get("_rank_map")
        if isinstance(ranks, FakeTensor):
            with unset_fake_temporarily(), _disable_current_modes(), torch.device("cpu"):
                kwargs["_rank_map"] = torch.arange(ranks.numel(), dtype=torch.int)
        kwargs = {key: _value_of(item) for key, item in kwargs.items()}
        return init(*map(_value_of, args), **kwargs)

    return call


def _value_of(item: Any) -> Any:
    """A known tensor's value; everything else as it is."""
    found = routing.known_value(item) if isinstance(item, FakeTensor) else None
    return item if found is None else found


def _known_ranks(ranks: Any) -> Any:
    """The property ``mesh``, of which and of whose parts the values are known."""

    @functools.wraps(ranks)
    def mesh(self: Any) -> Any:
        found = really(ranks)(self)
        routing.given(found)
        return found

    return mesh


def _with_one_map(init: Any) -> Any:
    """``__init__`` after which meshes with the same ranks share the tuple of them."""

    @functools.wraps(init)
    def call(self: Any, *args: Any, **kwargs: Any) -> None:
        init(self, *args, **kwargs)
        ranks = self._flatten_rank_map
        self._flatten_rank_map = _MAPS.setdefault(ranks, ranks)

    return call


def _of_members(method: Any) -> Any:
    """A method that on ranks outside of the mesh ends in PyTorch's "list index out of range"."""

    @functools.wraps(method)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        if self.get_coordinate() is None:
            ranks = self._flatten_rank_map
            shown = ", ".join(map(str, ranks[:8])) + (", ..." if len(ranks) > 8 else "")
            raise FlintError(
                f"rank {dist.get_rank()} is not in the mesh of {len(ranks)} ranks ({shown}) that "
                f"the program uses{place()}; PyTorch fails there too: leave out what is not for "
                "this rank (mesh.get_coordinate() is None), or make the mesh of all ranks (--mesh)"
            )
        return method(self, *args, **kwargs)

    return call


def _equal(equal: Any) -> Any:
    """``__eq__``, which DTensor calls per op, without comparing thousands of ranks one by one."""

    def call(self: Any, other: Any) -> bool:
        ranks = self._flatten_rank_map
        if self is other or ranks is not getattr(other, "_flatten_rank_map", None):
            return bool(equal(self, other))
        parts = ("_layout", "_device_type", "_mesh_dim_names", "_thread_id")
        return all(getattr(self, name) == getattr(other, name) for name in parts)

    return call


def really(function: Any) -> Any:
    """The function with real tensors on the CPU, whatever modes are on."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        with (
            unset_fake_temporarily(),
            _disable_current_modes(),
            torch._C.DisableTorchFunctionSubclass(),
            torch.device("cpu"),
        ):
            return function(*args, **kwargs)

    return call
