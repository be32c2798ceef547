"""The recording device is named "cuda" to all code but PyTorch and this frontend.

The idea: programs decide by names: ``device.type == "cuda"``, ``"cuda" in str(device)``,
``tensor.is_cuda``.  PyTorch's own code uses the device's real name.  ``torch.device`` is a C type
that cannot be changed from Python, so its table of attributes and its functions for text are
replaced below that level; CPython's layout of types has been the same from 3.8 to 3.14.

    apply(); torch.device("flint", 0).type              # "cuda", in a program
"""

from __future__ import annotations

import ctypes
import sys
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


def apply() -> None:
    """Give the device CUDA's name."""
    plain = vars(torch.device)["type"]

    def kind(device: Any) -> str:
        name: str = plain.__get__(device)
        return _WORD if name == NAME and not inside_torch(sys._getframe(1)) else name

    replace_of_type(torch.device, "type", property(kind))
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
