"""Packages do not see that tensors are fake, which they would take for tracing.

The idea: packages choose other branches while a model is exported or compiled, and recognise it by
the class of its tensors (transformers' ``is_tracing``).  Here the step really runs.  Whoever asks
``torch._subclasses`` for that class gets one without instances, unless it is PyTorch or Flint.
Guards of compiled code, which ask while any code calls it, always get the same one.

    isinstance(tensor, torch._subclasses.FakeTensor)        # in a package: False
"""

from __future__ import annotations

import dis
import sys
from types import FrameType
from typing import Any, Final

import torch._subclasses
from torch._subclasses import fake_tensor

from flint.frontends.torch.user_lines import inside_torch

_NAME = "FakeTensor"
#: Instructions that read an attribute.
_READING: Final = frozenset(
    dis.opmap[name] for name in ("LOAD_ATTR", "LOAD_METHOD", "IMPORT_FROM") if name in dis.opmap
)


class FakeTensor:
    """No tensor of a program."""


def apply() -> None:
    """Hide the class where packages find it."""
    package: Any = torch._subclasses
    if _NAME in vars(package):
        delattr(package, _NAME)
        package.__getattr__ = _get


def _get(name: str) -> Any:
    if name != _NAME:
        raise AttributeError(f"module 'torch._subclasses' has no attribute {name!r}")
    return FakeTensor if _is_packages(sys._getframe(1)) else fake_tensor.FakeTensor


def _is_packages(frame: FrameType) -> bool:
    """Whether code of a package reads the attribute: not a guard, which a call or PyTorch's own
    expression evaluates."""
    code = frame.f_code
    if inside_torch(frame) or code.co_filename.startswith("<"):
        return False
    return code.co_code[frame.f_lasti] in _READING
