"""The recording device is named "cuda" to all code but PyTorch and this frontend.

The idea: programs decide by names: ``device.type == "cuda"``, ``"cuda" in str(device)``,
``tensor.is_cuda``; and by numbers: ``device.index == local_rank``.  PyTorch's own code uses the
device's real name and number.  ``torch.device`` is a C type that cannot be changed from Python, so
its table of attributes and its functions for text are replaced below that level; CPython's layout
of types has been the same from 3.8 to 3.14.

    apply(lambda: 3)
    torch.device("flint", 0).type, torch.device("flint", 0).index      # "cuda", 3 in a program
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from typing import Any

import torch

from flint.frontends.torch.cluster.device import NAME
from flint.frontends.torch.patching import around, replace, replace_of_type
from flint.frontends.torch.user_lines import inside_torch

_WORD = "cuda"
#: Byte offsets in a type object of CPython, on 64 bits.
_REPR, _STR = 88, 136

_TEXT: Any = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.py_object)
#: The objects that types point to must live as long as the types.
_kept: list[Any] = []


class _Number:
    """What the program takes for the device's number; None: what PyTorch does."""

    of: Callable[[], int] | None = None


def numbered(device: torch.device) -> int:
    """The number of a device that has one, as the program sees it."""
    return device.index if _Number.of is None or device.type != NAME else _Number.of()


def apply(number: Callable[[], int]) -> None:
    """Give the device CUDA's name, and a number.

    Args:
        number: the device's on its host.
    """
    plain, plain_index = vars(torch.device)["type"], vars(torch.device)["index"]

    def kind(device: Any) -> str:
        name: str = plain.__get__(device)
        return _WORD if name == NAME and not inside_torch(sys._getframe(1)) else name

    def index(device: Any) -> int | None:
        found: int | None = plain_index.__get__(device)
        return found if found is None or inside_torch(sys._getframe(1)) else numbered(device)

    _Number.of = number
    replace_of_type(torch.device, "type", property(kind))
    replace_of_type(torch.device, "index", property(index))
    for offset in (_REPR, _STR):
        _replace_text(offset)
    tensor: Any = torch.Tensor
    cuda: Any = torch._C.TensorBase.is_cuda

    def is_cuda(self: Any) -> bool:
        if inside_torch(sys._getframe(1)):
            return bool(cuda.__get__(self))
        return bool(plain.__get__(self.device) == NAME)

    replace(tensor, "is_cuda", property(is_cuda))
    around(tensor, "type", _type)


def _replace_text(offset: int) -> None:
    place = ctypes.c_void_p.from_address(id(torch.device) + offset)
    plain = _TEXT(place.value)

    def text(device: Any) -> str:
        found: str = plain(device)
        return found if inside_torch(sys._getframe(1)) else found.replace(NAME, _WORD)

    made = _TEXT(text)
    _kept.extend((plain, made))
    place.value = ctypes.cast(made, ctypes.c_void_p).value


def _type(original: Any, *args: Any, **kwargs: Any) -> Any:
    found = original(*args, **kwargs)
    return found.replace(f".{NAME}.", f".{_WORD}.") if isinstance(found, str) else found
