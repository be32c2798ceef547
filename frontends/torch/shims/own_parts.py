"""What a function is given on every rank: the numbers of the rank among its arguments.

The idea: arguments may hold numbers of the rank in lists, tuples, dicts and slices.  Ranks that are
given the same are of one kind, of which one is asked; its arguments are this rank's, with each part
replaced.

    kinds, first = kinds_of([everywhere(rank % 4), everywhere(rank // 4)])
    replaced([rank, (1, rank)], lambda part: 7 if part is rank else part)        # [7, (1, 7)]
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from flint.frontends.torch.evidence import Kinds

#: Of more different ranks, or more elements of all of them, what others get is not computed.
MOST_KINDS, MOST_ELEMENTS = 1024, 1 << 21
#: What is read on a rank on which a function fails: no number that a program compares with.
NO_NUMBER = -(1 << 31)


def parts(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Iterator[Any]:
    """Arguments, and what is in lists of them, in dicts and in slices."""
    for item in itertools.chain(args, kwargs.values()):
        if isinstance(item, list | tuple):
            yield from parts(tuple(item), {})
        elif type(item) is dict:
            yield from parts(tuple(item.values()), {})
        elif isinstance(item, slice):
            yield from (item.start, item.stop, item.step)
        else:
            yield item


def kinds_of(columns: Sequence[Any]) -> tuple[Kinds, list[int]]:
    """Which ranks are given the same, [world], and the first of each kind.

    Args:
        columns: the values of each part on all ranks, or their kinds, each [world].
    """
    kinds, first = _codes(columns[0]), None
    for column in columns[1:]:
        codes = _codes(column)
        kinds = np.unique(kinds * (int(codes.max()) + 1) + codes, return_inverse=True)[1]
        kinds = kinds.reshape(-1)
    _, first, kinds = np.unique(kinds, return_index=True, return_inverse=True)
    return kinds.reshape(-1), first.tolist()


def _codes(column: Any) -> Any:
    return np.unique(column, return_inverse=True)[1].reshape(-1).astype(np.int64)


def replaced(item: Any, part: Callable[[Any], Any]) -> Any:
    """An argument with each of its parts replaced."""
    if isinstance(item, list | tuple):
        made = [replaced(each, part) for each in item]
        if isinstance(item, list):
            return made
        return type(item)(*made) if hasattr(item, "_fields") else tuple(made)
    if type(item) is dict:
        return {key: replaced(each, part) for key, each in item.items()}
    if isinstance(item, slice):
        return slice(*(replaced(end, part) for end in (item.start, item.stop, item.step)))
    return part(item)


def told_apart(kinds: Kinds, values: Sequence[Any], what: Callable[[Any], str]) -> Kinds:
    """Kinds of ranks by something about their values, named alike whichever rank asks, [world]."""
    names = np.unique([what(item) for item in values], return_inverse=True)[1]
    return names.reshape(-1)[kinds].astype(np.int64)
