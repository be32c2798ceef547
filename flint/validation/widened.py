"""Ops that a backend runs in wider types than captured, told apart by what their operands were.

The idea: a trace says which narrower types each operand of a product or a collective had before it
was widened, and so does the capture of its own.  An executed op is of a captured type only if every
operand was of that type, and had no narrower one that the capture does not have.

    executed = as_stored(expected, captured, executed, rules)
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import replace

from flint.graph import NodeKind, WorkloadGraph
from flint.tensor_types import DTYPE_BITS
from flint.validation.classes import OpClass
from flint.validation.expected import Expected
from flint.validation.invariant import unchanged
from flint.validation.keys import Rules
from flint.validation.observed import OpFacts
from flint.work import Role

#: What stands for the type of an op that is of no captured one.
OTHER = "converted from "
_MAX_STEPS = 256
#: What only moves a value, by its first operand.
_MOVES = frozenset(
    {
        "convert", "reshape", "transpose", "broadcast_in_dim", "broadcast", "slice", "pad",
        "dynamic_slice", "gather", "all_gather", "collective_permute", "all_to_all",
    }
)  # fmt: skip


def as_stored(
    expected: Expected, captured: Sequence[OpFacts], executed: Sequence[OpFacts], rules: Rules
) -> list[OpFacts]:
    """The executed ops, each with the element type in which it is compared.

    Args:
        expected: a rank's ops.
        captured: their facts.
        executed: in the order in which they began.
        rules: of ``rules_for``.
    """
    if not any(facts.stored for facts in executed):
        return list(executed)
    known: dict[Hashable, dict[tuple[int, int, OpFacts], None]] = defaultdict(dict)
    for i, facts in enumerate(captured):
        if rules.typed(facts):
            place = int(expected.graph[i]), int(expected.node[i]), facts
            for source in (facts.source, None):
                known[_alike(facts, rules), source].setdefault(place)
    decided: dict[OpFacts, OpFacts] = {}
    for facts in executed:
        if not facts.stored or facts in decided:
            continue
        key = _alike(facts, rules)
        ours = known.get((key, facts.source)) or known.get((key, None), {})
        fitting = {
            one.dtype
            for graph, node, one in ours
            if _fits(expected, graph, node, one, facts, rules)
        }
        # Of several types the one that the backend would have widened.
        best = sorted(fitting, key=lambda one: (one == facts.dtype, one))
        narrow = sorted({one for operand in facts.stored for one in operand})
        if not ours:
            continue
        compared = best[0] if best else OTHER + ", ".join(narrow)
        told = compared not in (facts.dtype, "bf16")  # which is not told from float32
        decided[facts] = replace(facts, compared=compared if told else "")
    return [decided.get(facts, facts) for facts in executed]


def _alike(facts: OpFacts, rules: Rules) -> Hashable:
    return rules.sized_key(replace(facts, dtype="", stored=(), compared=""))


def _fits(
    expected: Expected, graph: int, node: int, captured: OpFacts, executed: OpFacts, rules: Rules
) -> bool:
    """Whether the operands of an executed op were what those of a captured one are."""
    view = expected.graphs[graph][node]
    ours = [
        (one.dtype, _upstream(expected, graph, value))
        for value, one in zip(view.operands, view.operand_types, strict=True)
    ]
    theirs = [
        (dtype, set(stored))
        for (_, dtype), stored in zip(executed.operands or (), executed.stored, strict=False)
    ]
    if captured.kind != OpClass.GEMM:  # buffers may have been parted, and are of one type
        return bool(ours) and all(_was(*ours[0], *one, rules) for one in theirs)
    if len(ours) != 2 or len(theirs) != 2:
        return False
    return any(
        all(_was(*mine, *yours, rules) for mine, yours in zip(ours, order, strict=True))
        for order in (theirs, theirs[::-1])  # compilers swap operands
    )


def _was(captured: str, before: set[str], executed: str, stored: set[str], rules: Rules) -> bool:
    """Whether an operand was of the captured type, and of none before that the capture lacks.

    That bfloat16 is rounded to need not be seen: compilers may leave it out.  On the way from a
    captured type to the one that is computed with, wider ones lose nothing.
    """
    if captured not in (executed, "bf16") and captured not in stored:
        return False
    between = {one for one in stored if DTYPE_BITS[one] > DTYPE_BITS.get(captured, 0)}
    return stored - between <= before.union(map(rules.computed_as, before))


def _upstream(expected: Expected, number: int, value: int) -> set[str]:
    """The element types that a value had on its way."""
    found: set[str] = set()
    for _ in range(_MAX_STEPS):
        graph = expected.graphs[number]
        found.add(graph.type_of(value).dtype)
        if value >= graph.inputs:
            before = _before(graph, value)
            if before is None:
                break
            value = before
            continue
        above, node = expected.above[number]
        loop = expected.graphs[above][node].loop if above >= 0 else None
        if loop is None or not (unchanged(loop) >> value & 1 or loop.trip_count == 1):
            break
        number, value = above, expected.graphs[above][node].operands[value]
    return found


def _before(graph: WorkloadGraph, value: int) -> int | None:
    """What a value is made of by moving or converting it; None where it begins."""
    node = int(graph.producer[value])
    place = value - graph.inputs - int(graph.result_ptr[node])
    first, last = graph.operand_ptr[node : node + 2].tolist()
    if graph.kind[node] == NodeKind.LOOP:
        loop = graph[node].loop
        same = loop is not None and unchanged(loop) >> place & 1
        return int(graph.operand[first + place]) if same else None
    renames = graph.role[node] == Role.ALIAS and last > first
    if renames and last - first == int(graph.result_ptr[node + 1] - graph.result_ptr[node]):
        return int(graph.operand[first + place])
    moves = renames or graph.tables.ops[int(graph.op[node])] in _MOVES
    return int(graph.operand[first]) if moves and last > first else None
