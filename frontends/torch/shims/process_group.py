"""The process group that is already there.

Training programs call ``init_process_group`` (with NCCL, time limits, device ids) themselves.  On a
fake cluster the group exists before they run: a second one is the same one.  Groups of other
backends are fake ones, too; barriers of gloo's that find who is missing find nobody.
"""

from __future__ import annotations

import functools
from typing import Any

import torch.distributed as dist
from torch.distributed import distributed_c10d

from flint.errors import UsageError
from flint.frontends.torch.shims.mesh import really
from flint.frontends.torch.shims.values import assumed, place


def apply() -> None:
    """Let programs make the group that is there."""
    original = dist.init_process_group

    @functools.wraps(original)
    def init_process_group(*args: Any, **kwargs: Any) -> None:
        if not dist.is_initialized():
            original(*args, **kwargs)
            return
        for word, actual in (("world_size", dist.get_world_size()), ("rank", dist.get_rank())):
            asked = kwargs.get(word, -1)
            if asked not in (-1, actual):
                raise UsageError(f"init_process_group({word}={asked}): the mesh says {actual}")

    new_group = dist.new_group

    @functools.wraps(new_group)
    def fake_group(*args: Any, **kwargs: Any) -> Any:
        kwargs.pop("backend", None)
        kwargs.pop("pg_options", None)
        kwargs.pop("device_id", None)
        return really(new_group)(*args, **kwargs)

    def monitored_barrier(*_: Any, **__: Any) -> None:
        assumed[f"monitored_barrier{place()}: a wait of the hosts, which takes no time here"] += 1

    modules: tuple[Any, ...] = (dist, distributed_c10d)
    for module in modules:
        module.monitored_barrier = monitored_barrier
        module.init_process_group = init_process_group
        module.new_group = fake_group
