"""Counts of right choices, and words that were chosen: numbers of which no size follows.

The idea: a program compares, item by item, what a model has chosen with what it should have chosen,
and reads how often they are equal (an accuracy).  Such a count has no known value, and is needed
for no shape, so it is told apart from other integers, which are (``shims/values.py``).  Choices are
places of the greatest scores, samples, and scores that were rounded or compared with a number.

A sequence into which choices were put (a generated text) holds words; they, too, are no counts.

    right = (logits.argmax(-1)[mask] == labels[mask]).sum()       # is_count(right)
    seen = (scores > 0.5).sum()                                   # a size: it is not
    text = torch.cat([text, logits.argmax(-1)[:, None]], dim=1)   # is_text(text)
"""

from __future__ import annotations

from typing import Any

import torch

from flint.frontends.torch.context import capture
from flint.frontends.torch.recording.choices import is_chosen
from flint.frontends.torch.recording.schemas import flat, tensors_in

_aten = torch.ops.aten
_CHOICE, _COUNT, _TEXT, _PICKED = "choice", "count", "text", "picked"

#: Ops that choose for each item, whose choices ``recording/choices.py`` does not note.
_DECIDING = frozenset(
    (_aten.gt.Scalar, _aten.ge.Scalar, _aten.lt.Scalar, _aten.le.Scalar, _aten.round.default,
     _aten.sign.default)
)  # fmt: skip
_COMPARING = frozenset((_aten.eq.Tensor, _aten.ne.Tensor))
#: Ops whose result is some of the items of the first argument, or all of them in another form.
_SAME = frozenset(
    (
        _aten._to_copy.default, _aten.clone.default, _aten.detach.default, _aten.view.default,
        _aten._unsafe_view.default, _aten.reshape.default, _aten.unsqueeze.default,
        _aten.squeeze.dim, _aten.squeeze.default, _aten.squeeze.dims, _aten.t.default,
        _aten.transpose.int, _aten.permute.default, _aten.expand.default, _aten.slice.Tensor,
        _aten.select.int, _aten.alias.default, _aten.unbind.int,
    )
)  # fmt: skip
#: The same of ops that pick items by numbers.
_PICKING = frozenset(
    (
        _aten.index.Tensor, _aten.index_select.default, _aten.masked_select.default,
        _aten.gather.default,
    )
)  # fmt: skip
#: Ops that count what is marked in any of their arguments, or select some of it.
_COUNTING = frozenset(
    (
        _aten.sum.default, _aten.sum.dim_IntList, _aten.count_nonzero.default,
        _aten.count_nonzero.dim_IntList, _aten.logical_and.default, _aten.bitwise_and.Tensor,
        _aten.mul.Tensor, _aten.add.Tensor, _aten.add_.Tensor, _aten.sub.Tensor, _aten.rsub.Scalar,
        _aten.logical_not.default, _aten.bitwise_not.default, _aten.stack.default,
        _aten.cat.default,
    )
)  # fmt: skip
#: Ops that put words into a text, or blanks in their places after its end.
_WRITING = frozenset(
    (
        _aten.cat.default, _aten.stack.default, _aten.mul.Tensor, _aten.where.self,
        _aten.where.ScalarSelf, _aten.where.ScalarOther, _aten.masked_fill.Scalar,
        _aten.masked_fill.Tensor,
    )
)  # fmt: skip


def is_text(tensor: torch.Tensor) -> bool:
    """Whether an integer is a word that a model has chosen, or one of a text with such words."""
    return bool(capture().judged.get(tensor) == _TEXT)


def is_picked(tensor: torch.Tensor) -> bool:
    """Whether an integer is one of several choices among scores, picked by a number or a mask."""
    return bool(capture().judged.get(tensor) == _PICKED)


def is_count(tensor: torch.Tensor) -> bool:
    """Whether an integer says how often choices were right."""
    return bool(capture().judged.get(tensor) == _COUNT)


def judge(op: Any, args: Any, kwargs: Any, result: Any) -> None:
    """Note what an op makes of choices, after it was done."""
    if not capture().begins_group or op.namespace != "aten" or not args:
        return
    kind = _kind(op, args, result)
    if kind:
        for tensor in flat(result):
            if isinstance(tensor, torch.Tensor):
                capture().judged[tensor] = kind
    elif op._schema.is_mutable and isinstance(args[0], torch.Tensor):
        capture().judged.pop(args[0], None)


def _kind(op: Any, args: Any, result: Any) -> str:
    """What is known of an op's result; "" if nothing is."""
    if op in _DECIDING:
        return _CHOICE if args[0].is_floating_point() else ""
    judged = capture().judged
    if op in _SAME or op in _PICKING:
        if is_chosen(args[0]):
            return _CHOICE if op in _SAME else _PICKED
        found: str = judged.get(args[0], "")
        return found
    if op in _COMPARING:
        one, other = args[:2]
        each = one.numel() == other.numel() == result.numel()
        return _COUNT if each and any(map(_is_choice, (one, other))) else ""
    if op is _aten.copy_.default:
        return _COUNT if judged.get(args[1]) == _COUNT else ""
    if op in _COUNTING and any(judged.get(item) == _COUNT for item in tensors_in(args)):
        return _COUNT
    return _TEXT if _holds_words(op, args, result) else ""


def _holds_words(op: Any, args: Any, result: Any) -> bool:
    """Whether a result is of integers, and some of them are chosen words."""
    given = list(tensors_in(args))
    if op is _aten.add.Tensor:  # words where a text goes on, blanks where it does not
        return len(given) == 2 and any(map(is_text, given))
    if op not in _WRITING or result.dtype is not torch.int64:
        return False
    return any(is_chosen(item) or is_text(item) for item in given)


def _is_choice(tensor: torch.Tensor) -> bool:
    return is_chosen(tensor) or capture().judged.get(tensor) in (_CHOICE, _PICKED)
