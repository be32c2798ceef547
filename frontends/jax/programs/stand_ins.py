"""Arrays that a program makes from its own data, placed on an absent cluster.

The idea: ``make_array_from_callback`` and similar functions return arrays on devices of other
processes.  The program's code that makes the data runs once, for the part of this process's first
device.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from flint.capturing.user_frames import own_line
from flint.frontends.jax.internals import multihost
from flint.frontends.jax.internals.executables import SavedExecutables
from flint.frontends.jax.programs.checkpoints import keep_out
from flint.frontends.jax.programs.watching import Watcher
from flint.host.imports import watch_imports
from flint.launching.notes import noted
from flint.launching.program import ProgramRequest

_ONLY_HERE = "is serialized to bytes of use in this run only: delete files that the program makes"
_EXECUTABLES = "jax.experimental.serialize_executable"


def put(watcher: Watcher, request: ProgramRequest) -> None:
    """Replace JAX's own functions by them."""

    def from_callback(
        shape: Sequence[int], sharding: Any, callback: Callable[..., Any], dtype: Any
    ) -> Any:
        part = callback(multihost.first_index(shape, sharding))
        return watcher.place(_typed(part, dtype), sharding, shape)

    def from_single(shape: Sequence[int], sharding: Any, arrays: Sequence[Any], dtype: Any) -> Any:
        part = arrays[0] if arrays else np.zeros((), dtype)
        return watcher.place(_typed(part, dtype), sharding, shape)

    def from_process(sharding: Any, local: Any, shape: Sequence[int] | None) -> Any:
        whole = shape or multihost.whole_shape(sharding, np.shape(local))
        return watcher.place(local, sharding, whole)

    multihost.replace_array_makers(from_callback, from_single)
    multihost.replace_processes(request.cluster.hosts, from_process)
    watch_imports({_EXECUTABLES: _save_executables})
    keep_out(watcher, "checkpoints" in request.allow, request.fake_data)


def _save_executables() -> None:
    """Executables that the program serializes are of use in this run only."""
    module, held = sys.modules[_EXECUTABLES], SavedExecutables()

    def serialize(compiled: Any) -> tuple[bytes, Any, Any]:
        noted[f"an executable at {own_line()} {_ONLY_HERE}"] += 1
        return held.serialize(compiled)

    vars(module).update(serialize=serialize, deserialize_and_load=held.load)


def _typed(part: Any, dtype: Any) -> Any:
    return part if dtype is None else part.astype(dtype)
