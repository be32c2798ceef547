"""``torch.cond`` and ``while_loop``: followed as the branch and the iterations that run.

PyTorch hands both to Dynamo, whose op no recording sees into.  Outside of compiled code they are
Python's ``if`` and ``while`` here; a backward pass computes a branch or an iteration again, as
PyTorch's does.  The condition of a branch is read as any value is (``values``).  A loop ends by its
condition if the capture knows its value (a counter), else after the iterations that are stated for
its line; without these it is an error that names the line.  Compiled code asks the same.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch._higher_order_ops import utils
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils.checkpoint import checkpoint

from flint.errors import FlintError, UsageError
from flint.frontends.torch.context import capture
from flint.frontends.torch.inductor import generated
from flint.frontends.torch.patching import around
from flint.frontends.torch.shims.values import known_number, unknown_integer
from flint.frontends.torch.user_lines import at_user_line
from flint.launching.stated_values import Numbers


def apply() -> None:
    """Follow both where no code is compiled, and tell compiled loops when they end."""
    around(utils, "_hop_compile_and_call", _followed)
    generated.ask(Loop)


class Loop:
    """A loop whose condition is asked before each iteration.

    loop = Loop()
    while loop.asked(x.sum() < 3): ...
    """

    def __init__(self) -> None:
        self._done, self._count, self._goes_on = 0, -1, True

    def asked(self, condition: Any) -> Loop:
        """The loop, true if it goes on: by the value of its condition, or a stated count."""
        known = _value(condition) if self._count < 0 else None
        if known is None and self._count < 0:
            self._count = _trip_count(at_user_line())
        self._goes_on = self._done < self._count if known is None else bool(known)
        self._done += 1
        return self

    def __bool__(self) -> bool:
        return self._goes_on


def _value(condition: Any) -> Any:
    """What a condition is; None if it is not known."""
    if not isinstance(condition, torch.Tensor):
        return condition
    if not isinstance(condition, FakeTensor):
        return condition.item()
    return known_number(condition, at_user_line())


def _trip_count(at: str) -> int:
    """The iterations of a loop that ends by a value which is not known."""
    place = at.removeprefix(" at ")
    stated = capture().unknown.stated.typed(place, "int", "a loop's condition")
    if stated is not None:
        count, said = stated
        capture().assume(said)
        return _checked(count, "--value")
    counts = capture().trip_counts
    given = Numbers(counts).at(place)
    given = counts.get("") if given is None else given
    if given is not None:
        capture().assume(f"while_loop{at}: {given:g} iterations, as --trip-count says")
        return _checked(given, "--trip-count")
    count = unknown_integer(
        f"while_loop{at} ends by a value on the device, which a capture does not have: state its "
        f"iterations (--trip-count N, or {place}=N; --value {place}=N of flint run)"
    )
    capture().assume(f"while_loop{at}: assumed to have {count} iteration")
    return count


def _checked(count: float, option: str) -> int:
    if count < 0:
        raise UsageError(f"{option} {count:g}: expected 0 or more")
    return int(count)


def _followed(compiled: Any, function: Any, args: Any, kwargs: Any = None) -> Any:
    """What PyTorch compiles in order to run it."""
    follow = _FOLLOWED.get(getattr(function, "__name__", ""))
    if follow is not None:
        return follow(*args)
    try:
        return compiled(function, args, kwargs)
    except NotImplementedError as error:
        op = re.search(r"registered for HigherOrderOperator (\w+)", str(error))
        if op is None:
            raise
        raise FlintError(
            f"{op[1]}{at_user_line()} is an op of PyTorch that calls functions, which a capture "
            "does not follow: write it as a loop in Python"
        ) from error


def _cond(condition: Any, if_true: Any, if_false: Any, operands: Any) -> Any:
    return _recomputed(if_true if condition else if_false, *operands)


def _while_loop(condition: Any, body: Any, carried: Any, more: Any) -> Any:
    loop, carried = Loop(), tuple(carried)
    while loop.asked(condition(*carried, *more)):
        carried = tuple(_recomputed(body, *carried, *more))
    return carried


def _recomputed(function: Callable[..., Any], *operands: Any) -> Any:
    """A call that a backward pass repeats: only operands are kept."""
    return checkpoint(function, *operands, use_reentrant=False, preserve_rng_state=False)


#: What PyTorch gives Dynamo, by name -> what follows it here.
_FOLLOWED: Mapping[str, Callable[..., Any]] = {
    "_cond_op_wrapper": _cond, "_while_loop_op_wrapper": _while_loop,
}  # fmt: skip
