"""Checkpoints: none is written, and a distributed one is restored without its values.

Tensors of the device have no values to be written, and values read from a file would be dropped
(``programs/saving.py`` writes the host's values if that is allowed).  ``torch.load`` reads the
files that the program names; of one that the program has saved itself, it gives what was saved,
also after the program has moved, linked or copied the file.  Each call is reported with its line,
once.
"""

from __future__ import annotations

import copy
import os
import shutil
import sys
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import torch

from flint.frontends.torch.context import capture
from flint.frontends.torch.patching import around, replace
from flint.frontends.torch.user_lines import at_user_line
from flint.host.imports import watch_imports

_PACKAGE = "torch.distributed.checkpoint"

#: What a program has saved without writing it, by its path, or a buffer with the buffer's id.
_saved: dict[object, Any] = {}


def apply() -> None:
    """Keep checkpoints out; PyTorch's distributed ones as soon as they are imported."""
    replace(torch, "save", _save)
    around(torch, "load", _load)
    for owner, names, function in (
        (os, ("rename", "replace"), _moved),
        (os, ("link", "symlink"), _shared),
        (shutil, ("copyfile", "copy", "copy2"), _shared),
        (os, ("remove", "unlink"), _removed),
    ):
        for name in names:
            around(owner, name, function)
    watch_imports({_PACKAGE: _keep_out})


def _save(obj: Any, f: Any, *_: Any, **__: Any) -> None:
    keep(obj, f)
    capture().assume(f"torch.save{at_user_line()} writes nothing in a capture")


def keep(item: Any, file: Any) -> None:
    """Remember what a file that is not written would contain."""
    _saved[_key(file)] = file, _copied(item)


def forget(file: Any) -> None:
    """The file is written."""
    _saved.pop(_key(file), None)


def _load(load: Any, f: Any, *args: Any, **kwargs: Any) -> Any:
    if _key(f) not in _saved:
        return load(f, *args, **kwargs)
    capture().assume(f"torch.load{at_user_line()} gives what the program has saved")
    return _copied(_saved[_key(f)][1])


def _moved(move: Any, source: Any, target: Any, *args: Any, **kwargs: Any) -> Any:
    if not _is_unwritten(source):
        return move(source, target, *args, **kwargs)
    _saved[_key(target)] = _saved.pop(_key(source))
    return None


def _shared(copied: Any, source: Any, target: Any, *args: Any, **kwargs: Any) -> Any:
    if not _is_unwritten(source):
        return copied(source, target, *args, **kwargs)
    if os.path.isdir(target):
        target = os.path.join(target, os.path.basename(source))
    _saved[_key(target)] = _saved[_key(source)]
    return target


def _removed(remove: Any, path: Any, *args: Any, **kwargs: Any) -> None:
    if _is_unwritten(path):
        del _saved[_key(path)]
    else:
        remove(path, *args, **kwargs)


def _is_unwritten(path: Any) -> bool:
    """Whether a path is that of a file that the program has saved, and that is not there."""
    named = isinstance(path, str | os.PathLike)
    return named and _key(path) in _saved and not os.path.lexists(path)


def _key(file: Any) -> object:
    name = getattr(file, "name", file)
    return os.path.abspath(name) if isinstance(name, str | os.PathLike) else id(file)


def _copied(item: Any) -> Any:
    """A copy of dicts and lists; what is in them is the same."""
    if isinstance(item, dict):
        made = copy.copy(item)
        made.update({name: _copied(value) for name, value in item.items()})
        return made
    return [_copied(part) for part in item] if type(item) is list else item


def _keep_out() -> None:
    package: Any = sys.modules[_PACKAGE]
    saver, loader = package.state_dict_saver, package.state_dict_loader
    for name, function in (
        ("save", _not_saved), ("save_state_dict", _not_saved), ("async_save", _not_saved_later),
    ):  # fmt: skip
        replace(package, name, function)
        replace(saver, name, function)
    for name in ("load", "load_state_dict"):
        around(package, name, _loaded)
        around(loader, name, _loaded)


def _not_saved(*_: Any, **__: Any) -> Any:
    """Nothing is saved: the description of an empty checkpoint."""
    from torch.distributed.checkpoint.metadata import Metadata

    capture().assume(f"a distributed checkpoint{at_user_line()} is not written in a capture")
    return Metadata(state_dict_metadata={})


def _not_saved_later(*_: Any, async_stager: Any = None, **__: Any) -> Any:
    """The same, already done, in the form that fits the program's stager."""
    from torch.distributed.checkpoint.state_dict_saver import AsyncSaveResponse

    saved: Future[Any] = Future()
    saved.set_result(_not_saved())
    staging = getattr(async_stager, "_config", None)
    if not getattr(staging, "use_async_staging", False):
        return saved
    staged: Future[None] = Future()
    staged.set_result(None)
    return AsyncSaveResponse(staging_completion=staged, upload_completion=saved)


def _loaded(load: Any, state_dict: Any, *args: Any, **kwargs: Any) -> None:
    """The state stays unchanged if there is a checkpoint; otherwise PyTorch reports that."""
    reader = args[0] if args else kwargs.get("storage_reader")
    place = kwargs.get("checkpoint_id") or getattr(reader, "path", None)
    if place is None or not Path(place).exists():
        load(state_dict, *args, **kwargs)
        return
    capture().assume(f"a distributed checkpoint{at_user_line()} is restored without its values")
