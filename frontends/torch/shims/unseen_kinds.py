"""Packages do not see that tensors are fake, which they would take for tracing.

The idea: packages choose other branches while a model is exported or compiled, and recognise it by
the class of its tensors (transformers' ``is_tracing``).  Here the step really runs.  Whoever asks
``torch._subclasses`` for that class gets one without instances, unless it is PyTorch or Flint.

    isinstance(tensor, torch._subclasses.FakeTensor)        # in a package: False
"""

from __future__ import annotations

import sys
from typing import Any

import torch._subclasses
from torch._subclasses import fake_tensor

from flint.frontends.torch.user_lines import inside_torch

_NAME = "FakeTensor"


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
    return fake_tensor.FakeTensor if inside_torch(sys._getframe(1)) else FakeTensor
