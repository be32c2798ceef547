"""``torch.compile`` and ``torch.jit.script``: recorded as the eager code that they are made from.

Under fake tensors nothing is compiled, and which kernels a compiler would fuse is its own affair:
the ops are those of the eager program, which is told.  TorchScript runs the same ops; it reads the
source of what it is given, which functions that a capture has replaced have none of.  Forward-mode
derivatives (``torch.func.jvp``) need decompositions that PyTorch scripts when it first uses them:
those are its own.
"""

from __future__ import annotations

import functools
import sys
from typing import Any

import torch
from torch.autograd import forward_ad

from flint.capturing.user_frames import short_path
from flint.frontends.torch.recording.tracking import users_line
from flint.frontends.torch.shims.mesh import really
from flint.frontends.torch.shims.values import assumed


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
    derivatives: Any = forward_ad
    derivatives._maybe_load_decompositions = _scripting(derivatives._maybe_load_decompositions)


def _scripting(load: Any) -> Any:
    """Within it, functions are scripted."""

    @functools.wraps(load)
    def call() -> None:
        if "torch._decomp.decompositions_for_jvp" in sys.modules:
            return
        torch.jit._state.enable()
        try:
            really(load)()
        finally:
            torch.jit._state.disable()

    return call


def _tell() -> None:
    file, line = users_line(sys._getframe(2))
    assumed[f"torch.compile at {short_path(file)}:{line}: recorded as eager code"] += 1
