"""Kernels of the Hugging Face Hub: ``kernels.get_kernel`` downloads what was built for a GPU.

The idea: programs get FlashAttention from there more often than they build it.  Its functions are
those that stand for the package itself, whether ``kernels`` is installed or not; any other kernel
is what the installed package finds on this machine.

    get_kernel("kernels-community/flash-attn3", version=1).flash_attn_func(q, k, v, causal=True)
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable
from types import ModuleType
from typing import Any

from flint.errors import FlintError
from flint.frontends.torch.programs.package_modules import module_of
from flint.frontends.torch.user_lines import at_user_line
from flint.host.imports import watch_imports
from flint.launching.notes import noted

#: What repositories of FlashAttention are called, by whoever has built them; and their release.
_FLASH_ATTENTION = re.compile(r"flash[-_]att(?:n|ention)[-_]?([23]?)$")
_PACKAGES = {"": "flash_attn", "2": "flash_attn", "3": "flash_attn_interface"}


def apply() -> None:
    """Let ``kernels``, where it is installed, find them, from its import on."""
    watch_imports({"kernels": _place})


def _place() -> None:
    package: Any = importlib.import_module("kernels")
    if package.get_kernel is not get_kernel:
        package.get_kernel = _found_first(package.get_kernel)


def get_kernel(repo_id: str, *_: Any, **__: Any) -> ModuleType:
    """The module of a repository.

    Raises:
        FlintError: it is not FlashAttention.
    """
    kernel = _known(repo_id)
    if kernel is None:
        raise FlintError(
            f"the kernel {repo_id!r}{at_user_line()} has no stand-in; for those that the hub has "
            "for CPUs, too: pip install kernels"
        )
    return kernel


def _found_first(load: Callable[..., ModuleType]) -> Callable[..., ModuleType]:
    def get_kernel(repo_id: str, *args: Any, **kwargs: Any) -> ModuleType:
        return _known(repo_id) or load(repo_id, *args, **kwargs)

    return get_kernel


def _known(repository: str) -> ModuleType | None:
    name = repository.rpartition("/")[2].lower()
    matched = _FLASH_ATTENTION.search(name)
    if matched is None:
        return None
    noted[f"the hub's kernel {repository} is recorded as PyTorch's own attention"] += 1
    kernel = module_of(re.sub(r"\W", "_", name), _PACKAGES[matched[1]])
    # The repository has the package's module beside its functions.
    if not hasattr(kernel, "flash_attn_interface"):
        kernel.__dict__["flash_attn_interface"] = kernel
    return kernel
