"""``torch.load`` of the host's data: data sets that are prepared once, states of data loaders.

The idea: tensors that a file has from the CPU, and that stay there, are data like any other on the
host, and their values decide sizes.  A file with tensors of a device, a large one, and one that is
loaded onto a device give tensors without values, as is all that the device has.

    graph = torch.load("processed.pt")              # edges that the host can count
"""

from __future__ import annotations

import os
from typing import Any

import torch
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.utils._python_dispatch import _disable_current_modes

from flint.frontends.torch.patching import around

#: Files of more bytes are large: models, not data that a program reads at once.
_MOST = 1 << 28


def apply() -> None:
    """Let programs load data that has values."""
    around(torch, "load", _load)


def _load(load: Any, f: Any, map_location: Any = None, *args: Any, **kwargs: Any) -> Any:
    """What a file has; without values if it is not the host's."""
    as_always = (f, map_location, *args)
    if map_location is not None and not _is_cpu(map_location):
        return load(*as_always, **kwargs)
    start = _start(f)
    if start is None:
        return load(*as_always, **kwargs)
    places: set[str] = set()

    def stays(storage: Any, place: str) -> Any:
        places.add(place)
        return storage

    try:
        with unset_fake_temporarily(), _disable_current_modes():
            found = load(f, stays, *args, **kwargs)
    except Exception:  # it needs the device, or is no such file: PyTorch says which
        places.add("")
    if not places or places == {"cpu"} or (map_location is not None and "" not in places):
        return found
    if start:
        f.seek(start[0])
    return load(*as_always, **kwargs)


def _is_cpu(place: Any) -> bool:
    return isinstance(place, str | torch.device) and torch.device(place).type == "cpu"


def _start(file: Any) -> tuple[int, ...] | None:
    """Where an open file is read from, () for a path; None if it is large or only read onwards."""
    try:
        if isinstance(file, str | os.PathLike):
            return () if os.path.getsize(file) <= _MOST else None
        start: int = file.tell()
        size = file.seek(0, os.SEEK_END) - start
        file.seek(start)
    except (OSError, AttributeError, ValueError):
        return None
    return (start,) if size <= _MOST else None
