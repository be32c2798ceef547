"""What a capture refuses, naming the user's line, because its record would not be what runs.

FSDP1 (``FullyShardedDataParallel``) resizes storages inside of the autograd engine in ways that
fake tensors do not follow.  How large a sparse gradient is, and who communicates how much of it,
only values decide; and PyTorch ends the process where fake tensors become sparse.  Which rank sends
first to one that receives from any, only a run decides.
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
    """Refuse FSDP1 where it is made, sparse gradients and receiving from any rank where used."""
    from torch.distributed.fsdp import FullyShardedDataParallel

    around(FullyShardedDataParallel, "__init__", _refuse_fsdp1)
    for name in ("embedding", "embedding_bag"):
        around(torch.nn.functional, name, _dense)
    for name in ("recv", "irecv"):
        around(distributed_c10d, name, _from_named_rank)
        replace(dist, name, getattr(distributed_c10d, name))


def _refuse_fsdp1(*_: Any, **__: Any) -> None:
    raise FlintError(
        f"FullyShardedDataParallel{at_user_line()} cannot be captured: use its successor, "
        "torch.distributed.fsdp.fully_shard"
    )


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
            f"{function.__name__}{at_user_line()} receives from any rank: which one sends first "
            "is known only in a run; name it: src=..."
        )
    return function(tensor, src, group, tag, group_src)
