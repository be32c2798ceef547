"""Arrays that a program makes from its own data, placed on an absent cluster.

The idea: ``make_array_from_callback`` and similar functions return arrays on devices of other
processes.  The program's code that makes the data runs once, for the part of this process's first
device.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from flint.frontends.jax.internals import multihost
from flint.frontends.jax.programs.checkpoints import keep_out
from flint.frontends.jax.programs.watching import Watcher
from flint.launching.program import ProgramRequest


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
    keep_out(watcher, "checkpoints" in request.allow, request.fake_data)


def _typed(part: Any, dtype: Any) -> Any:
    return part if dtype is None else part.astype(dtype)
