"""Arrays without values that jitted functions close over.

The idea: JAX makes a constant of such an array when it lowers the function, so a lowering makes one
of the same size.

    with closed_over():
        traced.lower()
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from jax._src.interpreters import mlir

from flint.errors import FlintError
from flint.frontends.jax.internals.host_arrays import HostArray


class _Lowering(threading.local):
    """Whether a thread lowers a recorded call, whose values do not matter."""

    on = False


_lowering = _Lowering()


@contextmanager
def closed_over() -> Iterator[None]:
    """Within it, arrays that a function closes over are lowered without their values."""
    before, _lowering.on = _lowering.on, True
    try:
        yield
    finally:
        _lowering.on = before


def _as_constant(val: HostArray, aval: Any) -> Any:
    """The constant that JAX makes of an array that a jitted function closes over.

    It has the whole array, wherever that lies.  Elements that are not all the same keep XLA from
    treating it as a broadcast.

    Raises:
        TypeError: its value is needed and is not known.
    """
    value = val.host.value(val)
    if value is None and not _lowering.on:
        raise TypeError("the value of an array that a function closes over is not known")
    if value is None:
        value = np.zeros(val.shape, val.dtype)
        value[(0,) * val.ndim] = 1
    return mlir.ir_constant(value)


def constants_of(program: Any, where: str) -> list[HostArray]:
    """The arrays that a function closes over.

    Args:
        program: its closed jaxpr.
        where: "file:line: name" of its call.

    Raises:
        FlintError: JAX refuses one in a run.
    """
    found = [item for item in program.consts if isinstance(item, HostArray)]
    elsewhere = next(filter(_is_elsewhere, found), None)
    if elsewhere is not None:
        raise FlintError(
            f"{where} closes over an array on devices of other processes "
            f"({elsewhere.aval.str_short()}), which JAX refuses in a run: pass it as an argument"
        )
    return found


def _is_elsewhere(array: HostArray) -> bool:
    """Whether other processes have parts of an array."""
    try:
        return not array.is_fully_addressable
    except (AttributeError, ValueError):  # unknown, or on an abstract mesh: one process
        return False


mlir.register_constant_handler(HostArray, _as_constant)
