"""The value of an array without one: what Python, NumPy and other libraries ask for.

The idea: every question for a value is a read, which the recorder answers and notes; a real run
waits at the same place.  Printing an array of several elements is a wait, its elements are not
shown.

    float(array)                    # host.read(array, "float")
    torch.from_dlpack(array)        # host.read(array, "array"), if it is on one device
"""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from jax._src import core

from flint.frontends.jax.internals.host import Host

_core: Any = core  # untyped


class ArrayValues(jax.Array):
    """The questions for values of an array.

    Attributes:
        host: the recorder.
    """

    __slots__ = ()
    host: Host

    @property
    def _value(self) -> Any:
        return self.__array__()

    def __bool__(self) -> bool:
        _core.check_bool_conversion(self)
        return bool(self.host.read(self, "bool"))

    def __int__(self) -> int:
        _core.check_scalar_conversion(self)
        return int(self.host.read(self, "int"))

    def __index__(self) -> int:
        _core.check_integer_conversion(self)
        return int(self.host.read(self, "int"))

    def __float__(self) -> float:
        _core.check_scalar_conversion(self)
        return float(self.host.read(self, "float"))

    def __complex__(self) -> complex:
        _core.check_scalar_conversion(self)
        return complex(self.host.read(self, "complex"))

    def __reduce__(self) -> Any:
        return jax.numpy.asarray, (np.asarray(self),)  # its value, as a checkpoint's

    def __repr__(self) -> str:
        return f"Array({self})"

    def __str__(self) -> str:
        if not self.ndim:
            return str(self.host.read(self, "text"))
        self.host.read(self, "wait")
        return str(self.aval.str_short())

    def __format__(self, spec: str) -> str:
        return format(self.host.read(self, "text"), spec) if not self.ndim else str(self)

    def __array__(self, dtype: Any = None, context: Any = None, copy: Any = None) -> Any:
        found = self.host.read(self, "array")
        return found if dtype is None else found.astype(dtype)

    def __dlpack_device__(self) -> tuple[int, int]:
        found: tuple[int, int] = self._on_one_device().__dlpack_device__()
        return found

    def __dlpack__(self, *, stream: Any = None, **known: Any) -> Any:
        return self._on_one_device().__dlpack__(**known)

    def _on_one_device(self) -> Any:
        if len(self.sharding.device_set) > 1:
            raise BufferError("__dlpack__ only supported for unsharded arrays.")
        return np.array(self)  # one that its reader may write to

    def item(self, *index: Any) -> Any:
        """The value as a Python number."""
        return self.host.read(self, "array").item(*index)

    def tobytes(self, order: Any = "C") -> bytes:
        """The values as bytes."""
        found: bytes = np.asarray(self).tobytes(order)
        return found

    def tolist(self) -> Any:
        """The values as Python numbers."""
        return self.host.read(self, "array").tolist()
