"""``torch.compile`` and TorchScript: recorded as the eager code that they are given.

At the optimized level ``torch.compile`` compiles (``inductor``).  Otherwise the ops are those of
the eager program, which a warning states.  TorchScript (``scripted``) runs the same ops at first;
from its second call on it fuses some, and its gradients include those that the program does not ask
for (of weights, where ``autograd.grad`` asks for an input's): the warning is the same.  A function
of autograd whose last gradients are missing is an error in eager code only.  Forward-mode
derivatives (``torch.func.jvp``) need decompositions that PyTorch scripts when it first uses them:
those are scripted.
"""

from __future__ import annotations

import functools
import sys
from types import FunctionType
from typing import Any

import torch
from torch.autograd import forward_ad
from torch.autograd.function import BackwardCFunction

from flint.frontends.torch.context import capture
from flint.frontends.torch.inductor.compiling import compiled
from flint.frontends.torch.modes import with_real_tensors
from flint.frontends.torch.patching import around
from flint.frontends.torch.user_lines import at_user_line

#: How the notice begins.
_CALLED = "torch.compile"


def apply() -> None:
    """Let compiled code be eager code, unless the capture compiles."""
    around(torch, "compile", _compile)
    around(torch.nn.Module, "compile", _compile_method)
    around(BackwardCFunction, "apply", _all_gradients)
    around(forward_ad, "_maybe_load_decompositions", _scripting)


def _compile(original: Any, model: Any = None, **kwargs: Any) -> Any:
    if model is None:
        return lambda function: _compile(original, function, **kwargs)
    if capture().compiles:
        return compiled(original, model, **kwargs)
    return eager(model, _text())


def eager(model: Any, text: str) -> Any:
    """The code itself, with a warning: of decorated functions, many are never called."""
    if not isinstance(model, FunctionType):
        capture().notice(text)
        return model

    @functools.wraps(model)
    def called(*args: Any, **kwargs: Any) -> Any:
        if text not in capture().assumed:
            capture().notice(text)
        return model(*args, **kwargs)

    return called


def _compile_method(original: Any, *args: Any, **kwargs: Any) -> None:
    if capture().compiles:
        original(*args, **kwargs)  # calls torch.compile
    else:
        capture().notice(_text())


def _all_gradients(original: Any, node: Any, *gradients: Any) -> Any:
    found = original(node, *gradients)
    if not any(text.startswith(_CALLED) for text in capture().assumed):
        return found
    given = found if isinstance(found, tuple) else (found,)
    return given + (None,) * (len(node.needs_input_grad) - len(given))


def _text() -> str:
    return f"{_CALLED}{at_user_line()}: recorded as eager code"


def _scripting(load: Any) -> None:
    """Within it, functions are scripted."""
    if "torch._decomp.decompositions_for_jvp" in sys.modules:
        return
    torch.jit._state.enable()
    try:
        with_real_tensors(load)()
    finally:
        torch.jit._state.disable()
