"""Sparse gradients of embeddings.

How many entries such a gradient has, and who communicates how much of it, only values decide; and
PyTorch ends the process where fake tensors become sparse.  It is refused by line.
"""

from __future__ import annotations

import functools
import inspect
from typing import Any

import torch

from flint.errors import FlintError
from flint.frontends.torch.shims.values import place


def apply() -> None:
    """Refuse embeddings with sparse gradients, when one is looked up."""
    functions: Any = torch.nn.functional
    for name in ("embedding", "embedding_bag"):
        setattr(functions, name, _dense(getattr(functions, name)))


def _dense(function: Any) -> Any:
    at = list(inspect.signature(function).parameters).index("sparse")

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if kwargs.get("sparse") or (len(args) > at and args[at]):
            raise FlintError(
                f"{function.__name__}{place()} has sparse=True: the size of its gradient depends "
                "on values, and a captured step has none; capture with sparse=False, the dense "
                "gradient"
            )
        return function(*args, **kwargs)

    return call
