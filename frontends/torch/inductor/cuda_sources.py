"""CUDA kernels that a program compiles from a text while it runs, launched on an absent device.

The idea: as of a Triton kernel (``launched``), a launch is an op of the kernel's name.  Nothing is
compiled: its parameters say which tensors it may write, all pointers that are not const.

    scale = torch.cuda._compile_kernel(text, "scale")  # void scale(const float* x, float* y, int n)
    scale((n // 256, 1, 1), (256, 1, 1), (x, y, n))    # inductor.scale: reads x, writes y
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import torch

from flint.frontends.torch.inductor.launched import record
from flint.frontends.torch.patching import replace

#: Private in PyTorch 2.13; the other is its public name.
_NAMES = ("_compile_kernel", "compile_kernel")
_COMMENTS = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)


def apply() -> None:
    """Let programs compile kernels."""
    for name in _NAMES:
        if hasattr(torch.cuda, name):
            replace(torch.cuda, name, CudaKernel)


class CudaKernel:
    """A kernel; arguments as of PyTorch's function."""

    def __init__(self, kernel_source: str, kernel_name: str, *_: Any, **__: Any) -> None:
        self._name = kernel_name
        self._writes = written(kernel_source, kernel_name)

    def __call__(
        self, grid: Any = (), block: Any = (), args: Sequence[Any] = (), *_: Any, **__: Any
    ) -> None:
        """Launch it."""
        given = list(args or ())
        tensors = [(at, item) for at, item in enumerate(given) if isinstance(item, torch.Tensor)]
        writes = self._writes
        record(
            "CUDA", self._name, [item for _, item in tensors],
            [at >= len(writes) or writes[at] for at, _ in tensors],
        )  # fmt: skip

    def set_shared_memory_config(self, shared_mem_bytes: int) -> None:
        """Nothing is launched."""


def written(source: str, name: str) -> list[bool]:
    """Which parameters of a kernel it may write through; none are known if they are not found."""
    plain = name.partition("<")[0].rpartition("::")[2]
    found = re.search(rf"\b{re.escape(plain)}\s*\(([^()]*)\)\s*{{", _COMMENTS.sub(" ", source))
    if found is None:
        return []
    return [
        "*" in parameter and not re.search(r"\bconst\b", parameter.rpartition("*")[0])
        for parameter in found[1].split(",")
    ]
