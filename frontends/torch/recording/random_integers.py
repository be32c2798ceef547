"""Whole numbers that a program draws: ``torch.randint(1, 8, (1,), device="cuda").item()``.

The idea: those of the host decide which rows a batch has, and are drawn as in a run.  One number
that the device draws is a size or a place (a crop, where two styles meet, how many layers run): a
capture draws it too, of the same range, the same on every rank, and says so where it is read.
Larger tensors of the device are data, and a number without a range has none that is likely.

    random_integer(values, result, 1, 8)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch._subclasses.fake_tensor import unset_fake_temporarily

from flint.frontends.torch.context import capture
from flint.frontends.torch.recording.known_values import (
    MOST,
    Known,
    all_known,
    follow,
    forget,
    known_of,
)
from flint.frontends.torch.user_lines import at_user_line

_aten = torch.ops.aten
#: Ops that draw the order of numbers.
_ORDERS = (_aten.randperm.default, _aten.randperm.generator)


def random_integer(values: Any, tensor: torch.Tensor, low: int, high: int) -> None:
    """Note the number that a tensor of one whole number gets, of ``low`` to ``high - 1``."""
    forget(values, tensor)
    if tensor.numel() != 1 or tensor.is_floating_point() or high <= low:
        return
    known = capture()
    known.drawn_integers += 1
    with unset_fake_temporarily():
        generator = torch.Generator().manual_seed(known.drawn_integers)
        value = torch.randint(low, high, tensor.shape, generator=generator, dtype=tensor.dtype)
    origin = f"a random number of {low} to {high - 1}, drawn{at_user_line()}"
    values[tensor] = Known(value, origin)


def _made(values: Any, op: Any, args: Any, kwargs: Any, result: torch.Tensor) -> None:
    """New integers: the host's decide where it reads."""
    if result.device.type == "cpu":
        if result.numel() <= MOST:
            with unset_fake_temporarily():
                values[result] = Known(op(*args, **kwargs), alike=False)
    elif op not in _ORDERS:
        ends = [item for item in args[:2] if isinstance(item, int)]
        random_integer(values, result, *([0, *ends][-2:]))


def _written(values: Any, _: Any, args: Any, kwargs: Any, result: torch.Tensor) -> None:
    """Integers that are drawn in place of others."""
    ends = [*args[1:3], *(kwargs[name] for name in ("from", "to") if name in kwargs)]
    random_integer(values, result, *([0, *ends][-2:] if None not in ends else (0, 0)))


def _one_of_two(values: Any, op: Any, args: Any, kwargs: Any, result: torch.Tensor) -> None:
    """A number that a condition chooses; one that is not known is False, as a bool is."""
    known = all_known(values, op, args, kwargs)
    follow(values, op, args, kwargs, result, known)
    is_one = result.numel() == 1 and not result.is_floating_point()
    if known or not is_one or known_of(values, args[0]) is not None:
        return
    first, second = known_of(values, args[1]), known_of(values, args[2])
    if first is None or second is None:
        return
    origin = second.origin or f"a condition, assumed to be False{at_user_line()}"
    with unset_fake_temporarily():
        values[result] = Known(second.value.reshape(result.shape).clone(), origin)


def _split(values: Any, op: Any, args: Any, kwargs: Any, result: torch.Tensor) -> None:
    """How many of known numbers fall to one part (k-means draws its samples from the ranks so)."""
    known = all_known(values, op, args[:2], {})
    if known and result.numel() <= MOST:
        count = capture().drawn_integers = capture().drawn_integers + 1
        with unset_fake_temporarily():
            generator = torch.Generator().manual_seed(count)
            value = op(*(item.value for item in known), generator)
        values[result] = Known(value, f"random numbers, drawn{at_user_line()}")


#: Op -> the function that notes the value of its result.
DRAWN: Mapping[Any, Callable[[Any, Any, Any, Any, Any], None]] = {
    **dict.fromkeys(
        (
            _aten.randint.default, _aten.randint.low, _aten.randint.generator,
            _aten.randint.low_generator, *_ORDERS,
        ),
        _made,
    ),
    **dict.fromkeys((getattr(_aten.random_, "from"), _aten.random_.to), _written),
    _aten.where.self: _one_of_two,
    _aten.binomial.default: _split,
}  # fmt: skip
