"""Steps of a profile without step marks, as from ``torch.profiler`` without a schedule.

The idea: every optimizer annotates its own step; where none does, a loop repeats itself
(``repeats``).  If the same gradients were computed before two of the former, they end equal steps;
models trained in turns (a GAN), and optimizers that step at different rates, repeat after several.
Anything that does not repeat is never
cut.  Ops after an update belong to the next step, or to the end of this one (averaging a loss,
setting gradients to zero).  The first step decides: the profile begins with it, so the next begins
where the ops are again as at the beginning.

    found = steps_of(events.ops, events.updates, events.arguments)
    found.steps                                 # [(0, 70, "step#0"), (80, 150, "step#1")]
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final, NamedTuple

from flint.converters.profilers.kineto.events import Op
from flint.converters.profilers.repeats import BACKWARD, UPDATE, named

#: Suffix of the op that accumulates a parameter's gradient.
_GRADIENT: Final = "AccumulateGrad"
#: This many consecutive ops identify the start of a step.
_ALIKE: Final = 16


class Found(NamedTuple):
    """The result of analysing the optimizers' steps.

    Attributes:
        steps: start, end and name of each training step, in order; none if fewer than two are
            equal.
        updates: number of optimizer steps; consecutive ones of several optimizers count once.
    """

    steps: list[tuple[int, int, str]]
    updates: int


def updates_of(ops: Iterable[Op]) -> list[tuple[int, int, str]]:
    """Begin, end and name of optimizers' steps that were recorded as ops."""
    return [(op.start, op.start + op.duration, op.name) for op in ops if op.name.startswith(UPDATE)]


def uncut(updates: int) -> str:
    """The note about a trace with several updates of an optimizer that is treated as one step."""
    return (
        f"an optimizer steps {updates} times in what is treated as one step, because the "
        "gradients before each do not repeat themselves: call profiler.step() after each"
    )


def steps_of(
    ops: Iterable[Op],
    updates: Iterable[tuple[int, int, str]],
    arguments: Sequence[Mapping[str, Any]],
) -> Found:
    """The steps of one process whose profile has no marks.

    Args:
        ops: its ops, in any order.
        updates: begin, end and name of optimizers' steps that are not ops.
        arguments: what the ops' ``arguments`` index.
    """
    stepped = sorted({*updates, *updates_of(ops)})
    if len(stepped) < 2:
        return Found([], len(stepped))
    spans = [(start, end) for start, end, _ in stepped]
    ops = sorted(ops, key=lambda op: (op.start, -op.duration))
    backward = [op for op in ops if op.name.startswith(BACKWARD)]
    ends = _ends(_outside(spans, backward), [op.start for op in backward])
    kinds = _gradients(arguments, ops, ends)
    by_name = _with_names(kinds, stepped, ends)
    period, partial, more = _period(by_name) or _period(kinds), False, False
    if not period and len(kinds) > 2:
        partial = kinds[0] < kinds[1] and _within_backward(ops, spans)
        more = kinds[0] > kinds[1] and _same_parameters(arguments, ops, spans, ends)
        period = (_period(by_name[1:]) or _period(kinds[1:])) if partial or more else 0
    if not period:
        return Found([], len(ends))
    first = ends[: partial or more]
    whole = [*first, *ends[len(first) :][period - 1 :: period]]
    found = _cut_off(ops[0].start, whole) if partial else _steps(ops, spans, whole)
    return Found(named(found), len(ends))


def _within_backward(ops: Sequence[Op], updates: Sequence[tuple[int, int]]) -> bool:
    """Whether a profile begins in a backward pass: the calling thread does nothing before it."""
    first = next(op.start for op in ops if op.name.startswith(BACKWARD))
    return _outermost(ops, updates)[0].start >= first


def _same_parameters(
    arguments: Sequence[Mapping[str, Any]],
    ops: Sequence[Op],
    updates: Sequence[tuple[int, int]],
    ends: Sequence[int],
) -> bool:
    """Whether the first update is of the same parameters as the second, judged by shapes.

    Then the first step only does additional work, like a pipeline that finds the shapes of
    messages.
    """
    made: list[Counter[tuple[str, str]]] = []
    for before, end in ((0, ends[0]), (ends[0], ends[1])):
        spans = [span for span in updates if before < span[1] <= end]
        inside = [op for op in ops if any(low <= op.start < high for low, high in spans)]
        made.append(Counter(_described(arguments, op) for op in inside))
    return any(shapes for _, shapes in made[1]) and made[1] <= made[0]


def _described(arguments: Sequence[Mapping[str, Any]], op: Op) -> tuple[str, str]:
    """An op's name and its argument shapes; "" if not recorded."""
    shapes = arguments[op.arguments].get("Input Dims")
    return op.name, str(shapes) if shapes else ""


def _cut_off(begin: int, ends: Sequence[int]) -> list[tuple[int, int]]:
    """Steps of a profile that does not show their starts: each lasts to the end of its last
    update.
    """
    return list(pairwise([begin, *ends]))


def _steps(
    ops: Sequence[Op], updates: Sequence[tuple[int, int]], ends: Sequence[int]
) -> list[tuple[int, int]]:
    """Start and end of each step, from the ends of their last updates, two or more.

    Args:
        ops: the ops in order.
        updates: start and end of each update.
        ends: ends of the steps' last updates, ascending.
    """
    issued = _outermost(ops, updates)
    starts = [op.start for op in issued]
    parts = [0, *(bisect_left(starts, end) for end in ends)]
    if len(set(parts)) < len(parts):
        return []  # a step in which the calling thread does nothing does not count
    begin = [op.name for op in issued[: min(_ALIKE, parts[1])]]
    names = [op.name for op in issued]
    begins = [
        first + (_begin(names[first:last], begin, _forward(names[first:last])) or 0)
        for first, last in pairwise(parts)
    ]
    last, over = ends[-1], max(op.start + op.duration for op in ops) + 1
    rest = names[parts[-1] :]
    if begins[-1] > parts[-2]:  # something follows every optimizer step, also the last
        following = _begin(rest, begin, _forward(rest))
        last = over if following is None else max(last, starts[parts[-1] + following])
    elif 0 < len(rest) <= _ALIKE and all(
        names[part : part + len(rest)] == rest for part in parts[1:]
    ):  # the profile begins with something else, and ends with what follows each update
        begins[1:] = [part + len(rest) for part in parts[1:-1]]
        last = over
    bounds = [starts[place] for place in begins]
    bounds[0] = min(bounds[0], ops[0].start)
    return list(pairwise([*bounds, last]))


def _outside(
    updates: Sequence[tuple[int, int]], backward: Sequence[Op]
) -> Sequence[tuple[int, int]]:
    """Updates that are not made within the backward pass, as by a hook on each parameter."""
    begins = [op.start for op in backward]
    found = []
    for start, end in updates:
        around = backward[
            max(0, bisect_right(begins, start) - _ALIKE) : bisect_right(begins, start)
        ]
        if not any(op.start + op.duration >= end for op in around):
            found.append((start, end))
    return found


def _ends(updates: Sequence[tuple[int, int]], backward: Sequence[int]) -> list[int]:
    """Ends of the optimizers' steps after which a backward pass begins, and of the last one.

    It may begin within the next step (a closure that LBFGS evaluates).
    """
    found = []
    for (_, end), (_, following) in pairwise(updates):
        if bisect_right(backward, following) > bisect_left(backward, end):
            found.append(end)
    return [*found, updates[-1][1]] if updates else []


def _gradients(
    arguments: Sequence[Mapping[str, Any]], ops: Sequence[Op], ends: Sequence[int]
) -> list[Counter[tuple[str, str]]]:
    """The gradients that were computed before each end, with their shapes if known.

    Shapes of gradients do not depend on the batch.  If no parameter's gradient is accumulated, the
    ops of the backward pass are used.

    Args:
        ops: the ops in order.
        ends: ascending.
    """
    starts = [op.start for op in ops]
    bounds = [0, *(bisect_left(starts, end) for end in ends)]
    parts = [ops[low:high] for low, high in pairwise(bounds)]
    found = [
        Counter(_described(arguments, op) for op in part if op.name.endswith(_GRADIENT))
        for part in parts
    ]
    if all(found):
        return found
    return [Counter((op.name, "") for op in part if op.name.startswith(BACKWARD)) for part in parts]


def _with_names(
    kinds: Sequence[Counter[tuple[str, str]]],
    updates: Sequence[tuple[int, int, str]],
    ends: Sequence[int],
) -> list[Counter[tuple[str, str]]]:
    """The gradients before each end, with the names of the optimizers that step until then."""
    found = [Counter(kind) for kind in kinds]
    for _, end, name in updates:
        place = bisect_left(ends, end)
        if place < len(found):
            found[place][name, UPDATE] += 1
    return found


def _period(kinds: Sequence[Counter[tuple[str, str]]]) -> int:
    """After how many updates they repeat; 0 if they do not."""
    for period in range(1, len(kinds) // 2 + 1):
        if all(one == other for one, other in zip(kinds, kinds[period:], strict=False)):
            return period
    return 0


def _outermost(ops: Sequence[Op], updates: Sequence[tuple[int, int]]) -> list[Op]:
    """Outermost ops on the thread that calls the optimizers.

    Other threads may run ops at the same time, such as gloo's; this one does in most updates.

    Args:
        ops: the ops in order.
        updates: start and end of each.
    """
    starts = [op.start for op in ops]
    threads: Counter[object] = Counter()
    for begin, end in updates:
        inside = ops[bisect_left(starts, begin) : bisect_left(starts, end)]
        threads.update({op.thread for op in inside})
    calling = threads.most_common(1)[0][0] if threads else ops[0].thread
    found: list[Op] = []
    over = -1
    for op in ops:
        if op.thread == calling and op.start >= over:
            found.append(op)
            over = op.start + op.duration
    return found


def _forward(names: Sequence[str]) -> int:
    """How many ops precede the first backward pass: what follows an update has none."""
    return next((at for at, name in enumerate(names) if name.startswith(BACKWARD)), len(names))


def _begin(names: Sequence[str], begin: Sequence[str], until: int) -> int | None:
    """The first position at which names continue like the start of the first step, at most
    ``until``; None if there is none.
    """
    places = range(min(until, len(names) - len(begin)) + 1)
    return next((at for at in places if list(names[at : at + len(begin)]) == list(begin)), None)
