"""Light ops of recurrent layers, which the CPU runs in another form than accelerators.

The idea: an accelerator has a kernel for each step's cell, and adds up gradients step by step.  The
CPU runs cells op by op, and adds up once what it has multiplied at once.

    recurrent(matching)     # after the products (``recurrent``) and the other light ops
    lengths(matching)
"""

from __future__ import annotations

from collections import Counter

from flint.observed.classes import base_name
from flint.observed.columns import OpFacts
from flint.validation.matching.pairing import Matching
from flint.validation.rewrites.cpu_substitutes import (
    Free,
    Key,
    key_of,
    shapes_of,
    unmatched_light,
)
from flint.validation.rewrites.recurrent import LIGHT, PACKING, Weight, cell_sizes
from flint.validation.rewrites.recurrent_cells import CELLS, ops

ORDER = "gradients of a recurrent layer's weights, which the CPU computes in another order"
LENGTHS = "lengths of a packed batch of sequences: numbers on the host, which sorts them"


def recurrent(matching: Matching) -> None:
    """Explain the light ops of the steps."""
    weights = [Weight(*one) for one in matching.recurrent]
    gates = {one.gates for one in weights} | {size[1] for size in cell_sizes(matching)}
    if not gates:
        return
    # A cell's sums look like other sums of states.
    released = matching.release_reordered()
    optional = _cells(matching)
    _sums(matching, weights)
    matching.pair_again(released)
    matching.explain(LIGHT, [], Free(matching.executed, matching.unmatched_executed).take(optional))
    _order(matching, gates)


def lengths(matching: Matching) -> None:
    """Explain lengths that are sorted before a batch is packed, whose rows follow in this order."""
    sorts = []
    for j in unmatched_light(matching)[1] if PACKING in matching.around else ():
        next_op = j + 1
        while next_op < len(matching.executed) and _named(matching, next_op, "index_select"):
            next_op += 1
        if _named(matching, j, "sort") and PACKING in matching.around[next_op : next_op + 1]:
            sorts.append(j)
    matching.explain(LENGTHS, [], sorts)


def _named(matching: Matching, executed: int, name: str) -> bool:
    return base_name(matching.executed[executed].name) == name


def _order(matching: Matching, gates: set[int]) -> None:
    """Ignore that gradients of the layers' weights and biases come in another order, and that
    collectives of one such gradient do, which a program starts once it has it.
    """
    other = [(i, j) for i, j in matching.reordered if not _is_gradient(matching.captured[i], gates)]
    if len(other) < len(matching.reordered):
        matching.explained[ORDER] += len(matching.reordered) - len(other)
        matching.reordered = other


def _is_gradient(facts: OpFacts, gates: set[int]) -> bool:
    if facts.kind.must_match and not (facts.kind.collective and shapes_of(facts)):
        return False
    return all(shape[:1] and shape[0] in gates for shape in shapes_of(facts))


def _cells(matching: Matching) -> Counter[Key]:
    """Explain kernels for a step's cell by the ops that ran in its place; returns those that may
    have run as well.
    """
    optional: Counter[Key] = Counter()
    captured_ids, executed_ids = unmatched_light(matching)
    free = Free(matching.executed, executed_ids)
    for i in captured_ids:
        facts = matching.captured[i]
        base = base_name(facts.name)
        if base not in CELLS:
            continue
        shapes = [shape for shape, _ in facts.operands or () if len(shape) == 2]
        rows, hidden = min(shapes, key=lambda shape: shape[1])
        needed, spare = (ops(table, rows, hidden) for table in CELLS[base])
        if free.has(needed):
            matching.explain(LIGHT, [i], free.take(needed))
            optional += spare
    return optional


def _sums(matching: Matching, weights: list[Weight]) -> None:
    """Explain what is added up for each step or at once: gradients of biases and of inputs."""
    captured_ids, executed_ids = unmatched_light(matching)
    free = Free(matching.executed, executed_ids)
    per_step: Counter[Key] = Counter()
    at_once: Counter[Key] = Counter()
    of_parts: Counter[Key] = Counter()
    for rows, gates, inputs in weights:
        for one in rows:
            per_step[key_of("add", (one, inputs))] += 1
            per_step[key_of("sum", (one, gates))] += 1
        per_step[key_of("stack", (rows[0], inputs))] += 1
        # A packed batch is a list of all steps' rows: gradients of its parts are added to it.
        parts = Counter({key_of("add", (sum(rows), gates)): len(rows) - 1})
        parts += Counter(key_of("slice_backward", (one, gates)) for one in rows)
        if free.has(of_parts + parts):
            of_parts += parts
            per_step[key_of("add", (sum(rows), inputs))] += len(rows) - 1
            for one in rows:
                per_step[key_of("slice_backward", (one, inputs))] += 1
        for whole in ((sum(rows),), (len(rows), rows[0])):
            at_once[key_of("sum", (*whole, gates))] += 1
            # For two directions, the gradients of the input add up.
            at_once[key_of("add", (*whole, inputs))] += 1
            at_once[key_of("clone", (*whole, inputs))] += 1
        at_once[key_of("stack", (rows[0], gates))] += 1
        at_once[key_of("stack", (rows[0], inputs))] += 1
    matching.explain(
        LIGHT,
        Free(matching.captured, captured_ids).take(per_step),
        free.take(at_once + of_parts),
    )
