"""``torch.compile`` and ``torch.jit.script``: recorded as the eager code that they are made from.

Under fake tensors nothing is compiled, and which kernels a compiler would fuse is its own affair:
the ops are those of the eager program, which is told.  TorchScript runs the same ops; it reads the
source of what it is given, which functions that a capture has replaced have none of.
"""

from __future__ import annotations

import sys
from typing import Any

import torch

from flint.frontends.torch.shims.values import assumed
from flint.frontends.torch.tracking import users_line
from flint.user_frames import short_path


def apply() -> None:
    """Let compiled code be eager code."""
    package: Any = torch
    module: Any = torch.nn.Module

    def compile_(model: Any = None, **kwargs: Any) -> Any:
        if model is None:
            return lambda function: compile_(function, **kwargs)
        _tell()
        return model

    def compile_method(self: Any, *_: Any, **__: Any) -> None:
        _tell()

    package.compile = compile_
    module.compile = compile_method
    torch.jit._state.disable()  # as PYTORCH_JIT=0: decorated functions are left as they are


def _tell() -> None:
    file, line = users_line(sys._getframe(2))
    assumed[f"torch.compile at {short_path(file)}:{line}: recorded as eager code"] += 1
