"""The process group that is already there.

Training programs call ``init_process_group`` (with NCCL, time limits, device ids) themselves.  On a
fake cluster the group exists before they run: a second one is the same one.  Groups of other
backends are fake ones, too; barriers of gloo's that find who is missing find nobody.

Which backend a group has decides what is communicated: the gradient of a gather is a reduce-scatter
with NCCL and an all-to-all without.  Programs, and PyTorch's functions with gradients, are told the
backend that was asked for, by default NCCL.
"""

from __future__ import annotations

import functools
import sys
from typing import Any

import torch.distributed as dist
from torch.distributed import distributed_c10d

from flint.errors import UsageError
from flint.frontends.torch.shims.mesh import really
from flint.frontends.torch.shims.own_rank import replace_everywhere
from flint.frontends.torch.shims.values import assumed, place

#: Modules of PyTorch's that communicate otherwise with another backend.
_BY_BACKEND = ("torch.distributed.nn.", "torch.distributed.algorithms.")

#: Name of a process group -> the backend that was asked for; "" is the default group's.
_asked: dict[str, str] = {}


def _ask(group: str, backend: Any) -> None:
    """Note which backend a program wants: a name, or one per kind of device."""
    parts = [part.rpartition(":") for part in str(backend or "").lower().split(",")]
    by_device = {device.strip(): name.strip() for device, _, name in parts}
    name = by_device.get("cuda") or by_device.get("") or next(iter(by_device.values()))
    if name and name != "fake":
        _asked[group] = name


def _backend(original: Any) -> Any:
    @functools.wraps(original)
    def get_backend(group: Any = None) -> Any:
        found = original(group)
        asker = str(sys._getframe(1).f_globals.get("__name__", ""))
        if found != "fake" or (asker.startswith("torch.") and not asker.startswith(_BY_BACKEND)):
            return found
        default = _asked.get("", "nccl")
        name = default if group is None else _asked.get(str(group.group_name), default)
        return dist.Backend(name)

    return get_backend


def apply() -> None:
    """Let programs make the group that is there."""
    original = dist.init_process_group

    @functools.wraps(original)
    def init_process_group(*args: Any, **kwargs: Any) -> None:
        _ask("", kwargs.get("backend", args[0] if args else None))
        if not dist.is_initialized():
            original(*args, **kwargs)
            return
        for word, actual in (("world_size", dist.get_world_size()), ("rank", dist.get_rank())):
            asked = kwargs.get(word, -1)
            if asked not in (-1, actual):
                raise UsageError(f"init_process_group({word}={asked}): the mesh has {actual}")

    new_group = dist.new_group

    @functools.wraps(new_group)
    def fake_group(*args: Any, **kwargs: Any) -> Any:
        backend = kwargs.pop("backend", None)
        kwargs.pop("pg_options", None)
        kwargs.pop("device_id", None)
        made = really(new_group)(*args, **kwargs)
        if isinstance(made, dist.ProcessGroup):
            _ask(str(made.group_name), backend)
        return made

    def monitored_barrier(*_: Any, **__: Any) -> None:
        assumed[f"monitored_barrier{place()}: a wait of the hosts, which takes no time here"] += 1

    replace_everywhere(dist.get_backend, _backend(dist.get_backend))
    modules: tuple[Any, ...] = (dist, distributed_c10d)
    for module in modules:
        module.monitored_barrier = monitored_barrier
        module.init_process_group = init_process_group
        module.new_group = fake_group
