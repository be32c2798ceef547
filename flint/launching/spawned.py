"""Processes that a program starts anew: prepared like its own.

The idea: a fork has the program's stand-ins and limits, a process that Python starts anew
(``spawn``, ``forkserver``; Grain's workers) has nothing of it.  Its parent sends it a table with
what it needs before its task.  One item more is a call of ours, which is made when it arrives.

    watch(request, own)             # in the program's process
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from flint.host.imports import watch_imports
from flint.launching.notes import noted
from flint.launching.outside import kept_inside
from flint.launching.own import Own
from flint.launching.program import ProgramRequest
from flint.launching.stand_ins import (
    data_sets,
    files,
    flax_models,
    missing,
    prepared,
    tokenizers,
)

#: Modules that start processes anew: Python's, and a package's copy of it.
_STARTING = ("multiprocessing.spawn", "multiprocess.spawn")
_ITEM = "flint"
#: What a process has for as long as it lives.
_kept = ExitStack()


def watch(request: ProgramRequest, own: Own) -> None:
    """From now on prepare such processes, and keep what they, and copies of this one, note."""
    watch_imports({name: functools.partial(_replace, name, request, own) for name in _STARTING})
    os.register_at_fork(after_in_child=lambda: noted.keep_in(own.folder))
    own.in_copies(lambda: noted.keep_in(None))  # these are ranks


def make_up(wanted: bool, folder: Path) -> None:
    """Watch all functions that have stand-ins; see ``missing.watch``.

    Args:
        wanted: make data up.
        folder: for files of data.
    """
    for stand_ins in (
        files.STAND_INS, data_sets.STAND_INS, tokenizers.STAND_INS, flax_models.STAND_INS,
        prepared.stand_ins(folder),
    ):  # fmt: skip
        missing.watch(stand_ins, wanted)


class _Call:
    """A call that is made where its object is unpickled."""

    def __init__(self, function: Callable[..., None], *args: Any) -> None:
        self._call = function, args

    def __reduce__(self) -> tuple[Callable[..., None], tuple[Any, ...]]:
        return self._call


def _replace(name: str, request: ProgramRequest, own: Own) -> None:
    module: Any = sys.modules[name]
    plain = module.get_preparation_data

    @functools.wraps(plain)
    def described(*args: Any, **kwargs: Any) -> dict[str, Any]:
        told = request.fake_data, tuple(request.allow), own.folder, tuple(own.anew)
        call = _Call(_begin, *told)
        return {**plain(*args, **kwargs), _ITEM: call}

    module.get_preparation_data = described


def _begin(
    fake_data: bool, allow: Iterable[str], folder: Path, anew: Iterable[Callable[[], None]]
) -> None:
    """In the new process."""
    noted.keep_in(folder)
    for call in anew:
        call()
    make_up(fake_data, folder)
    data_sets.receive()
    _kept.enter_context(kept_inside(frozenset(allow)))
