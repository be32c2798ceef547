"""Receiving from whoever sends first.

Which rank that is only a run decides; a capture must be told.
"""

from __future__ import annotations

import functools
from typing import Any

import torch.distributed as dist
from torch.distributed import distributed_c10d

from flint.errors import FlintError
from flint.frontends.torch.shims.values import place


def apply() -> None:
    """Refuse to receive from any rank."""
    for name in ("recv", "irecv"):
        function = _named(getattr(distributed_c10d, name))
        for module in (dist, distributed_c10d):
            setattr(module, name, function)


def _named(function: Any) -> Any:
    @functools.wraps(function)
    def call(
        tensor: Any, src: Any = None, group: Any = None, tag: int = 0, group_src: Any = None
    ) -> Any:
        if src is None and group_src is None:
            raise FlintError(
                f"{function.__name__}{place()} receives from any rank: which one sends first is "
                "known only in a run; name it: src=..."
            )
        return function(tensor, src, group, tag, group_src)

    return call
