"""Dynamo, imported only where something needs it, in captures that compile nothing.

PyTorch's optimizers, DDP, FSDP and process groups ask it not to trace them.  Importing it takes a
second of processor time, as long as half of PyTorch's import, and each op is slower afterwards.
So a module stands in its place that answers what they ask where nothing is traced; for anything
else Dynamo itself is imported, and takes its place (private surfaces of torch 2.12 to 2.14).
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any, Final

import torch

_NAME: Final = "torch._dynamo"
#: Its settings, which fake tensors have too, need nothing else of it.
_SETTINGS: Final = f"{_NAME}.config"
#: What a tensor comes from, by kind: each real tensor that becomes a fake one is given a source.
_SOURCES: Final = f"{_NAME}.source"
_KINDS: Final = ("AttrSource", "ConstantSource", "RandomValueSource")


def apply() -> None:
    """Put the module in its place, unless Dynamo is imported already."""
    spec = PathFinder.find_spec(_NAME, torch.__path__)
    if _NAME not in sys.modules and spec is not None:
        sys.modules[_NAME] = vars(torch)["_dynamo"] = _standing(spec)
        sys.modules[_SOURCES] = vars(torch)["_dynamo"].source
        sys.meta_path.insert(0, _Parts())


class _Standing(ModuleType):
    """Stands for Dynamo or a part of it, until something else of it is asked for."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # every module is asked for these
            raise AttributeError(name)
        if f"{self.__name__}.{name}" == _SETTINGS:
            return importlib.import_module(_SETTINGS)
        _imported()
        return getattr(sys.modules[self.__name__], name)


def _standing(spec: ModuleSpec) -> ModuleType:
    standing = _Standing(_NAME)
    found: Any = standing
    found.__file__ = spec.origin
    found.__path__ = [*(spec.submodule_search_locations or ())]
    for name in ("disable", "allow_in_graph", "disallow_in_graph"):
        setattr(found, name, _unchanged)
    found.graph_break = _nothing
    found.utils = _Standing(f"{_NAME}.utils")
    # The default: who wants another mode has imported more of Dynamo.
    found.utils.get_optimize_ddp_mode = lambda: "ddp_optimizer"
    found.trace_rules = _Standing(f"{_NAME}.trace_rules")
    found.trace_rules.clear_lru_cache = _nothing
    found.source = _Standing(_SOURCES)
    for name in _KINDS:
        setattr(found.source, name, type(name, (_Source,), {}))
    return standing


def _unchanged(fn: Callable[..., Any] | None = None, *_: Any, **__: Any) -> Any:
    """A function, or a decorator, that Dynamo would mark."""
    return _unchanged if fn is None else fn


def _nothing(*_: Any, **__: Any) -> None:
    """Nothing is traced that could be broken off or forgotten."""


class _Source:
    """Stands for a source, which nothing asks unless sizes are symbols."""

    def __init__(self, *given: Any) -> None:
        self._given = given

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        _imported()
        kind: Any = getattr(sys.modules[_SOURCES], type(self).__name__)
        return getattr(kind(*self._given), name)


class _Parts(MetaPathFinder, Loader):
    """Imports Dynamo before a part of it: a package's parts come after the package."""

    _spec: ModuleSpec | None = None

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """That of a part that the import of Dynamo has imported; None for others."""
        stands = isinstance(sys.modules.get(_NAME), _Standing)
        if not stands or not fullname.startswith(f"{_NAME}.") or fullname == _SETTINGS:
            return None
        _imported()
        part: Any = sys.modules.get(fullname)
        if part is None:
            return None
        # Python would execute a module with a specification once more.
        self._spec, part.__spec__ = part.__spec__, None
        return ModuleSpec(fullname, self)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """The part."""
        return sys.modules[spec.name]

    def exec_module(self, module: ModuleType) -> None:
        """It has been executed."""
        module.__spec__ = self._spec


def _imported() -> None:
    """Import Dynamo in the place of the module that stands for it."""
    if isinstance(sys.modules.get(_NAME), _Standing):
        for name in (_NAME, _SOURCES):
            sys.modules.pop(name, None)
        del vars(torch)["_dynamo"]
        found: Any = importlib.import_module(_NAME)
        found.config = importlib.import_module(_SETTINGS)
