"""Comparing the light ops of an XLA program that ran with those captured.

The idea: XLA fuses light ops, computes some twice and merges others, so their numbers mean nothing.
But a ``tanh`` stays a ``tanh`` in any fusion, and so do sums, roots and maxima of floats, and sorts
and Fourier transforms of anything: per layer, the executed fused computations contain exactly the
ops that the capture has there.

    differing(matching, ran)      # [("not captured", "tanh", "blocks/mlp")]
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable

from flint.graph.graph import WorkloadGraph
from flint.graph.nodes import Node
from flint.observed.columns import Functions
from flint.validation.expected.duplicates import origin
from flint.validation.expected.loop_invariants import Invariants
from flint.validation.matching.pairing import Matching


def _table(rows: dict[str, str]) -> dict[str, frozenset[str]]:
    return {name: frozenset(others.split()) for name, others in rows.items()}


#: A captured function -> what it may be in a compiled program, if XLA expands it
#: (LogisticExpander and AlgebraicSimplifier in xla/hlo/transforms).
_BECOMES = _table(
    {
        "tanh": "tanh",
        "exponential": "exponential",
        "logistic": "logistic exponential tanh",
        "exponential_minus_one": "exponential-minus-one exponential tanh",
        "log": "log",
        "log_plus_one": "log-plus-one log",
        "sine": "sine",
        "cosine": "cosine",
        "erf": "erf",
        # Arithmetic of floats: what the simplifier turns it into.
        "add": "add subtract",
        "subtract": "subtract add",
        "multiply": "multiply divide",
        "divide": "divide multiply",
        "maximum": "maximum clamp",
        "minimum": "minimum clamp",
        "sqrt": "sqrt rsqrt",
        "rsqrt": "rsqrt sqrt",
        "abs": "abs",
        "sign": "sign",
        "floor": "floor",
        "ceil": "ceil",
        "sort": "sort",
        "fft": "fft",
    }
)
#: Ops that stay what they are for any element type.
_OF_ANY_TYPE = frozenset({"sort", "fft"})
#: Arithmetic that XLA makes of other ops, by how these begin: it may run where they are captured.
_MAKES = _table(
    {
        "logistic": "add divide",
        "erf": "add subtract divide maximum minimum abs",
        "exponential_minus_one": "add subtract divide abs",
        "log_plus_one": "add subtract divide abs",
        "log": "add subtract divide maximum minimum abs",
        "negate": "subtract",
        "reduce": "add divide maximum minimum",
        "scatter": "add maximum minimum",
        "select_and_scatter": "add",
        "clamp": "maximum minimum",
        "select": "maximum minimum abs",
        "convert": "floor",
        "round": "floor add subtract abs",
        "remainder": "subtract floor divide",
        "cbrt": "sign abs",
        "atan2": "add subtract divide abs maximum minimum",
    }
)
#: XLA computes these in only one of two layers that share the value: positions, for example.
_SHARED = frozenset({"sine", "cosine", "log", "log_plus_one"})
#: Functions that so many other ops use that their position is not evidence.
_ANYWHERE = frozenset({"multiply"})
_COMPARED: frozenset[str] = frozenset().union(*_BECOMES.values()) - _ANYWHERE - {"clamp"}
#: Prefixes of ops that may contain any function.
_OPAQUE = ("chlo.", "mhlo.", "custom_call", "composite", "rng", "power", "tan", "erf_inv")
_ARITHMETIC = frozenset({"add", "subtract", "multiply", "divide"})
#: Ops whose result includes the largest or smallest of some numbers.
_EXTREMES = frozenset({"maximum", "minimum"})
_PHASES = frozenset({"forward", "backward", "recompute"})


def differing(matching: Matching, ran: Functions) -> list[tuple[str, str, str]]:
    """The differences, with the function and the layer of each.

    Layers that only one side names, and ops without a name, are compared over the whole program.
    Values known before the step runs are not compared.
    """
    assert matching.expected is not None
    invariants = Invariants(matching.expected)
    layers = {_layer(facts.origin) for facts in matching.captured}
    captured: dict[str, set[str]] = {layer: set() for layer in layers | {""}}
    needed: dict[str, set[str]] = {layer: set() for layer in layers | {""}}
    opaque: set[str] = set()
    made: dict[str, set[str]] = defaultdict(set)
    known: dict[Hashable, tuple[bool, bool]] = {}
    for i, facts in enumerate(matching.captured):
        layer = _layer(facts.origin)
        if facts.name.startswith(_OPAQUE):
            opaque.add(layer)
        name = facts.name.rpartition(".")[2]
        for begin, others in _MAKES.items():
            if name.startswith(begin):
                made[layer] |= others
        if name in _BECOMES and (name in _OF_ANY_TYPE or facts.dtype.startswith(("f", "bf"))):
            place = matching.place(i)
            if place not in known:
                known[place] = invariants.constant(i), _may_go(invariants, matching, i, name)
            constant, may_go = known[place]
            if not constant:
                captured[layer].add(name)
            if not may_go and not constant:
                needed[layer].add(name)
    executed: dict[str, set[str]] = defaultdict(set)
    for name, layer in ran.found:
        executed[layer].add(name)
    everywhere: set[str] = set().union(*captured.values())
    all_ran: set[str] = set().union(*executed.values())
    common = (layers & ran.layers) - {""}
    found = []
    for layer, names in sorted(needed.items()):
        there = executed[layer] | executed[""] if layer in common else all_ran
        near = there.union(*(ran for other, ran in executed.items() if _encloses(layer, other)))
        found += [
            ("not executed", name, layer)
            for name in sorted(names)
            if not _BECOMES[name] & _ran_where(name, there, near, all_ran)
        ]
    for layer, names in sorted(executed.items()):
        if opaque & ({layer, ""} if layer in common else layers):
            continue
        here = captured[layer] | captured[""] if layer in common else everywhere
        allowed: set[str] = set().union(*(_BECOMES[name] for name in here))
        allowed |= made[layer] | made[""] if layer in common else set().union(*made.values())
        found += [("not captured", name, layer) for name in sorted(names & _COMPARED - allowed)]
    return found


def _ran_where(name: str, there: set[str], near: set[str], all_ran: set[str]) -> set[str]:
    """The functions among which a captured one must be.

    Args:
        name: of the captured function.
        there: those of its layer.
        near: those of the layers around and inside it, too: a sum of gradients that arrive from
            both bears either name.
        all_ran: those of the whole program.
    """
    if name in _SHARED:
        return all_ran
    return near if name in _ARITHMETIC else there


def _encloses(layer: str, other: str) -> bool:
    """Whether one of two layers is inside the other."""
    return f"{other}/".startswith(f"{layer}/") or f"{layer}/".startswith(f"{other}/")


def _may_go(invariants: Invariants, matching: Matching, i: int, name: str) -> bool:
    """Whether a compiler may find that an op changes nothing.

    Examples are a sum or product with a known number (0, 1) or with zero gradients, and the maximum
    of a maximum and its initial value. Of a sort whose first results are used it may make another
    op, of a product with a converted predicate a choice.
    """
    if name == "sort":
        return True
    expected = matching.expected
    assert expected is not None
    number = int(expected.graph[i])
    graph = expected.graphs[number]
    operands = graph[int(expected.node[i])].operands
    if name in _ARITHMETIC:
        chosen = name == "multiply" and any(_was_predicate(graph, value) for value in operands)
        return chosen or any(invariants.known(number, value) for value in operands)
    if name not in _EXTREMES:
        return False
    producers = (int(graph.producer[origin(graph, value)]) for value in operands)
    return any(node >= 0 and _is_extreme(graph[node], name) for node in producers)


def _was_predicate(graph: WorkloadGraph, value: int) -> bool:
    """Whether a value is a predicate, converted to ones and zeros and perhaps repeated."""
    node = int(graph.producer[value := origin(graph, value)])
    while node >= 0 and graph[node].op in ("convert", "broadcast_in_dim"):
        value = origin(graph, graph[node].operands[0])
        node = int(graph.producer[value])
    return graph.type_of(value).dtype == "i1"


def _is_extreme(node: Node, name: str) -> bool:
    """Whether an op takes the largest or smallest of its numbers, on one device or on several."""
    sent = node.communication
    return node.op.endswith("reduce") if sent is None else sent.reduction == name


def _layer(origin: str) -> str:
    return ", ".join(part for part in origin.split(", ") if part not in _PHASES)
