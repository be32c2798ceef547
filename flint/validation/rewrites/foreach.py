"""Ops on lists of tensors that ran as one op per tensor.

foreach(matching, OpClass.ELEMENTWISE)
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Hashable

from flint.observed.classes import OpClass
from flint.observed.selection import plain_name
from flint.validation.matching.pairing import Evidence, Matching

FOREACH = "one kernel for a list of tensors on accelerators, one op per tensor on the CPU"

#: Operands per tensor of the foreach ops that PyTorch's optimizers use, by overload.
_PER_TENSOR = {"List": 2, "Scalar": 1, "ScalarList": 1, "default": 1, "Tensor": 1}
#: The same for those with more lists.
_LISTS = {"addcmul": 3, "addcdiv": 3, "lerp": 2}


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
        shapes = {shape for shape, _ in facts.operands or () if shape}
        if len(shapes) == 1:
            free[plain_name(facts.name), shapes.pop()].append(j)
    for i in captured_ids:
        facts = matching.captured[i]
        name, _, overload = facts.name.rpartition(".")
        base = plain_name(name + "." + overload)
        single = base.removeprefix("_foreach_")
        times = _LISTS.get(single) or _PER_TENSOR.get(overload)
        if single == base or times is None:
            continue
        counts = Counter(shape for shape, _ in facts.operands or () if shape)
        wanted = {(single, shape): count // times for shape, count in counts.items()}
        whole = all(count % times == 0 for count in counts.values())
        if not whole or any(len(free[key]) < count for key, count in wanted.items()):
            continue
        for key, count in wanted.items():
            for _ in range(count):
                matching.pair(i, free[key].popleft(), Evidence.SIZES)
        matching.explained[FOREACH] += 1
