"""``FullyShardedDataParallel``, the first FSDP: refused.

It resizes storages inside of the autograd engine in ways that fake tensors do not follow; what
would be recorded is not what runs.
"""

from __future__ import annotations

import sys
from typing import Any

from flint.capturing.user_frames import short_path
from flint.errors import FlintError
from flint.frontends.torch.recording.tracking import users_line


def apply() -> None:
    """Refuse it where it is made."""
    from torch.distributed.fsdp import FullyShardedDataParallel

    def refuse(*_: Any, **__: Any) -> None:
        file, line = users_line(sys._getframe(1))
        raise FlintError(
            f"{short_path(file)}:{line}: "
            "FullyShardedDataParallel cannot be captured: use its successor, "
            "torch.distributed.fsdp.fully_shard"
        )

    kind: Any = FullyShardedDataParallel
    kind.__init__ = refuse
