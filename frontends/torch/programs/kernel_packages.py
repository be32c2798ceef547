"""Packages of GPU kernels that are not installed here, and that the program imports.

The idea: flash_attn, deep_ep, grouped_gemm and APEX are built for GPUs, so the machine of a capture
rarely has them.  Most programs that can use them can do without, and they decide by importing them;
one that cannot ends there.  Only then does the program run again, with modules of the same names,
whose functions are those of ``flash_attention.py``, ``flash_attention3.py``, ``flash_kernels.py``,
``expert_exchange.py``, ``grouped_gemm.py``, ``apex_kernels.py`` and ``hub_kernels.py``.

    provide(["flash_attn"]); from flash_attn import flash_attn_func
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Iterable, Iterator, Sequence
from importlib import metadata
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

from flint.frontends.torch.programs.package_modules import PACKAGES, Package, fill, inner_parts
from flint.launching.notes import noted


def needed(error: BaseException, given: tuple[str, ...]) -> tuple[str, ...]:
    """The packages with which a program runs again that ended; none if it ended otherwise.

    Args:
        error: that it ended with.
        given: the packages that it had.
    """
    said = [
        str(item)
        for item in _causes(error)
        if isinstance(item, ImportError) or "install" in str(item)  # their programs' own words
    ]
    for package, stand_in in PACKAGES.items():
        names = stand_in.names(package)
        if package not in given and any(name in text for text in said for name in names):
            return (*given, package, *stand_in.extensions)
    return ()


def provide(packages: Iterable[str]) -> None:
    """Let the program import these packages where they are not installed; DeepSpeed's kernels,
    which it compiles itself, are always here."""
    from flint.frontends.torch.programs import (  # imports torch
        deepspeed_kernels,
        hub_kernels,
        xformers,
    )
    from flint.frontends.torch.programs.transformer_engine import loading

    deepspeed_kernels.apply()
    hub_kernels.apply()
    loading.apply()
    xformers.apply()
    for name in packages:
        if importlib.util.find_spec(name) is None:
            sys.meta_path.append(_Finder(name, PACKAGES[name]))


def _causes(error: BaseException) -> Iterator[BaseException]:
    found: BaseException | None = error
    while found is not None:
        yield found
        found = found.__cause__ or found.__context__


class _Distribution(metadata.Distribution):
    """What pip would have noted: transformers asks it whose package it is."""

    def __init__(self, module: str, called: str, version: str) -> None:
        self._files = {
            "METADATA": f"Metadata-Version: 2.1\nName: {called}\nVersion: {version}\n",
            "top_level.txt": f"{module}\n",
        }

    def read_text(self, filename: str) -> str | None:
        return self._files.get(filename)

    def locate_file(self, path: Any) -> Any:
        return Path(path)


class _Finder(MetaPathFinder, Loader):
    def __init__(self, name: str, package: Package) -> None:
        self._name, self._package = name, package

    def find_distributions(self, context: Any) -> Iterator[metadata.Distribution]:
        """As ``importlib.metadata`` asks every finder."""
        called = self._package.distribution or self._name
        if context.name is None or context.name.replace("-", "_") == called:
            yield _Distribution(self._name, called.replace("_", "-"), self._package.version)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """As any finder."""
        name = fullname.removeprefix(self._name)
        if not fullname.startswith(self._name) or name not in self._package.modules:
            return None
        return ModuleSpec(fullname, self, is_package=True)

    def exec_module(self, module: ModuleType) -> None:
        """Fill a module."""
        part = module.__name__.removeprefix(self._name)
        if not part:
            noted[f"{self._name} is not installed: {self._package.stands}"] += 1
        fill(module, self._package, part)
        if not part:  # ``import grouped_gemm; grouped_gemm.ops``
            for inner in inner_parts(self._package):
                importlib.import_module(self._name + inner)
