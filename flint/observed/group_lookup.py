"""Facts about an op outside its own row: in the enclosing op, or in other ops' kernels.

The idea: profilers record a collective at several levels, and only one of them may name the group,
the reduction or the element type; a kernel may be launched for several collectives at once, or by
no op at all.

    facts = with_outer_facts(trace, rows)
    without_kernel(trace, rows)      # positions of collectives that were asked for and never ran
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from flint.mesh.ragged import Ints
from flint.observed.classes import OpClass
from flint.observed.columns import Observed, OpFacts

TOGETHER = "collectives issued as one batch, whose kernel was not launched by a single op"

#: The most enclosing ops of a collective that are examined.
_DEPTH = 8


def with_outer_facts(trace: Observed, rows: Ints) -> list[OpFacts]:
    """Facts of some rows; for a collective, also those that only an enclosing op records."""
    found = []
    known: dict[tuple[OpFacts, OpFacts], OpFacts] = {}
    for row, number in zip(rows.tolist(), trace.op[rows].tolist(), strict=True):
        facts = trace.facts[number]
        for around in _around(trace, row)[1:] if facts.kind.collective else ():
            outer = trace.facts[int(trace.op[around])]
            if _calls(outer, facts):
                key = facts, outer
                if key not in known:
                    known[key] = _completed(facts, outer)
                facts = known[key]
        found.append(facts)
    return found


def _completed(facts: OpFacts, outer: OpFacts) -> OpFacts:
    """A collective with the additional facts of the op that calls it."""
    if facts.parts is None and outer.parts is not None:
        facts = replace(facts, operands=outer.operands, parts=outer.parts)
    return replace(
        facts,
        dtype=facts.dtype or outer.dtype,
        group=outer.group if facts.group is None else facts.group,
        reduction=facts.reduction or outer.reduction,
        root=facts.root if facts.root >= 0 else outer.root,
    )


def _calls(outer: OpFacts, facts: OpFacts) -> bool:
    """Whether an op is called by an enclosing collective: the same kind on the same number of
    elements.
    """
    return outer.kind == facts.kind and outer.elements == facts.elements


def without_kernel(trace: Observed, rows: Ints) -> list[int]:
    """Positions of collectives that have no kernel, in a trace that has kernels of a device.

    Not counted: messages, whose kernels are launched in batches, and groups of one rank.
    """
    if not (trace.launches[rows] > 0).any():
        return []
    found = []
    for place, row in enumerate(rows.tolist()):
        facts = trace.facts[int(trace.op[row])]
        alone = facts.group is not None and len(facts.group) == 1
        sends = facts.kind in (OpClass.SEND, OpClass.RECV)
        if facts.kind.collective and not alone and not sends and facts.bytes:
            levels = [
                around
                for around in _around(trace, row)
                if around == row or trace.facts[int(trace.op[around])].kind == facts.kind
            ]
            if not np.maximum(trace.launches[levels], 0).any():
                found.append(place)
    return found


def launched_together(trace: Observed, rows: Ints) -> list[int]:
    """Positions of kernels of collectives that belong to no op."""
    return [
        place
        for place, row in enumerate(rows.tolist())
        if trace.facts[int(trace.op[row])].kind == OpClass.OTHER_COLLECTIVE
        and trace.launches[row] > 0
        and trace.parent[row] < 0
        and "ccl" in trace.facts[int(trace.op[row])].name
    ]


def _around(trace: Observed, row: int) -> list[int]:
    """A row and the enclosing ones, the innermost first."""
    found: list[int] = []
    while row >= 0 and len(found) < _DEPTH:
        found.append(row)
        row = int(trace.parent[row])
    return found
