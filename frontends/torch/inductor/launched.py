"""Triton kernels written by the program itself, launched on an absent device.

The idea: a launch is an op of the kernel's name that reads its tensors and writes those that the
kernel's source stores to.  Nothing is compiled; an autotuned kernel takes its first configuration,
because nothing can be timed.  Its arithmetic is not counted, and a warning with the line states
this.

    _add[(n // 1024,)](x, y, out, n, BLOCK=1024)       # inductor._add: reads x and y, writes out
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Sequence
from importlib import import_module
from typing import Any

import torch

from flint.frontends.torch.context import capture
from flint.frontends.torch.inductor.kernels import Argument, Kernel
from flint.frontends.torch.patching import around
from flint.frontends.torch.user_lines import at_user_line
from flint.host.imports import watch_imports

#: Functions that read memory: their result does not point to what was read.
_LOADS = ("load", "atomic_add", "atomic_cas", "atomic_xchg")


def apply() -> None:
    """Record launches, also if Triton is imported later."""
    watch_imports({"triton": _watch})


def _watch() -> None:
    around(import_module("triton.runtime.jit").JITFunction, "run", _launched)
    around(import_module("triton.runtime.autotuner").Autotuner, "run", _first_configuration)


def _launched(_: Any, kernel: Any, *args: Any, **kwargs: Any) -> None:
    names = kernel.arg_names
    given = dict(zip(names, args, strict=False)) | kwargs
    tensors = {name: given[name] for name in names if isinstance(given.get(name), torch.Tensor)}
    written = stored_to(kernel.fn, names)
    record(
        "Triton", kernel.fn.__name__, list(tensors.values()), [name in written for name in tensors]
    )


def record(language: str, name: str, tensors: list[torch.Tensor], written: Sequence[bool]) -> None:
    """A launch of the program's own kernel, which reads tensors and writes some of them."""
    capture().notice(
        f"the {language} kernel {name} is launched{at_user_line()}: its bytes are those of its "
        "whole tensors, and its arithmetic is not counted"
    )
    sizes = map(_bytes, tensors)
    arguments = (
        Argument(size, size if is_written else 0)
        for size, is_written in zip(sizes, written, strict=True)
    )
    Kernel(name, tuple(arguments), 0, 0).call(tensors)


def _bytes(tensor: torch.Tensor) -> int:
    return tensor.numel() * tensor.element_size()


def _first_configuration(_: Any, tuner: Any, *args: Any, **kwargs: Any) -> Any:
    return tuner.fn.run(*args, **kwargs, **tuner.configs[0].all_kwargs())


def stored_to(function: Any, names: Sequence[str]) -> frozenset[str]:
    """Which arguments a kernel's source stores to; all if it passes pointers on.

    Args:
        function: the kernel, plain.
        names: of its arguments.
    """
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, SyntaxError):
        return frozenset(names)
    points = {name: {name} for name in names}  # variable -> arguments that it may point into
    size = 0
    while size != (size := sum(map(len, points.values()))):
        for node in ast.walk(tree):
            if isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign) and node.value:
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                for name in (item for target in targets for item in _names(target)):
                    points.setdefault(name, set()).update(_pointed(node.value, points))
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else ""
            if called == "store" or called.startswith("atomic_"):
                found |= _pointed(node.args[0] if node.args else node.func, points)
            elif isinstance(node.func, ast.Name):  # a function that may store
                for item in node.args:
                    found |= _pointed(item, points)
    return frozenset(found)


def _names(target: ast.expr) -> list[str]:
    return [item.id for item in ast.walk(target) if isinstance(item, ast.Name)]


def _pointed(value: ast.AST, points: dict[str, set[str]]) -> set[str]:
    """The arguments that a value may point into."""
    if isinstance(value, ast.Call) and getattr(value.func, "attr", "") in _LOADS:
        return set()
    found = set(points.get(value.id, ())) if isinstance(value, ast.Name) else set()
    for part in ast.iter_child_nodes(value):
        found |= _pointed(part, points)
    return found
