"""Calls that a capture refuses, naming the user's line, as the recording would differ from a run.

The size of a sparse gradient, and how much of it each rank communicates, depend on values; and
PyTorch ends the process if fake tensors become sparse.  Which rank sends first to one that receives
from any rank is decided only in a run.
"""

from __future__ import annotations

import inspect
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d

from flint.errors import FlintError
from flint.frontends.torch.patching import around, replace
from flint.frontends.torch.user_lines import at_user_line


def apply() -> None:
    """Refuse sparse gradients and receiving from any rank."""
    for name in ("embedding", "embedding_bag"):
        around(torch.nn.functional, name, _dense)
    for name in ("recv", "irecv"):
        around(distributed_c10d, name, _from_named_rank)
        replace(dist, name, getattr(distributed_c10d, name))


def _dense(function: Any, *args: Any, **kwargs: Any) -> Any:
    position = list(inspect.signature(function).parameters).index("sparse")
    if kwargs.get("sparse") or (len(args) > position and args[position]):
        raise FlintError(
            f"{function.__name__}{at_user_line()} has sparse=True: the size of its gradient "
            "depends on values, and a captured step has none; capture with sparse=False, the dense "
            "gradient"
        )
    return function(*args, **kwargs)


def _from_named_rank(
    function: Any, tensor: Any, src: Any = None, group: Any = None, tag: int = 0,
    group_src: Any = None,
) -> Any:  # fmt: skip
    if src is None and group_src is None:
        raise FlintError(
            f"{function.__name__}{at_user_line()} receives from any rank: which one sends first is "
            "known only in a run; name the sender: src=..."
        )
    return function(tensor, src, group, tag, group_src)
