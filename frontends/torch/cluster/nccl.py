"""Settings of NCCL's process group, which PyTorch built without CUDA does not have.

The idea: programs make them, set time limits, priorities and numbers of channels, and hand them to
``new_group`` or to a mesh.  None of them changes what is communicated, so they are kept as given.

    options = dist.ProcessGroupNCCL.Options(is_high_priority_stream=True)
"""

from __future__ import annotations

from datetime import timedelta
from types import SimpleNamespace
from typing import Any

from torch._C import _distributed_c10d

#: As ``kProcessGroupNCCLDefaultTimeout``.
_LIMIT = timedelta(minutes=10)
_Settings: Any = _distributed_c10d.Backend.Options


class Options(_Settings):  # type: ignore[misc]  # the base is untyped
    """``ProcessGroupNCCL.Options``: any of its attributes can be set and read."""

    def __init__(self, is_high_priority_stream: bool = False) -> None:
        super().__init__("nccl", _LIMIT)
        self.is_high_priority_stream = is_high_priority_stream
        self.config = SimpleNamespace()
        self.split_from: Any = None
        self.split_color = 0


class ProcessGroupNCCL:
    """A kind of process group of which there is none: those of a capture are fake."""

    Options = Options
    NCCLConfig = SimpleNamespace
