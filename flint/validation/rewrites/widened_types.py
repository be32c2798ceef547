"""Ops that a backend runs in wider types than captured, distinguished by their operands' types.

The idea: a trace shows the narrower types that each operand of a product or a collective had before
it was widened, and so does the capture.  An executed op has a captured type only if every operand
had that type, and no narrower one that the capture lacks.

    executed = as_stored(expected, captured, executed, rules)
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import replace
from typing import TypeAlias

from flint.graph.graph import NodeKind, WorkloadGraph
from flint.graph.joins import renamed
from flint.graph.tensor_types import DTYPE_BITS
from flint.graph.work import Role
from flint.observed.classes import OpClass
from flint.observed.columns import OpFacts
from flint.validation.expected.loop_invariants import unchanged
from flint.validation.expected.ops import Expected
from flint.validation.matching.equivalence import Rules

#: Replaces the type of an op without a captured type (``OpFacts.of_no_captured_type``).
OTHER = "converted from "
#: The same for one whose operands never had a narrower type.
ITSELF = "never narrower"
_MAX_STEPS = 256
#: Ops that only move the value of their first operand.
_MOVES = frozenset(
    {
        "convert", "reshape", "transpose", "broadcast_in_dim", "broadcast", "slice", "pad",
        "dynamic_slice", "gather", "all_gather", "collective_permute", "all_to_all",
    }
)  # fmt: skip

#: The key of an op without its type, and its line; None for all lines.
_Place: TypeAlias = tuple[Hashable, str | None]


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
    known: dict[_Place, dict[tuple[int, int, OpFacts], None]] = defaultdict(dict)
    left: Counter[tuple[_Place, str]] = Counter()
    for i, facts in enumerate(captured):
        if rules.typed(facts):
            address = int(expected.graph[i]), int(expected.node[i]), facts
            places: list[_Place] = [(_alike(facts, rules), one) for one in (facts.source, None)]
            for place in places:
                known[place].setdefault(address)
                left[place, facts.dtype] += 1
    fitting: dict[OpFacts, tuple[_Place, set[str]]] = {}
    typed = []
    for facts in executed:
        if not facts.stored:
            typed.append(facts)
            continue
        if facts not in fitting:
            key = _alike(facts, rules)
            place = key, facts.source if (key, facts.source) in known else None
            types = {
                one.dtype
                for graph, node, one in known.get(place, ())
                if _fits(expected, graph, node, one, facts, rules)
            }
            fitting[facts] = place, types
        place, types = fitting[facts]
        if place not in known:
            typed.append(facts)
            continue
        # If there are several types, the one that the backend would have widened.
        best = sorted(types, key=lambda one: (one == facts.dtype, one))[:1]
        if len(types) == 1:  # and of each type as many as there are
            left[place, best[0]] -= 1
            others = {found.dtype for _, _, found in known[place]} - {best[0]}
            best = best if left[place, best[0]] >= 0 or not others else []
        narrow = sorted({one for operand in facts.stored for one in operand})
        compared = best[0] if best else OTHER + ", ".join(narrow) if narrow else ITSELF
        # bfloat16 cannot be distinguished from float32.
        other = compared not in (facts.dtype, "bf16")
        typed.append(replace(facts, compared=compared) if other else facts)
    return typed


def _alike(facts: OpFacts, rules: Rules) -> Hashable:
    return rules.sized_key(replace(facts, dtype="", stored=(), compared=""))


def _fits(
    expected: Expected, graph: int, node: int, captured: OpFacts, executed: OpFacts, rules: Rules
) -> bool:
    """Whether the operands of an executed op were what those of a captured one are."""
    view = expected.graphs[graph][node]
    operands = [
        (one.dtype, _upstream(expected, graph, value))
        for value, one in zip(view.operands, view.operand_types, strict=True)
    ]
    run = [
        (dtype, set(stored))
        for (_, dtype), stored in zip(executed.operands or (), executed.stored, strict=False)
    ]
    if captured.kind != OpClass.GEMM:  # buffers may have been separated, and have one type
        return all(any(_was(*operand, *one, rules) for operand in operands) for one in run)
    if len(operands) != 2 or len(run) != 2:
        return False
    return any(
        all(_was(*operand, *one, rules) for operand, one in zip(operands, order, strict=True))
        for order in (run, run[::-1])  # compilers swap operands
    )


def _was(captured: str, way: list[str], executed: str, stored: set[str], rules: Rules) -> bool:
    """Whether an operand had the captured type, and before that no type that the capture lacks.

    Rounding to bfloat16 after a bfloat16 computation need not be visible: the backend computes in
    float32, and omits the conversion back.  Explicit conversions of the step are visible.  Between
    a captured type and the computed type, wider types lose nothing.

    Args:
        captured: its type.
        way: captured types back to its origin.
        executed, stored: the type that it ran with, and the narrower ones before.
        rules: from ``rules_for``.
    """
    before = set(way)
    if captured not in (executed, "bf16") and captured not in stored:
        return False
    rounded = way[-1] in ("f32", "f64")  # begins as a wider float, and was not narrower before
    if captured == "bf16" and rounded and captured not in (executed, *stored):
        return False
    between = {one for one in stored if DTYPE_BITS[one] > DTYPE_BITS.get(captured, 0)}
    return stored - between <= before.union(map(rules.computed_as, before))


def _upstream(expected: Expected, number: int, value: int) -> list[str]:
    """The element types that a value had on the way back to its origin."""
    found: list[str] = []
    for _ in range(_MAX_STEPS):
        graph = expected.graphs[number]
        found.append(graph.type_of(value).dtype)
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
    """The value that this one moves or converts; None at its origin."""
    node = int(graph.producer[value])
    place = value - graph.inputs - int(graph.result_ptr[node])
    first, last = graph.operand_ptr[node : node + 2].tolist()
    if graph.kind[node] == NodeKind.LOOP:
        loop = graph[node].loop
        same = loop is not None and unchanged(loop) >> place & 1
        return int(graph.operand[first + place]) if same else None
    if (same_buffer := renamed(graph, value)) is not None:
        return same_buffer
    moves = graph.role[node] == Role.ALIAS or graph.tables.ops[int(graph.op[node])] in _MOVES
    return int(graph.operand[first]) if moves and last > first else None
