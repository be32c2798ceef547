"""Steps of a loop that nothing marks and no optimizer ends: inference, decoding, a benchmark.

The idea: a loop calls the same ops again, at least three times.  So do the layers of a model within
one step, and those are not steps.  Four things tell a loop of steps: all of the heavy ops are in
the repetitions (a model has an embedding, a head or a stem outside of its layers) or in a first
step that does as much (a prompt before the tokens); weights have the same shapes each time; and a
repetition holds layers that repeat themselves, or what a step does once (it looks up tokens, loads
a batch, begins to compute gradients).  Where one is missing, nothing is cut.

    loop_of(Ran(start, over, thread, kind, [("aten::mm", None), ...]))   # [(0, 70), (80, 150)]
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import Final, NamedTuple

import numpy as np

from flint.graph.distinct import distinct
from flint.mesh.ragged import Ints
from flint.observed.classes import aten_class, base_name

#: How an op of the backward pass begins.
BACKWARD: Final = "autograd::engine::evaluate_function"
#: Prefix of an optimizer's annotation.
UPDATE: Final = "Optimizer.step#"
#: A step repeats at least so often.
_LEAST: Final = 3
#: More ops than a trace is searched for repetitions, and the longest layer that is looked for.
_MOST, _LAYER = 1 << 20, 512
#: What a model does once in a step, and not in each of its layers.
_ONCE: Final = frozenset({"embedding", "embedding_bag", "_embedding_bag", "multinomial"})
_COLLECTIVES: Final = ("c10d::", "_c10d_functional::", "record_param_comms")
#: Where the weights stand among the operands of an op.
_WEIGHTS: Final = {
    "linear": 1, "conv1d": 1, "conv2d": 1, "conv3d": 1, "convolution": 1, "addmm": 2,
}  # fmt: skip


class Ran(NamedTuple):
    """What ran in a process, one entry per op in any order.

    Attributes:
        start, over: when it began and ended, on any scale.
        thread: that it ran on, as a number.
        kind: index into ``kinds``.
        kinds: an op's name, and the shapes of its operands where they are known.
    """

    start: Ints
    over: Ints
    thread: Ints
    kind: Ints
    kinds: Sequence[tuple[str, object]]


def loop_of(ran: Ran) -> list[tuple[int, int]]:
    """Begin and end of each step of a clear loop, in order; none without.

    What counts are the ops inside of no other, on the thread that calls most of them, each with
    what is inside of it.  Gradients may be computed on a thread of their own.
    """
    if not len(ran.start):
        return []
    names = [name for name, _ in ran.kinds]
    heavy, once, backward = (
        np.array([holds(name) for name in names], np.bool_)[ran.kind]
        for holds in (is_heavy, _is_once, _is_backward)
    )
    if not heavy.any() or (len(names) == 1 and not once.any()):
        return []
    order = np.lexsort((-ran.over, ran.start))
    outer, own = max(
        (_outermost(ran, order[ran.thread[order] == thread]) for thread in distinct(ran.thread)),
        key=lambda found: int((~backward[found[0]]).sum()),
    )
    begins = ran.start[outer]
    does = [np.zeros(len(outer), np.bool_) for _ in range(2)]
    for found, holds in zip(does, (heavy, once), strict=True):
        inside = own[holds[own]]
        found[np.searchsorted(begins, ran.start[inside], side="right") - 1] = True
    computed = np.flatnonzero(backward)
    before = np.searchsorted(begins, ran.start[computed], side="right") - 1
    before = before - (ran.thread[computed] == ran.thread[outer[0]])
    before = before[before >= 0]
    does[1][before[~backward[outer[before]]]] = True  # gradients begin to be computed after it
    tokens: dict[object, int] = {}
    number = np.array([tokens.setdefault(_token(*kind), len(tokens)) for kind in ran.kinds])
    bounds = steps_of(number[ran.kind[outer]].tolist(), does[0].tolist(), does[1].tolist())
    ends = np.append(begins, ran.over.max() + 1)[bounds]
    return list(pairwise(ends.tolist()))


def named(steps: Sequence[tuple[int, int]]) -> list[tuple[int, int, str]]:
    """Steps with the names that ``--step`` has for them."""
    return [(start, end, f"step#{number}") for number, (start, end) in enumerate(steps)]


def _outermost(ran: Ran, own: Ints) -> tuple[Ints, Ints]:
    """Those of a thread's ops, in order, that are inside of no other; and all of them."""
    until = np.maximum.accumulate(ran.over[own])
    return own[np.append(True, ran.start[own][1:] >= until[:-1])], own


def is_heavy(name: str) -> bool:
    """Whether an op is a product, a convolution, attention or a collective."""
    return aten_class(name).must_match or name.startswith(_COLLECTIVES)


def _is_once(name: str) -> bool:
    """Whether an op is one of those that a step does once."""
    return base_name(name) in _ONCE or "DataLoader" in name


def _is_backward(name: str) -> bool:
    return name.startswith(BACKWARD)


def _token(name: str, shapes: object) -> object:
    """What makes two ops the same: their names and the shapes of their weights."""
    place = _WEIGHTS.get(base_name(name))
    if place is None or not isinstance(shapes, list) or len(shapes) <= place:
        return name
    return name, str(shapes[place])


def steps_of(ops: Sequence[int], heavy: Sequence[bool], once: Sequence[bool]) -> list[int]:
    """The begins of steps and the end of the last one, as places in ``ops``; none unless clear.

    Args:
        ops: those inside of no other, of one thread, in order, as numbers.
        heavy: of each, whether it or anything inside of it is heavy.
        once: of each, whether a step does it once, or anything inside of it.
    """
    telling = [one or other for one, other in zip(heavy, once, strict=True)]
    if not any(telling) or len(ops) > _MOST:
        return []
    bounds = _after_nothing(ops, telling) or _after_a_first(ops, telling)
    if not bounds:
        return []
    low, high = bounds[-2:]
    inside = any(once[low:high]) or has_layers(np.array(ops[low:high]), heavy[low:high])
    return bounds if inside and any(heavy[low:high]) else []


def _after_nothing(ops: Sequence[int], telling: Sequence[bool]) -> list[int]:
    """Steps before which the trace does nothing that tells; [] where there are none."""
    first = telling.index(True)
    length, period = _repeated(ops[first:])
    end = first + length
    while period and first and ops[first - 1] == ops[first - 1 + period]:
        first -= 1
    count = (end - first) // period if period else 0
    rest = range(first + count * period, len(ops))
    whole = not any(telling[place] for place in rest) or len(ops) == end
    return [first + number * period for number in range(count + 1)] if whole and count else []


def _after_a_first(ops: Sequence[int], telling: Sequence[bool]) -> list[int]:
    """Steps that end with the trace, after a first one that does as much; [] without."""
    last = len(ops) - telling[::-1].index(True)
    length, period = _repeated(ops[last - 1 :: -1])
    if not period:
        return []
    while last < len(ops) and ops[last] == ops[last - period]:
        last += 1
        length += 1
    bounds = [last - number * period for number in range(length // period, -1, -1)]
    low, high = bounds[:2]
    before, step = (
        Counter(ops[place] for place in part if telling[place])
        for part in (range(low), range(low, high))
    )
    if not before:
        return bounds
    return [0, *bounds] if before == step else []


def _repeated(ops: Sequence[int]) -> tuple[int, int]:
    """The longest beginning that is one part again and again: its length and the part's; (0, 0)."""
    longest = period = matched = 0
    borders = [0] * len(ops)  # of each beginning the longest proper one that also ends it
    for place in range(1, len(ops)):
        while matched and ops[place] != ops[matched]:
            matched = borders[matched - 1]
        matched += ops[place] == ops[matched]
        borders[place] = matched
        part = place + 1 - matched
        if _LEAST * part <= place + 1:
            longest, period = place + 1, part
    return longest, period


def has_layers(ops: Ints, heavy: Sequence[bool]) -> bool:
    """Whether several ops, one of them heavy, follow each other twice."""
    places = np.flatnonzero(heavy)
    for size in range(2, min(_LAYER, len(ops) // 2) + 1):
        differs = np.flatnonzero(np.append(ops[size:] != ops[:-size], True))
        begins = np.append(0, differs[:-1] + 1)
        for begin in begins[differs - begins >= size].tolist():
            if np.searchsorted(places, begin) < np.searchsorted(places, begin + size):
                return True
    return False
