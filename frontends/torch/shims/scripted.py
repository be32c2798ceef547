"""``torch.jit``: what is scripted or traced stays the code that it is, and counts as scripted.

TorchScript reads the source of the functions that it is given, and those that a capture has
replaced have no source.  So modules and functions stay unchanged, with a warning (``compiled``).
A program that asks whether it got a ``ScriptModule`` gets yes; what it saves as one, in a file or
in a buffer that it copies (e3nn's modules do so where a model is copied), it can load again.
"""

from __future__ import annotations

import copy
import functools
from types import FunctionType
from typing import Any

import torch
from torch.jit import _script

from flint.frontends.torch.patching import around, replace
from flint.frontends.torch.shims import checkpoints
from flint.frontends.torch.shims.compiled import eager
from flint.frontends.torch.user_lines import at_user_line

#: Of a module that stands for one in TorchScript.
_MARK = "_flint_scripted"


def apply() -> None:
    """Let TorchScript's code be eager code."""
    torch.jit._state.disable()  # as PYTORCH_JIT=0: what is scripted stays unchanged
    for name in ("script", "trace", "trace_module"):
        around(torch.jit, name, functools.partial(_scripted, f"torch.jit.{name}"))
    around(torch.jit, "save", _save)
    around(torch.jit, "load", _load)
    if isinstance(torch.jit.ScriptModule, _script.ScriptMeta):  # else PYTORCH_JIT=0 was set
        replace(_script.ScriptMeta, "__instancecheck__", _is_scripted)


def _scripted(word: str, original: Any, *args: Any, **kwargs: Any) -> Any:
    made = original(*args, **kwargs)
    is_given = any(made is item for item in (*args, *kwargs.values()))
    if not (is_given and isinstance(made, FunctionType | torch.nn.Module)):
        return made
    if isinstance(made, torch.nn.Module):
        _mark(made)
    return eager(made, f"{word}{at_user_line()}: the ops are those of eager code")


def _mark(module: torch.nn.Module) -> None:
    module.__dict__[_MARK] = True
    module.__dict__["save"] = functools.partial(_save, None, module)


def _is_scripted(kind: Any, item: Any) -> bool:
    if type.__instancecheck__(kind, item):
        return True
    is_general = kind in (torch.jit.ScriptModule, _script.RecursiveScriptModule)
    return is_general and _MARK in getattr(item, "__dict__", ())


def _save(original: Any, module: Any, f: Any, *args: Any, **kwargs: Any) -> None:
    if original and _MARK not in module.__dict__:
        original(module, f, *args, **kwargs)
    elif hasattr(f, "write"):
        f.write(checkpoints.note(copy.deepcopy(module)))
    else:
        torch.save(copy.deepcopy(module), f)


def _load(load: Any, f: Any, *args: Any, **kwargs: Any) -> Any:
    if not checkpoints.has_saved(f):
        return load(f, *args, **kwargs)
    module = copy.deepcopy(torch.load(f))
    _mark(module)  # which copies of traced graphs do not have
    return module
