"""Checkpoints: none is written, and a distributed one is restored without its values.

Tensors of the device have no values to be written, and values read from a file would be dropped
(``programs/saving.py`` writes the host's values if that is allowed).  ``torch.load`` reads the
files that the program names; of one that the program has saved itself, it gives what was saved,
also after the program has moved, linked or copied the file or its folder.  Such a file is there
when the program asks (it may wait for its checkpoint).  Each call is reported with its line, once.
"""

from __future__ import annotations

import builtins
import copy
import io
import os
import shutil
import sys
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import torch
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from flint.errors import FlintError
from flint.frontends.torch.context import capture
from flint.frontends.torch.patching import around, replace
from flint.frontends.torch.user_lines import at_user_line
from flint.host.imports import watch_imports

_PACKAGE = "torch.distributed.checkpoint"
_SAFETENSORS = "safetensors.torch"
#: The file of a distributed checkpoint that is written last.
_DESCRIPTION = ".metadata"

#: What a program has saved without writing it, by its path, a buffer with the buffer's id, or what
#: is written into a buffer instead.
_saved: dict[object, Any] = {}
_NOTE = b"flint run writes no parameters and no device tensors, which have no values: "


def apply() -> None:
    """Keep checkpoints out; PyTorch's distributed ones as soon as they are imported."""
    replace(torch, "save", _save)
    around(torch, "load", _load)
    for owner, names, function in (
        (os, ("rename", "replace"), _moved),
        (os, ("link", "symlink"), _shared),
        (shutil, ("copyfile", "copy", "copy2"), _shared),
        (os, ("remove", "unlink"), _removed),
        (shutil, ("rmtree",), _removed_folder),
        (os.path, ("exists", "isfile"), _is_there),
        (Path, ("exists", "is_file"), _is_there),
        (builtins, ("open",), _opened),
        (io, ("open",), _opened),
    ):
        for name in names:
            around(owner, name, function)
    watch_imports({_PACKAGE: _keep_out, _SAFETENSORS: _keep_safetensors_out})


def _save(obj: Any, f: Any, *_: Any, **__: Any) -> None:
    keep(obj, f)
    capture().notice(f"torch.save{at_user_line()} writes nothing in a capture")


def _keep_safetensors_out() -> None:
    """Its functions read the memory of tensors, where these have none."""
    module = sys.modules[_SAFETENSORS]

    def save_file(tensors: Any, filename: Any, metadata: Any = None) -> None:
        keep(tensors, filename)
        capture().notice(f"safetensors' save_file{at_user_line()} writes nothing in a capture")

    def save(tensors: Any, metadata: Any = None) -> bytes:
        capture().notice(f"safetensors' save{at_user_line()} gives a note only in a capture")
        return note(tensors)

    def load_file(load: Any, filename: Any, *args: Any, **kwargs: Any) -> Any:
        if _key(filename) not in _saved:
            return load(filename, *args, **kwargs)
        capture().assume(f"load_file{at_user_line()} gives what the program has saved")
        return _copied(_saved[_key(filename)][1])

    replace(module, "save_file", save_file)
    replace(module, "save", save)
    around(module, "load_file", load_file)


def keep(item: Any, file: Any) -> None:
    """Remember what a file that is not written would contain."""
    _saved[_key(file)] = file, _copied(item)


def note(item: Any) -> bytes:
    """What stands for an item that has no values, where a program writes a buffer itself."""
    text = _NOTE + f"{os.getpid()}.{len(_saved)}\n".encode()
    _saved[text] = None, _copied(item)
    return text


def forget(file: Any) -> None:
    """The file is written."""
    _saved.pop(_key(file), None)


def _load(load: Any, f: Any, map_location: Any = None, *args: Any, **kwargs: Any) -> Any:
    key = _key(f)
    if key not in _saved:
        key = _noted(f)
        if not key:
            return load(f, map_location, *args, **kwargs)
        if key not in _saved:
            raise FlintError(
                f"torch.load{at_user_line()} reads a file of an earlier capture, or of another "
                f"rank's, which has no values ({_key(f)}): remove it"
            )
    capture().assume(f"torch.load{at_user_line()} gives what the program has saved")
    where = map_location if isinstance(map_location, str | torch.device) else None
    return _copied(_saved[key][1], where)


def has_saved(file: Any) -> bool:
    """Whether a file is one that the program has saved, and that has not been written."""
    return _key(file) in _saved or bool(_noted(file))


def _noted(file: Any) -> bytes:
    """The note that a file is, instead of what the program has saved; b"" if it is none."""
    most = len(_NOTE) + 64
    try:
        if isinstance(file, str | os.PathLike):
            with open(file, "rb") as opened:
                text = opened.read(most)
        else:
            start = file.tell()
            text = file.read(most)
            file.seek(start)
    except (OSError, AttributeError, ValueError):
        return b""
    return text if text.startswith(_NOTE) else b""


def _moved(move: Any, source: Any, target: Any, *args: Any, **kwargs: Any) -> Any:
    if not _is_unwritten(source):
        moved = move(source, target, *args, **kwargs)
        for inside in _inside(source):
            _saved[f"{_key(target)}{inside.removeprefix(str(_key(source)))}"] = _saved.pop(inside)
        return moved
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


def _removed_folder(remove: Any, path: Any, *args: Any, **kwargs: Any) -> None:
    remove(path, *args, **kwargs)
    for inside in _inside(path):
        del _saved[inside]


def _inside(folder: Any) -> list[str]:
    """The paths in a folder that were saved and not written."""
    start = f"{_key(folder)}{os.sep}"
    return [path for path in _saved if isinstance(path, str) and path.startswith(start)]


def _is_there(ask: Any, path: Any, *args: Any, **kwargs: Any) -> Any:
    return ask(path, *args, **kwargs) or _is_unwritten(path)


class _Unwritten(io.BytesIO):
    """Such a file, opened to be loaded: nothing, under the file's name."""

    name = ""


def _opened(function: Any, file: Any, mode: Any = "r", *args: Any, **kwargs: Any) -> Any:
    if mode != "rb" or not _is_unwritten(file):
        return function(file, mode, *args, **kwargs)
    opened = _Unwritten()
    opened.name = os.fspath(file)
    return opened


def _is_unwritten(path: Any) -> bool:
    """Whether a path is that of a file that the program has saved, and that is not there."""
    named = isinstance(path, str | os.PathLike)
    return named and _key(path) in _saved and not os.path.lexists(path)


def _key(file: Any) -> object:
    is_path = isinstance(file, str | os.PathLike)
    name = file if is_path else getattr(file, "name", file)  # a path's name is only its last part
    return os.path.abspath(name) if isinstance(name, str | os.PathLike) else id(file)


def _copied(item: Any, where: str | torch.device | None = None) -> Any:
    """A copy of dicts and lists; what is in them is the same, tensors on a stated device."""
    if isinstance(item, dict):
        made = copy.copy(item)
        made.update({name: _copied(value, where) for name, value in item.items()})
        return made
    if type(item) in (list, tuple):
        return type(item)(_copied(part, where) for part in item)
    if where is None or is_traceable_wrapper_subclass(item) or not isinstance(item, torch.Tensor):
        return item
    moved = item.detach().to(where)
    if moved.device == item.device:
        return item
    if isinstance(item, torch.nn.Parameter):
        return torch.nn.Parameter(moved, item.requires_grad)
    return moved.requires_grad_(item.requires_grad)


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


def _not_saved(*args: Any, **kwargs: Any) -> Any:
    """Nothing is saved: the description of an empty checkpoint."""
    from torch.distributed.checkpoint.metadata import Metadata

    place = _place(args[1:], kwargs, "storage_writer")
    if place is not None:
        keep(None, Path(place) / _DESCRIPTION)
    capture().notice(f"a distributed checkpoint{at_user_line()} is not written in a capture")
    return Metadata(state_dict_metadata={})


def _not_saved_later(*args: Any, async_stager: Any = None, **kwargs: Any) -> Any:
    """The same, already done, in the form that fits the program's stager."""
    from torch.distributed.checkpoint.state_dict_saver import AsyncSaveResponse

    saved: Future[Any] = Future()
    saved.set_result(_not_saved(*args, **kwargs))
    staging = getattr(async_stager, "_config", None)
    if not getattr(staging, "use_async_staging", False):
        return saved
    staged: Future[None] = Future()
    staged.set_result(None)
    return AsyncSaveResponse(staging_completion=staged, upload_completion=saved)


def _loaded(load: Any, state_dict: Any, *args: Any, **kwargs: Any) -> None:
    """The state stays unchanged if there is a checkpoint; otherwise PyTorch reports that."""
    place = _place(args, kwargs, "storage_reader")
    if place is None or not (Path(place).exists() or _is_unwritten(Path(place) / _DESCRIPTION)):
        load(state_dict, *args, **kwargs)
        return
    capture().assume(f"a distributed checkpoint{at_user_line()} is restored without its values")


def _place(args: tuple[Any, ...], kwargs: dict[str, Any], storage: str) -> Any:
    """Where a distributed checkpoint is, if that is a path."""
    named = kwargs.get("checkpoint_id")
    place = named or getattr(args[0] if args else kwargs.get(storage), "path", None)
    return place if isinstance(place, str | os.PathLike) else None
