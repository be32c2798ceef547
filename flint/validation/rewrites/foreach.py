"""Ops on lists of tensors that ran as one op per tensor.

foreach(matching, OpClass.ELEMENTWISE)
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Hashable

from flint.observed.classes import OpClass
from flint.observed.columns import OpFacts
from flint.observed.selection import plain_name
from flint.validation.matching.pairing import Evidence, Matching
from flint.validation.rewrites.cpu_substitutes import Shape

FOREACH = "one kernel for a list of tensors on accelerators, one op per tensor on the CPU"

#: Operands per tensor of the foreach ops that PyTorch's optimizers use, by overload.
_PER_TENSOR = {"List": 2, "Scalar": 1, "ScalarList": 1, "default": 1, "Tensor": 1}
#: The same for those with more lists.
_LISTS = {"addcmul": 3, "addcdiv": 3, "lerp": 2}


#: A foreach op -> the one after it that, on single tensors, takes the first one's factor as a
#: number: ``addcdiv(gradient, root, value=-rate)`` of Adagrad.
_FACTORS = {"mul": "addcdiv"}


def foreach(matching: Matching, kind: OpClass) -> None:
    """Pair an op on lists of tensors with the ops on single tensors that ran instead."""
    if not matching.rules.recorded or kind != OpClass.ELEMENTWISE:
        return
    if kind in matching.rules.by_name:
        return
    captured_ids, executed_ids = matching.unmatched(kind)
    free: dict[Hashable, deque[int]] = defaultdict(deque)
    for j in executed_ids:
        facts = matching.executed[j]
        # What an op writes into may be empty until then.
        shapes = [shape for shape, _ in facts.operands or () if shape and 0 not in shape]
        if len(set(shapes)) == 1:
            free[plain_name(facts.name), shapes[0], len(shapes)].append(j)
    factors: dict[tuple[str, frozenset[tuple[Shape, int]]], list[int]] = defaultdict(list)
    for i in captured_ids:
        single, times, tensors = _on_lists(matching.captured[i])
        if not tensors:
            continue
        wanted = {(single, shape, times): count for shape, count in tensors.items()}
        after = _FACTORS.get(single)
        # An op may also list what it writes into; one that does not is preferred.
        ran = {
            (name, shape, times): [*free[name, shape, times], *free[name, shape, times + 1]]
            for name, shape, times in wanted
        }
        if any(len(ran[key]) < count for key, count in wanted.items()):
            if after:
                factors[after, frozenset(tensors.items())].append(i)
            continue
        for (name, shape, times), count in wanted.items():
            for j in ran[name, shape, times][:count]:
                matching.pair(i, j, Evidence.SIZES)
                for listed in (times, times + 1):
                    if j in free[name, shape, listed]:
                        free[name, shape, listed].remove(j)
        matching.explained[FOREACH] += 1
        before = factors.get((single, frozenset(tensors.items())))
        if before:
            matching.explain(FOREACH, [before.pop()], [])


def _on_lists(facts: OpFacts) -> tuple[str, int, Counter[Shape]]:
    """The name on single tensors of a foreach op, how many tensors each takes, and how many there
    are of each shape (a rank's part of a parameter with few rows may be empty: nothing runs for
    it); none for other ops.
    """
    name, _, overload = facts.name.rpartition(".")
    base = plain_name(name + "." + overload)
    single = base.removeprefix("_foreach_")
    times = _LISTS.get(single) or _PER_TENSOR.get(overload)
    counts = Counter(shape for shape, _ in facts.operands or () if shape and 0 not in shape)
    if single == base or times is None or any(count % times for count in counts.values()):
        return single, 0, Counter()
    return single, times, Counter({shape: count // times for shape, count in counts.items()})
