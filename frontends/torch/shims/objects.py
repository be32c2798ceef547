"""Python objects of other ranks.

``all_gather_object`` and its like pickle objects into tensors and read sizes from them.  Here the
other ranks are taken to hold what this rank holds.
"""

from __future__ import annotations

import sys
from typing import Any

import torch.distributed as dist
from torch.distributed import distributed_c10d

from flint.capturing.user_frames import short_path
from flint.frontends.torch.recording.tracking import users_line
from flint.frontends.torch.shims.values import assumed


def apply() -> None:
    """Let other ranks hold the objects of this one."""

    def assume() -> None:
        file, line = users_line(sys._getframe(2))
        assumed[
            f"Python objects are exchanged at {short_path(file)}:{line}: other ranks are assumed "
            "to hold the same objects, the messages are left out"
        ] += 1

    def all_gather_object(object_list: list[Any], obj: Any, group: Any = None) -> None:
        assume()
        object_list[:] = [obj] * len(object_list)

    def gather_object(obj: Any, object_gather_list: Any = None, *_: Any, **__: Any) -> None:
        assume()
        if object_gather_list is not None:
            object_gather_list[:] = [obj] * len(object_gather_list)

    def broadcast_object_list(object_list: list[Any], *_: Any, **__: Any) -> None:
        assume()

    def scatter_object_list(
        output: list[Any], given: list[Any] | None = None, *_: Any, **__: Any
    ) -> None:
        assume()
        output[0] = given[0] if given else None

    for function in (all_gather_object, gather_object, broadcast_object_list, scatter_object_list):
        for module in (dist, distributed_c10d):
            setattr(module, function.__name__, function)
