"""Reading a tensor's value: ``.item()``, ``bool(tensor)``, ``.tolist()``.

Fake tensors have none.  What is read is, by a policy that is told with every use: False for a bool
(a loop that waits for something ends, nothing was infinite), 1.0 for a float (a loss or norm, an
optimizer's first step).  An integer is a count or an index on which shapes may depend: it must be
known, or follow from a router's counts (``routing.py``), or it is an error that names the line.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from types import FrameType
from typing import Any

import torch
from torch._subclasses import fake_impls

from flint.capturing.user_frames import short_path
from flint.errors import FlintError
from flint.frontends.torch.recording import routing
from flint.frontends.torch.recording.tracking import users_line

_SCALER = ("_maybe_opt_step", "<genexpr>")
_SCALER_FILE = os.path.join("amp", "grad_scaler.py")

_OPTIMIZERS = os.path.join("torch", "optim", "")

#: What has been assumed: text -> how often.
assumed: Counter[str] = Counter()


#: What to do where that is not what the step should go on with.
ADVICE = "; what the step does should not depend on it: decide by Python values that setup makes"


def place() -> str:
    """`` at file:line`` of the user's code that runs; "" where there is none."""
    file, line = users_line(sys._getframe(1))
    return f" at {short_path(file)}:{line}" if file else ""


def apply() -> None:
    """Let values be read by the policy."""
    table: Any = fake_impls.op_implementations_dict
    for op in (torch.ops.aten._local_scalar_dense.default, torch.ops.aten.item.default):
        table[op] = _read
    for op in (torch.ops.aten.equal.default, torch.ops.aten.allclose.default):
        table[op] = _equal


def _read(_: Any, op: Any, tensor: Any) -> bool | int | float | complex:
    at = place()
    if tensor.constant is not None:
        known: bool | int | float | complex = tensor.constant.item()
        return known
    counted = routing.value_of(tensor)
    if counted is not None:
        value, origin = counted
        if origin:
            assumed[f"a value is read{at} that depends on {origin}"] += 1
        found: bool | int | float | complex = value
        return found
    if tensor.dtype == torch.bool and _checks_options():
        return True
    if tensor.dtype == torch.bool:
        assumed[f"a bool tensor's value is read{at}: assumed to be False{ADVICE}"] += 1
        return False
    if tensor.dtype.is_floating_point and _asked_for_overflow():
        assumed[f"gradients are scaled{at}: assumed to be finite"] += 1
        return 0.0
    if tensor.dtype.is_floating_point:
        assumed[f"a float tensor's value is read{at}: assumed to be 1.0{ADVICE}"] += 1
        return 1.0
    if tensor.dtype.is_complex:
        assumed[f"a complex tensor's value is read{at}: assumed to be 1.0{ADVICE}"] += 1
        return complex(1.0)
    raise FlintError(
        f"an integer tensor's value is read{at} ({op}): a captured step has no values, and shapes "
        "may depend on it; compute it from Python numbers, keep it on the device or, if it is only "
        "shown, read it as a float: .float().item() (counts of a router's choices are known when "
        "they are counted by histc, by bincount with minlength, or by scatter_add of ones to zeros)"
    )


def _asked_for_overflow() -> bool:
    """Whether GradScaler asks if a gradient was infinite, in which case it would skip the step."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_name in _SCALER and frame.f_code.co_filename.endswith(_SCALER_FILE):
            return True
        frame = frame.f_back
    return False


def _checks_options() -> bool:
    """Whether an optimizer that is made asks if a learning rate, say, is in its range."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_name == "__init__" and _OPTIMIZERS in frame.f_code.co_filename:
            return True
        frame = frame.f_back
    return False


def _equal(_: Any, __: Any, first: Any, second: Any, *___: Any, **____: Any) -> bool:
    at = place()
    assumed[f"two tensors are compared{at}: assumed to be equal if their shapes are"] += 1
    return bool(first.shape == second.shape)
