"""Checkpoints: none is written, and a distributed one is restored without its values.

Tensors of the device have no values to be written, and values read from a file would be dropped
(``programs/saving.py`` writes the host's values if that is allowed).  ``torch.load`` stays
unchanged: it reads the files that the program names.  Each call is reported with its line, once.
"""

from __future__ import annotations

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


def apply() -> None:
    """Keep checkpoints out; PyTorch's distributed ones as soon as they are imported."""
    replace(torch, "save", _save)
    watch_imports({_PACKAGE: _keep_out})


def _save(*_: Any, **__: Any) -> None:
    capture().assume(f"torch.save{at_user_line()} writes nothing in a capture")


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
