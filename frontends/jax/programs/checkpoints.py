"""Checkpoints of Orbax, flax and JAX itself: not written, and restored as arrays without values.

The idea: a checkpoint of a cluster's state is neither available for reading nor worth writing.  A
program restores the types and shardings that it requests.  If there is no checkpoint, the library
itself reports that, unless data is made up.

    keep_out(watcher, allowed=False, made_up=False)    # from then on, whenever orbax is imported
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import jax
import numpy as np

from flint.capturing.user_frames import running_line, short_path
from flint.frontends.jax.programs.watching import Watcher
from flint.host.imports import watch_imports
from flint.launching.notes import noted
from flint.launching.stand_ins import missing

#: The functions of Orbax's newer interface, whose first argument is a path.
_FUNCTIONS = ("save", "save_pytree", "save_checkpointables")
_LOADING = ("load", "load_pytree", "load_checkpointables")
_NEWER = "orbax.checkpoint.experimental.v1"
#: Keywords of what is requested of a checkpoint.
_TARGETS = (
    "args", "item", "items", "target", "abstract_state", "abstract_pytree",
    "abstract_checkpointables",
)  # fmt: skip
#: Paths of checkpoints that the program has saved, which are not there.
_saved: set[str] = set()

#: Classes of ``orbax.checkpoint`` that save and restore.
_CLASSES = ("CheckpointManager", "Checkpointer", "AsyncCheckpointer", "StandardCheckpointer")


def keep_out(watcher: Watcher, allowed: bool, made_up: bool) -> None:
    """Replace what writes and reads checkpoints, as soon as it is imported.

    Args:
        watcher: makes arrays.
        allowed: checkpoints are written for real.
        made_up: missing ones are restored as well.
    """
    calls: dict[str, Callable[[], None]] = {}
    calls["orbax.checkpoint"] = functools.partial(_keep_orbax_out, watcher, allowed, made_up)
    calls[_NEWER] = functools.partial(_keep_functions_out, watcher, allowed, made_up)
    if not allowed:
        calls["flax.training.checkpoints"] = _keep_flax_out
        calls["jax.experimental.array_serialization.serialization"] = _keep_jax_out
    watch_imports(calls)


def _keep_orbax_out(watcher: Watcher, allowed: bool, made_up: bool) -> None:
    orbax: Any = sys.modules["orbax.checkpoint"]
    for name in _CLASSES:
        kind = getattr(orbax, name, None)
        if kind is None:
            continue
        if "save" in vars(kind) and not allowed:
            kind.save = _not_saved
        if "restore" in vars(kind):
            kind.restore = _restoring(watcher, kind.restore, made_up)


def _keep_functions_out(watcher: Watcher, allowed: bool, made_up: bool) -> None:
    module: Any = sys.modules[_NEWER]
    for name in _FUNCTIONS:
        if hasattr(module, name) and not allowed:
            setattr(module, name, lambda *args, **_known: _function_not_saved(args))
        if hasattr(module, f"{name}_async") and not allowed:
            setattr(module, f"{name}_async", lambda *args, **_known: _saved_later(args))
    for name in _LOADING:
        if hasattr(module, name):
            original = getattr(module, name)
            restore = _restoring(watcher, lambda _self, *a, _o=original, **k: _o(*a, **k), made_up)
            setattr(module, name, functools.wraps(original)(functools.partial(restore, None)))


def _function_not_saved(args: tuple[Any, ...]) -> None:
    _not_saved(None, *args)


def _saved_later(args: tuple[Any, ...]) -> Future[None]:
    _function_not_saved(args)
    done: Future[None] = Future()
    done.set_result(None)
    return done


def _keep_flax_out() -> None:
    module: Any = sys.modules["flax.training.checkpoints"]
    for name in ("save_checkpoint", "save_checkpoint_multiprocess"):
        setattr(module, name, lambda *_args, **_known: _not_saved(None))


def _keep_jax_out() -> None:
    """The library with which Levanter and others write their checkpoints."""
    module: Any = sys.modules["jax.experimental.array_serialization.serialization"]
    kind = module.GlobalAsyncCheckpointManager
    for name in ("serialize", "serialize_with_paths"):
        if hasattr(kind, name):
            setattr(kind, name, _not_saved)


def _not_saved(_self: Any, *args: Any, **known: Any) -> bool:
    path = _path(args, known)
    if isinstance(path, str | os.PathLike):
        _saved.add(os.fspath(path))
    file, line = running_line()
    noted[
        f"a checkpoint at {short_path(file)}:{line} is not written (--allow checkpoints writes it)"
    ] += 1
    return True


def _restoring(watcher: Watcher, original: Callable[..., Any], made_up: bool) -> Callable[..., Any]:
    @functools.wraps(original)
    def restore(self: Any, *args: Any, **known: Any) -> Any:
        target = _target(args, known)
        there = target is not None and _is_there(self, args, known)
        if target is None or not (there or made_up):
            try:
                return original(self, *args, **known)
            except OSError as error:
                if target is not None:
                    missing.name_option(error)
                raise
        if not there:
            missing.note("a checkpoint: arrays without values, of the requested types")
            return _like(watcher, target)
        file, line = running_line()
        noted[f"a checkpoint at {short_path(file)}:{line} is restored without its values"] += 1
        return _like(watcher, target)

    return restore


def _target(args: tuple[Any, ...], known: dict[str, Any]) -> Any:
    """The target of a restore, as the caller states it; None if it does not."""
    for name in _TARGETS:
        if known.get(name) is not None:
            return known[name]
    return args[1] if len(args) > 1 else None


def _is_there(self: Any, args: tuple[Any, ...], known: dict[str, Any]) -> bool:
    if hasattr(self, "all_steps"):
        step = known.get("step", args[0] if args else None)
        steps = self.all_steps()
        return bool(steps) if step is None else step in steps
    path = _path(args, known)
    return os.path.exists(path) or os.fspath(path) in _saved


def _path(args: tuple[Any, ...], known: dict[str, Any]) -> Any:
    """The path of a checkpoint in the arguments of a function; a manager's is a step's number."""
    return known.get("directory", known.get("path", args[0] if args else ""))


def _like(watcher: Watcher, target: Any) -> Any:
    """A tree of arrays of the types and on the devices that a target names."""
    parts = getattr(target, "items", None)
    if callable(parts) and type(target).__name__ == "Composite":
        return type(target)(**{name: _like(watcher, part) for name, part in parts()})
    if type(target).__module__.startswith("orbax"):
        target = target.item
    return jax.tree.map(lambda leaf: _placed(watcher, leaf), target)


def _placed(watcher: Watcher, leaf: Any) -> Any:
    if not hasattr(leaf, "shape") or not hasattr(leaf, "dtype"):
        return leaf
    sharding = getattr(leaf, "sharding", None)
    if sharding is None:
        return np.broadcast_to(np.zeros((), leaf.dtype), leaf.shape)
    abstract: Any = jax.ShapeDtypeStruct
    return watcher.place(abstract(leaf.shape, leaf.dtype), sharding)
