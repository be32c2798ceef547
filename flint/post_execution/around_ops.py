"""Work of an op that only other ops tell: the one around it, or the one of its gradient.

with_work_of_others(trace)     # the same rows; some have facts with FLOPs
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

import numpy as np

from flint.cost.old_gradients import AROUND, FORWARD, OF_WEIGHT, whole
from flint.graph.work import WorkItem
from flint.observed.columns import Observed, OpFacts, Tensor


def with_work_of_others(trace: Observed) -> Observed:
    """The trace with the work of convolutions and their weights' gradients before PyTorch 1.10."""
    unknown = np.array(
        [fact.work is None and fact.name.endswith((*OF_WEIGHT, *FORWARD)) for fact in trace.facts],
        np.bool_,
    )
    rows = np.flatnonzero(unknown[trace.op]) if unknown.any() else np.zeros(0, np.int64)
    if not len(rows):
        return trace
    results = _results(trace.facts)
    facts, op = list(trace.facts), trace.op.copy()
    known: dict[tuple[int, int], int] = {}
    for row in rows.tolist():
        outer = int(trace.parent[row])
        key = int(trace.op[row]), int(trace.op[outer]) if outer >= 0 else -1
        if key not in known:
            own = trace.facts[key[0]]
            around = trace.facts[key[1]] if outer >= 0 else None
            known[key] = len(facts)
            facts.append(replace(own, work=_work(own, around, results)))
        op[row] = known[key]
    return replace(trace, facts=tuple(facts), op=op)


#: The result's shape of each convolution, by its input and its weight.
_Results = dict[tuple[Tensor, Tensor], set[Tensor]]


def _results(facts: tuple[OpFacts, ...]) -> _Results:
    found: _Results = defaultdict(set)
    for fact in facts:
        if fact.name.endswith(AROUND) and len(fact.operands or ()) >= 3:
            data, grad, kernel = (fact.operands or ())[:3]
            found[data, kernel].add(grad)
    return found


def _work(own: OpFacts, around: OpFacts | None, results: _Results) -> tuple[WorkItem, ...] | None:
    operands = own.operands or ()
    if own.name.endswith(OF_WEIGHT):
        is_around = around is not None and around.name.endswith(AROUND)
        return whole(around.operands or ()) if is_around and around is not None else None
    grads = results.get((operands[0], operands[1]), ()) if len(operands) > 1 else ()
    if len(grads) != 1:
        return None  # it has no gradient, or two strides do
    return whole((operands[0], *grads, operands[1]))
