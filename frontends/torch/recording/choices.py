"""A router's choices, where a program makes masks of them.

The idea: which items a row picks (``scores.topk(2)``) depends on values.  Many programs do not
count the choices but mark them (``zeros.scatter(1, choices, 1)``, ``one_hot``, ``choices ==
expert``) and take the marked rows, whose number decides sizes.  So a mark has a value: choices that
spread as ``flint.graph.routing`` says, no row choosing an item twice.  It is made when a mark needs
it; the choices themselves have no value (the most probable class is not a router's choice).

    chosen = scores.topk(2).indices               # deferred
    mask = torch.zeros_like(scores).scatter(1, chosen, 1.0)
    tokens[mask[:, 0].bool()]                     # as many rows as the first item is chosen
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch._subclasses.fake_tensor import unset_fake_temporarily

from flint.frontends.torch.context import capture
from flint.frontends.torch.recording.known_values import MOST_CHOSEN, Known
from flint.frontends.torch.recording.schemas import flat, tensors_in
from flint.frontends.torch.recording.spread_choices import spread
from flint.frontends.torch.user_lines import at_user_line

_aten = torch.ops.aten


@dataclass(frozen=True, slots=True)
class Deferred:
    """A value that is made when it is needed.

    Attributes:
        make: makes it, on the CPU.
        origin: what it follows from; "": it is exact, the same number in every element.
    """

    make: Callable[[], torch.Tensor]
    origin: str = ""


def marks(op: Any, args: Any, kwargs: Any) -> Known | None:
    """What an op makes of choices, before it is done: a mark of the chosen items.

    Args:
        op: that is dispatched.
        args, kwargs: its arguments.

    Returns:
        The knowledge about its result; None if the op marks no choices.
    """
    rule = _MARKS.get(op)
    if rule is None or not capture().deferred:
        return None
    return rule(op, *args, **kwargs)


@contextlib.contextmanager
def listed(values: Any, op: Any, args: Any) -> Iterator[None]:
    """Within it, choices are known if an op lists the different ones (``chosen.unique()``)."""
    places = capture().deferred.get(args[0]) if op in _DISTINCT else None
    if places is None or not places.origin:
        yield
        return
    with unset_fake_temporarily():
        values[args[0]] = Known(places.make(), places.origin, chosen=True)
    try:
        yield
    finally:
        del values[args[0]]


def defer(op: Any, args: Any, kwargs: Any, result: Any) -> None:
    """Note choices, tensors of one number, and forms of these, after the op was done."""
    rule = _DEFERRED.get(op)
    if rule is not None:
        rule(op, args, kwargs, result)


# Where deferred values come from.


def _filled(number: int | None) -> Callable[[Any, Any, Any, Any], None]:
    """Zeros, ones and ``full``."""

    def note(op: Any, args: Any, kwargs: Any, result: torch.Tensor) -> None:
        given = args[1] if number is None else number
        shape, dtype = result.shape, result.dtype
        if isinstance(given, int | float):
            capture().deferred[result] = Deferred(
                lambda: torch.full((), given, dtype=dtype).expand(shape)
            )

    return note


def _topk(op: Any, args: Any, kwargs: Any, result: Any) -> None:
    scores, dim = args[0], args[2] if len(args) > 2 else -1
    if scores.dim():
        _choose(scores, scores.shape[dim], dim, result[1], result[1].shape)


def _argmax(op: Any, args: Any, kwargs: Any, result: Any) -> None:
    scores, dim = args[0], args[1] if len(args) > 1 else None
    if not scores.dim():
        return
    index = result[1] if isinstance(result, tuple | list) else result
    shape = list(scores.shape)
    if dim is None:
        _choose(scores, scores.numel(), 0, index, torch.Size((1,)))
        return
    items, shape[dim] = shape[dim], 1
    _choose(scores, items, dim, index, torch.Size(shape))


def _sampled(op: Any, args: Any, kwargs: Any, result: torch.Tensor) -> None:
    """One sample of each row: a policy's action, a word."""
    if args[1] == 1:
        _choose(args[0], args[0].shape[-1], -1, result, result.shape)


def is_chosen(tensor: torch.Tensor) -> bool:
    """Whether numbers of a whole program are places along a dim of scores that are not known: a
    choice, no count."""
    noted = capture().deferred.get(tensor)
    return capture().begins_group and noted is not None and bool(noted.origin)


def _choose(
    scores: torch.Tensor, items: int, dim: int, index: torch.Tensor, shape: torch.Size
) -> None:
    """Note the choice of places along a dim of scores that are not known."""
    if not scores.is_floating_point() or not scores.numel() or scores in capture().known_values:
        return
    routing, form = capture().routing, index.shape
    if routing.experts and routing.experts != items:
        return
    origin = f"{routing.name} routing: {index.numel()} choices among {items} experts, made"
    origin += at_user_line()
    capture().deferred[index] = Deferred(lambda: spread(shape, dim, items).view(form), origin)


def _form(op: Any, args: Any, kwargs: Any, result: Any) -> None:
    """The same elements in another form or type, or in parts, or each divided by a number (which
    rank has an expert)."""
    first, *rest = args
    if not isinstance(first, torch.Tensor) or any(isinstance(item, torch.Tensor) for item in rest):
        return
    before = capture().deferred.get(first)
    if before is None:
        return
    plain = {**kwargs, "device": torch.device("cpu")} if "device" in kwargs else kwargs

    def made(at: int) -> torch.Tensor:
        found: torch.Tensor = flat(op(before.make(), *rest, **plain))[at]
        return found

    for at, part in enumerate(flat(result)):
        capture().deferred[part] = Deferred(partial(made, at), before.origin)


# What is made of them.


def _scatter(
    op: Any, target: torch.Tensor, dim: int, index: torch.Tensor, source: Any
) -> Known | None:
    """One number, at chosen places of zeros."""
    zeros, number = capture().deferred.get(target), _number(source)
    if zeros is None or zeros.origin or not number or not index.numel():
        return None
    if target.numel() > MOST_CHOSEN:
        return None
    with unset_fake_temporarily():
        value = zeros.make()
        places = None if bool(value.any()) else _places_in(index, dim, target.shape)
        if places is None:
            return None
        return replace(places, value=value.contiguous().scatter(dim, places.value, number))


def _places_in(index: torch.Tensor, dim: int, marked: torch.Size) -> Known | None:
    """The places that an index holds: known ones, or choices."""
    known: Known | None = capture().known_values.get(index)
    chosen = capture().deferred.get(index)
    if known is not None:
        return replace(known, chosen=True)
    if chosen is None and dim % len(marked) == len(marked) - 1:
        chosen = _chosen_now(index, dim, marked[dim])
    if chosen is None or not chosen.origin:
        return None
    return Known(chosen.make(), chosen.origin, chosen=True)


def _chosen_now(index: torch.Tensor, dim: int, items: int) -> Deferred | None:
    """Choices whose making was not seen (sorted, received)."""
    routing, shape = capture().routing, index.shape
    if routing.experts and routing.experts != items:
        return None
    origin = f"{routing.name} routing: {index.numel()} choices among {items} experts, marked"
    return Deferred(lambda: spread(shape, dim, items), origin + at_user_line())


def _number(source: Any) -> int | float | None:
    """The number in every element; None if it is not known."""
    if not isinstance(source, torch.Tensor):
        return source if isinstance(source, int | float) else None
    filled = capture().deferred.get(source)
    if filled is None or filled.origin or not source.numel():
        return None
    with unset_fake_temporarily():
        number: int | float = filled.make().flatten()[0].item()
    return number


def _equal(op: Any, *pair: Any) -> Known | None:
    """Which choices are an item, or which of several items each is.

    Items that are compared element by element are not that, but what is known of each row (labels).
    """
    deferred = [capture().deferred.get(item) for item in pair if isinstance(item, torch.Tensor)]
    origin = next((item.origin for item in deferred if item is not None and item.origin), "")
    every = math.prod(item.numel() for item in tensors_in(pair))
    values = [_operand(item) for item in pair]
    if not origin or every > MOST_CHOSEN or any(value is None for value in values):
        return None
    with unset_fake_temporarily():
        found: torch.Tensor = op(*values)
    return Known(found, origin, chosen=True) if found.numel() == every else None


def _operand(item: Any) -> Any:
    """What is compared: choices, known items or a number."""
    if not isinstance(item, torch.Tensor):
        return item
    places, known = capture().deferred.get(item), capture().known_values.get(item)
    if known is not None or places is None or not places.origin:
        return None if known is None else known.value
    with unset_fake_temporarily():
        return places.make()


_DISTINCT = (_aten._unique2.default, _aten.unique_consecutive.default)
#: Op -> the function that gives the value of its result, if it marks choices.
_MARKS: Mapping[Any, Callable[..., Known | None]] = {
    **dict.fromkeys(
        (
            _aten.scatter.value, _aten.scatter_.value, _aten.scatter.src, _aten.scatter_.src,
        ),
        _scatter,
    ),
    **dict.fromkeys((_aten.eq.Tensor, _aten.eq.Scalar), _equal),
}  # fmt: skip

#: Op -> the function that notes its result as deferred.
_DEFERRED: Mapping[Any, Callable[[Any, Any, Any, Any], None]] = {
    **dict.fromkeys(
        (_aten.zeros.default, _aten.zeros_like.default, _aten.new_zeros.default), _filled(0)
    ),
    **dict.fromkeys(
        (_aten.ones.default, _aten.ones_like.default, _aten.new_ones.default), _filled(1)
    ),
    **dict.fromkeys((_aten.full.default, _aten.full_like.default), _filled(None)),
    _aten.topk.default: _topk,
    _aten.multinomial.default: _sampled,
    **dict.fromkeys(
        (_aten.argmax.default, _aten.max.dim, _aten.argmin.default, _aten.min.dim), _argmax
    ),
    **dict.fromkeys(
        (
            _aten._to_copy.default, _aten.clone.default, _aten.detach.default, _aten.view.default,
            _aten._unsafe_view.default, _aten.reshape.default, _aten.unsqueeze.default,
            _aten.squeeze.dim, _aten.squeeze.default, _aten.squeeze.dims, _aten.t.default,
            _aten.transpose.int, _aten.permute.default, _aten.expand.default,
            _aten.slice.Tensor, _aten.select.int, _aten.alias.default, _aten.unbind.int,
            _aten.floor_divide.default, _aten.floor_divide.Scalar, _aten.div.Tensor_mode,
            _aten.div.Scalar_mode, _aten.remainder.Scalar,
        ),
        _form,
    ),
}  # fmt: skip
