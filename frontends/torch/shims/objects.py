"""Python objects of other ranks.

``all_gather_object`` and its like pickle objects into tensors and read sizes from them.  Here the
other ranks are taken to hold what this rank holds.
"""

from __future__ import annotations

from typing import Any

import torch.distributed as dist
from torch.distributed import distributed_c10d

from flint.frontends.torch.context import capture
from flint.frontends.torch.patching import replace
from flint.frontends.torch.user_lines import at_user_line


def apply() -> None:
    """Let other ranks hold the objects of this one."""
    for function in (all_gather_object, gather_object, broadcast_object_list, scatter_object_list):
        for module in (dist, distributed_c10d):
            replace(module, function.__name__, function)


def all_gather_object(object_list: list[Any], obj: Any, group: Any = None) -> None:
    """As ``torch.distributed.all_gather_object``."""
    _assume()
    object_list[:] = [obj] * len(object_list)


def gather_object(obj: Any, object_gather_list: Any = None, *_: Any, **__: Any) -> None:
    """As ``torch.distributed.gather_object``."""
    _assume()
    if object_gather_list is not None:
        object_gather_list[:] = [obj] * len(object_gather_list)


def broadcast_object_list(object_list: list[Any], *_: Any, **__: Any) -> None:
    """As ``torch.distributed.broadcast_object_list``."""
    _assume()


def scatter_object_list(
    output: list[Any], given: list[Any] | None = None, *_: Any, **__: Any
) -> None:
    """As ``torch.distributed.scatter_object_list``."""
    _assume()
    output[0] = given[0] if given else None


def _assume() -> None:
    capture().assume(
        f"Python objects are exchanged{at_user_line()}: other ranks are assumed to hold "
        "the same objects, the messages are left out"
    )
