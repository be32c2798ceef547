"""Reading a tensor's value: ``.item()``, ``bool(tensor)``, ``.tolist()``.

Fake tensors have no values.  A read follows a policy, and each use is reported: False for a bool or
a flag in uint8 (a loop that waits for something ends, nothing was infinite), 1.0 for a float (a
loss or norm, an optimizer's first step); a whole program that ends because of these gets others
(``flint.launching.unknown``).  An integer that picks a row (``x[index]``), or that was chosen by
scores (a policy's action, a word of a generated text), is 0; one that counts right choices (an
accuracy) is 1, as programs keep the best one.  Any other integer is a count on which shapes may
depend: it must be known, or follow from a router's counts (``flint.graph.routing``), or it is an
error that names the line; in a whole program it is 1 as long as its step is not recorded.
"""

from __future__ import annotations

import functools
import linecache
import math
import os
import sys
from collections.abc import Iterator
from contextvars import ContextVar
from types import FrameType
from typing import Any, Final

import torch
from torch._subclasses import fake_impls
from torch._subclasses.fake_tensor import FakeTensor

from flint.errors import FlintError
from flint.frontends.torch.context import capture
from flint.frontends.torch.patching import around
from flint.frontends.torch.recording.choices import is_chosen
from flint.frontends.torch.recording.known_values import value_of
from flint.frontends.torch.recording.mask_counts import read_count
from flint.frontends.torch.recording.right_choices import is_count, is_picked, is_text
from flint.frontends.torch.user_lines import at_user_line, users_frame

#: Functions of GradScaler that ask whether a gradient was infinite, and for how long none was.
_SCALER = ("_maybe_opt_step", "<genexpr>")
_SCALERS_STATE = ("_get_growth_tracker",)
_SCALER_FILE = os.path.join("amp", "grad_scaler.py")

_OPTIMIZERS = os.path.join("torch", "optim", "")
_LBFGS_FILE = os.path.join(_OPTIMIZERS, "lbfgs.py")
#: Lines of LBFGS whose question is answered yes: whether a pair of differences goes into its
#: history, and whether a line search has found its step.
_LBFGS_YES = ("if ys > ", "if abs(gtd_new) <= ")
#: What draws again the numbers of ``torch.nn.init.trunc_normal_`` that are out of its range.
_DRAWS = "_no_grad_trunc_normal_"

#: Whether a number is read by ``float(tensor)``: no shape follows from it.
AS_FLOAT: Final[ContextVar[bool]] = ContextVar("as_float", default=False)

#: The words for a number that argmax, topk or multinomial has given.
CHOICE = "a choice among scores (argmax, topk, multinomial)"
#: Advice if that is not the value with which the step should continue.
ADVICE = "; the step should not depend on it: branch on values that the host knows"


def apply() -> None:
    """Make reads of values follow the policy."""
    table: Any = fake_impls.op_implementations_dict
    for op in (torch.ops.aten._local_scalar_dense.default, torch.ops.aten.item.default):
        table[op] = functools.partial(_read_or_traced, table.get(op))
    for op in (torch.ops.aten.equal.default, torch.ops.aten.allclose.default):
        table[op] = _equal
    around(torch.optim.LBFGS, "step", _to_its_end)


def _read_or_traced(traced: Any, mode: Any, op: Any, tensor: Any) -> Any:
    """A value; a symbol in a graph that has values, as PyTorch gives it."""
    shapes = mode.shape_env
    if traced is not None and shapes is not None and shapes.allow_scalar_outputs:
        return traced(mode, op, tensor)
    return _read(op, tensor)


def _read(op: Any, tensor: Any) -> bool | int | float | complex:
    at = at_user_line()
    known = known_number(tensor, at)
    if known is not None:
        return known
    kind, what = _kind(tensor.dtype), f"a tensor of {tensor.dtype}"
    stated = capture().unknown.stated.typed(at.removeprefix(" at "), kind, what)
    if stated is not None:
        number, said = stated
        capture().assume(said)
        return number
    if tensor.dtype == torch.bool and (_checks_options() or _goes_on()):
        return True
    if tensor.dtype == torch.bool and _draws_until_right():
        return False
    if tensor.dtype == torch.bool:
        return answer(f"a bool tensor's value is read{at}", False, f"assumed to be False{ADVICE}")
    if tensor.dtype.is_floating_point and _asked_by_scaler(_SCALER):
        capture().assume(f"gradients are scaled{at}: assumed to be finite")
        return 0.0
    if tensor.dtype.is_floating_point:
        words = f"assumed to {capture().unknown.words}"
        capture().assume(f"a float tensor's value is read{at}: {words}{ADVICE}")
        return _number(tensor, at)
    if tensor.dtype.is_complex:
        capture().assume(f"a complex tensor's value is read{at}: assumed to be 1.0{ADVICE}")
        return complex(1.0)
    if tensor.dtype == torch.uint8:  # what flags were before there was bool
        capture().assume(f"a flag (uint8) is read{at}: assumed to be 0{ADVICE}")
        return 0
    if _asked_by_scaler(_SCALERS_STATE):
        capture().assume(f"the state of a gradient scaler is read{at}: assumed to be new")
        return 0
    if any(tensor is item for item in capture().indices):
        capture().assume(f"a tensor picks a place along a dim{at}: assumed to be the first")
        return 0
    if is_chosen(tensor) or is_picked(tensor):
        capture().assume(f"{CHOICE} is read{at}: assumed to be the first, 0{ADVICE}")
        return 0
    if is_text(tensor):
        capture().assume(f"a word of a generated text is read{at}: assumed to be the first, 0")
        return 0
    if is_count(tensor):
        capture().assume(f"how many choices were right is read{at}: assumed to be 1{ADVICE}")
        return 1
    chosen = read_count(tensor, at)
    if chosen is not None:
        return chosen
    if AS_FLOAT.get():
        capture().assume(f"an integer is read as a float{at}: assumed to be 1.0{ADVICE}")
        return 1
    value = unknown_integer(
        f"an integer tensor's value is read{at} ({op}): a captured step has no values, and shapes "
        "may depend on it; compute it from Python numbers, keep it on the device, state it "
        "(--value of flint run) or, if it is only shown, read it as a float: float(tensor) "
        "(counts of a router's choices are known when they are counted by histc, by bincount with "
        "minlength, by scatter_add of ones to zeros, or from a mask of the choices of topk or "
        "argmax)"
    )
    capture().assume(f"an integer tensor's value is read{at}: assumed to be {value}{ADVICE}")
    return value


def known_number(tensor: Any, at: str) -> bool | int | float | complex | None:
    """The value of a fake tensor of one element; None if it is not known.

    Args:
        tensor: the tensor.
        at: the line that reads it, as `` at file:line``.
    """
    known: bool | int | float | complex
    if tensor.constant is not None:
        known = tensor.constant.item()
        return known
    counted = value_of(tensor)
    if counted is None:
        return None
    known, origin = counted
    if origin:
        capture().assume(f"a value is read{at} that depends on {origin}")
    return known


def _kind(dtype: torch.dtype) -> str:
    if dtype == torch.bool:
        return "bool"
    return "float" if dtype.is_floating_point or dtype.is_complex else "int"


def unknown_integer(refusal: str) -> int:
    """An integer that must be known in a recorded step, whose error this is, and nowhere else."""
    if capture().strict_values:
        raise FlintError(refusal)
    capture().guessed = capture().guessed or refusal
    return 1


def _number(tensor: torch.Tensor, at: str) -> float:
    """The float that a tensor holds: the same one until it is written."""
    version = -1 if tensor.is_inference() else tensor._version
    before, number = capture().numbers.get(tensor, (None, 1.0))
    if before != version:
        number = capture().unknown.number(at)
        capture().numbers[tensor] = version, number
    return float(number)


def answer(question: str, usual: bool, words: str) -> bool:
    """The answer to a question whose true answer is unknown.

    Args:
        question: the question with its line.
        usual: the answer unless an error or the end of a loop follows from it.
        words: about the usual answer.
    """
    goes_on = capture().unknown.goes_on(users_frame(sys._getframe(1)))
    if goes_on is not None:
        usual, why = goes_on
        words = f"assumed to be {usual}, {why}"
    capture().assume(f"{question}: {words}")
    return usual


def _asked_by_scaler(functions: tuple[str, ...]) -> bool:
    """Whether one of these functions of GradScaler asks."""
    return any(
        frame.f_code.co_name in functions and frame.f_code.co_filename.endswith(_SCALER_FILE)
        for frame in _callers()
    )


def _checks_options() -> bool:
    """Whether a new optimizer checks the range of a value such as its learning rate."""
    return any(
        frame.f_code.co_name == "__init__" and _OPTIMIZERS in frame.f_code.co_filename
        for frame in _callers()
    )


def _draws_until_right() -> bool:
    """Whether ``trunc_normal_`` asks if numbers are still out of range."""
    return any(frame.f_code.co_name == _DRAWS for frame in _callers())


def _goes_on() -> bool:
    """Whether LBFGS, not its closure, asks a question answered yes as long as it continues."""
    for frame in _callers():
        file = frame.f_code.co_filename
        if file.endswith(_LBFGS_FILE):
            return linecache.getline(file, frame.f_lineno).strip().startswith(_LBFGS_YES)
    return False


def _to_its_end(step: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
    """LBFGS without an end by its tolerances, which depend on values."""
    [group] = optimizer.param_groups
    if not any(isinstance(weight, FakeTensor) for weight in group["params"]):
        return step(optimizer, *args, **kwargs)
    capture().assume(
        f"LBFGS steps{at_user_line()}: assumed to run to its max_iter of {group['max_iter']}; no "
        "tolerance ends it, and a line search accepts its first step"
    )
    tolerances = {name: group[name] for name in ("tolerance_grad", "tolerance_change")}
    group.update(dict.fromkeys(tolerances, -math.inf))
    try:
        return step(optimizer, *args, **kwargs)
    finally:
        group.update(tolerances)


def _callers() -> Iterator[FrameType]:
    """The running frames, from the innermost outwards."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        yield frame
        frame = frame.f_back


def _equal(_: Any, __: Any, first: Any, second: Any, *___: Any, **____: Any) -> bool:
    is_alike = bool(first.shape == second.shape)
    question = f"two tensors are compared{at_user_line()}"
    words = "assumed to be equal if their shapes are"
    return answer(question, is_alike, words) if is_alike else False
