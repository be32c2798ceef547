"""How many GPUs a script's ``python -c`` sees: scripts ask PyTorch for the number of processes.

The idea: such a text really runs, where there are no GPUs.  When it imports ``torch.cuda``, two
functions of it answer for the cluster.  This file needs only Python: it runs in the script's.

    watch(8)
    torch.cuda.device_count()       # 8
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any

_MODULE = "torch.cuda"


def watch(count: int) -> None:
    """From now on, PyTorch's answers are those of a host with that many GPUs."""
    sys.meta_path.insert(0, _Finder(count))


def hook(folder: Path, count: int) -> None:
    """Write what makes every Python with that folder on its path call ``watch``."""
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(
        "from importlib import util\n"
        f"described = util.spec_from_file_location('seen_gpus', {__file__!r})\n"
        "module = util.module_from_spec(described)\n"
        "described.loader.exec_module(module)\n"
        f"module.watch({count})\n"
    )


class _Finder(MetaPathFinder):
    def __init__(self, count: int) -> None:
        self._count = count

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != _MODULE:
            return None
        found = PathFinder.find_spec(name, path, target)
        if found is not None and found.loader is not None:
            found.loader = _Answering(found.loader, self._count)
        return found


class _Answering(Loader):
    def __init__(self, real: Any, count: int) -> None:
        self._real, self._count = real, count

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        made: ModuleType | None = self._real.create_module(spec)
        return made

    def exec_module(self, module: ModuleType) -> None:
        self._real.exec_module(module)
        count = self._count
        vars(module).update(device_count=lambda: count, is_available=lambda: True)
