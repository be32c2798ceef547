"""Evaluations: the same call of a model without gradients again and again.

The idea: an evaluation calls a model hundreds of times with tensors of the same sizes, and without
values each call has the same result.  From the third call on, the result of the second one is
returned again, as new tensors; every omitted call is counted with its line.  So it is if all
parameters are frozen, even with gradients switched on (samples of an averaged model).  A model is
called each time if its arguments are not only tensors and plain values, or if its second result has
other sizes.

    with answering(lambda: recording): model.eval(); [model(batch) for batch in batches]
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._pytree import tree_flatten, tree_unflatten

from flint.frontends.torch.context import capture
from flint.frontends.torch.patching import around
from flint.frontends.torch.user_lines import at_user_line

_PLAIN = (bool, int, float, str, type(None), torch.dtype, torch.device)


@dataclass(slots=True)
class _Calls:
    """Calls of the same form: how many ran, and the result of the last one."""

    ran: int = 0
    looks: Any = None
    alike: bool = False


class _Different(Exception):
    """A value is not described by sizes alone."""


@contextlib.contextmanager
def answering(needed: Callable[[], bool]) -> Iterator[None]:
    """Within it, repeated calls are answered without running.

    Args:
        needed: whether every call must run, because it is recorded.
    """
    calls: dict[Hashable, _Calls] = {}
    depth = 0

    def called(original: Any, module: Any, /, *args: Any, **kwargs: Any) -> Any:
        nonlocal depth
        outermost = depth == 0
        if not outermost or module.training or needed() or _has_gradients(module):
            depth += 1
            try:
                return original(module, *args, **kwargs)
            finally:
                depth -= 1
        try:
            key = id(module), _looks((args, kwargs))
        except _Different:
            return original(module, *args, **kwargs)
        known = calls.setdefault(key, _Calls())
        if known.alike:
            capture().assume(
                f"a model is called without gradients{at_user_line()} as before: assumed to "
                "return the same result"
            )
            return _again(known.looks)
        depth += 1
        try:
            result = original(module, *args, **kwargs)
        finally:
            depth -= 1
        with contextlib.suppress(_Different):
            looks = _looks(result)
            known.alike = known.ran > 0 and looks == known.looks
            known.looks = looks
        known.ran += 1
        return result

    undo = around(torch.nn.Module, "__call__", called)
    try:
        yield
    finally:
        undo()


def _has_gradients(module: torch.nn.Module) -> bool:
    """Whether a call makes gradients of parameters."""
    with torch._C.DisableTorchFunctionSubclass():  # a parameter's class may refuse to say
        return torch.is_grad_enabled() and any(item.requires_grad for item in module.parameters())


def _looks(item: Any) -> tuple[Any, ...]:
    """The arguments or results of a call: structure, sizes of tensors, plain values."""
    leaves, structure = tree_flatten(item)
    return structure, tuple(map(_look, leaves))


def _look(leaf: Any) -> Hashable:
    if isinstance(leaf, FakeTensor) and not leaf.requires_grad:
        return "tensor", tuple(leaf.shape), leaf.stride(), leaf.dtype, leaf.device
    if type(leaf) in _PLAIN:
        return type(leaf), leaf
    raise _Different


def _again(looks: tuple[Any, ...]) -> Any:
    structure, leaves = looks
    made = [
        torch.empty_strided(leaf[1], leaf[2], dtype=leaf[3], device=leaf[4])
        if leaf[0] == "tensor"
        else leaf[1]
        for leaf in leaves
    ]
    return tree_unflatten(made, structure)
