"""Values that leave tensors in other ways than ``.item()``: formatted, as numpy arrays.

A logging line must not stop a capture.  Values that are shown or returned follow the policy of
``values.py`` and are reported with their line: 1.0 for floats, False for bools; whole numbers are
shown as 0 if they are only formatted, otherwise they must be known.  ``torch.isfinite`` and
``torch.isnan`` return that numbers are finite, so that checks for broken losses pass;
distributions' checks of their arguments pass.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import torch
from torch._subclasses.fake_tensor import FakeTensor, unset_fake_temporarily
from torch.utils._device import _device_constructors

from flint.frontends.torch.cluster.device import NAME
from flint.frontends.torch.context import capture
from flint.frontends.torch.patching import around, replace
from flint.frontends.torch.recording.choices import is_chosen
from flint.frontends.torch.recording.known_values import know, known_of, value_of
from flint.frontends.torch.recording.right_choices import is_picked
from flint.frontends.torch.shims.values import ADVICE, AS_FLOAT, CHOICE, unknown_integer
from flint.frontends.torch.user_lines import at_user_line

#: Arrays with more elements are returned as one repeated element, which takes no memory.
_MOST = 1 << 20

_FINITE = "assuming that all numbers are finite"
#: Questions with known answers, and the reasons for these; distributions ask the last one.
_ANSWERS = (
    ("isfinite", True, _FINITE),
    ("isnan", False, _FINITE),
    ("isinf", False, _FINITE),
    ("_is_all_true", True, "assuming that arguments are within their range"),
)

_PLACEHOLDERS: dict[str, Any] = {"b": False, "f": 1.0, "c": 1.0}


def apply() -> None:
    """Make formatting and numpy work without values."""
    replace(FakeTensor, "__format__", _format)
    replace(FakeTensor, "numpy", _numpy)
    replace(FakeTensor, "__float__", _float)
    around(FakeTensor, "tolist", _to_list)
    # ``with torch.device(...)`` knows constructors by identity, from a table made when it is first
    # needed: it must have torch's own, which is what is called in the end.
    _device_constructors()
    for name in ("tensor", "as_tensor"):
        around(torch, name, _from_numbers)
    for name, answer, origin in _ANSWERS:
        for owner in (torch, torch.Tensor):
            around(owner, name, functools.partial(_answered, answer, origin))


def _format(self: torch.Tensor, spec: str) -> str:
    """As ``torch.Tensor.__format__``, which shows the number of a tensor without dims."""
    if self.dim():
        return object.__format__(self, spec) if spec else str(self)
    kind = self.dtype
    whole = not (kind.is_floating_point or kind.is_complex or kind == torch.bool)
    if whole and value_of(self) is None and self.constant is None:  # type: ignore[attr-defined]  # of FakeTensor
        capture().assume(f"an integer tensor is formatted{at_user_line()}: shown as 0")
        return format(0, spec)
    return format(self.item(), spec)


def _float(self: torch.Tensor) -> float:
    """As ``torch.Tensor.__float__``, also below the dispatcher: ``torch.FloatTensor([tensor])``."""
    with torch._C._PreserveDispatchKeyGuard():
        for key in (torch._C.DispatchKey.Python, torch._C.DispatchKey.PythonTLSSnapshot):
            torch._C._dispatch_tls_set_dispatch_key_excluded(key, False)
        before = AS_FLOAT.set(True)
        try:
            return torch.Tensor.__float__(self)
        finally:
            AS_FLOAT.reset(before)


def _numpy(self: torch.Tensor, *, force: bool = False) -> Any:
    """As ``torch.Tensor.numpy``, with the policy's value in every element."""
    if not force and self.device.type == NAME:
        raise TypeError(
            f"can't convert {self.device} device type tensor to numpy. Use Tensor.cpu() to copy "
            "the tensor to host memory first."
        )
    if not force and self.requires_grad:
        raise RuntimeError(
            "Can't call numpy() on Tensor that requires grad. Use tensor.detach().numpy() instead."
        )
    with unset_fake_temporarily():
        dtype = torch.empty(0, dtype=self.dtype).numpy().dtype
    shape = tuple(int(size) for size in self.shape)
    known = known_of(capture().known_values, self)
    if known is not None:
        if known.origin:
            capture().assume(
                f"a tensor becomes a numpy array{at_user_line()}, which depends on {known.origin}"
            )
        with unset_fake_temporarily():
            return known.value.numpy().copy()
    at, words = at_user_line(), ""
    value: float
    if dtype == np.uint8:  # an image that is shown
        value = 0
    elif dtype.kind in _PLACEHOLDERS:
        value = _PLACEHOLDERS[dtype.kind]
    elif is_chosen(self) or is_picked(self):
        value, words = 0, f"be 0: {CHOICE}"
    else:
        value = unknown_integer(
            f"an integer tensor becomes a numpy array{at}: a captured step has no values, and "
            "shapes may depend on it; compute it from Python numbers, or leave it on the device"
        )
    if dtype.kind == "f":
        value, words = capture().unknown.number(at), capture().unknown.words
    capture().assume(
        f"a tensor becomes a numpy array{at}: every element is assumed to "
        f"{words or f'be {value}'}{ADVICE}"
    )
    if self.numel() > _MOST:
        return np.broadcast_to(np.array(value, dtype), shape)
    return np.full(shape, value, dtype)


def _to_list(plain: Any, self: torch.Tensor) -> Any:
    """As ``torch.Tensor.tolist``, with one read of all floats that are not known."""
    fixed = self.constant is not None or known_of(capture().known_values, self) is not None  # type: ignore[attr-defined]  # of FakeTensor
    if fixed or not self.is_floating_point() or self.numel() < 2:
        return plain(self)
    shape = tuple(int(size) for size in self.shape)
    return np.full(shape, torch.ops.aten._local_scalar_dense.default(self)).tolist()


def _from_numbers(function: Any, data: Any, *args: Any, **kwargs: Any) -> Any:
    """``torch.tensor``, which reads the tensors in a list one by one below the dispatcher."""
    return function(_numbers(data), *args, **kwargs)


def _numbers(item: Any) -> Any:
    if isinstance(item, list | tuple) and any(
        isinstance(part, FakeTensor | list | tuple) for part in item
    ):
        return [part.tolist() if isinstance(part, FakeTensor) else _numbers(part) for part in item]
    return item


def _answered(answer: bool, origin: str, function: Any, *args: Any, **kwargs: Any) -> Any:
    """A question about every number, whose answer is known."""
    result = function(*args, **kwargs)
    if type(result) is FakeTensor:
        with unset_fake_temporarily():
            know(result, torch.tensor(answer), origin)
    return result
