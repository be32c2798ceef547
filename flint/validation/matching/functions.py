"""Transcendental functions of an XLA program: those that ran, against those captured.

The idea: XLA fuses light ops, computes some twice and others once, so that their numbers mean
nothing.  But whatever it fuses, a ``tanh`` stays one: per layer the fused computations that ran
hold the functions that the capture has there, and no others.

    differing(matching, ran)      # [("not captured", "tanh", "blocks/mlp")]
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable

from flint.observed.columns import Functions
from flint.validation.expected.loop_invariants import Invariants
from flint.validation.matching.pairing import Matching

#: A function as captured -> what it may be in a compiled program, where XLA expands it
#: (LogisticExpander and AlgebraicSimplifier in xla/hlo/transforms).
_BECOMES: dict[str, frozenset[str]] = {
    "tanh": frozenset({"tanh"}),
    "exponential": frozenset({"exponential"}),
    "logistic": frozenset({"logistic", "exponential", "tanh"}),
    "exponential_minus_one": frozenset({"exponential-minus-one", "exponential", "tanh"}),
    "log": frozenset({"log"}),
    "log_plus_one": frozenset({"log-plus-one", "log"}),
    "sine": frozenset({"sine"}),
    "cosine": frozenset({"cosine"}),
    "erf": frozenset({"erf"}),
}
#: Of a value that two layers share, XLA computes these in one of them: positions, for example.
_SHARED = frozenset({"sine", "cosine", "log", "log_plus_one"})
_FUNCTIONS: frozenset[str] = frozenset().union(*_BECOMES.values())
#: Begins names of ops that may hold any function.
_OPAQUE = ("chlo.", "mhlo.", "custom_call", "composite", "rng", "power", "tan", "erf_inv")
_PHASES = frozenset({"forward", "backward", "recompute"})


def differing(matching: Matching, ran: Functions) -> list[tuple[str, str, str]]:
    """What differs, the function and the layer of each.

    Layers that only one side names are compared over the whole program; so is what ran without a
    name.  What is known before the step runs is not compared.
    """
    assert matching.expected is not None
    invariants = Invariants(matching.expected)
    layers = {_layer(facts.origin) for facts in matching.captured}
    captured: dict[str, set[str]] = {layer: set() for layer in layers | {""}}
    opaque: set[str] = set()
    known: dict[Hashable, bool] = {}
    for i, facts in enumerate(matching.captured):
        layer = _layer(facts.origin)
        if facts.name.startswith(_OPAQUE):
            opaque.add(layer)
        name = facts.name.rpartition(".")[2]
        if name in _BECOMES:
            place = matching.place(i)
            if place not in known:
                known[place] = invariants.constant(i)
            if not known[place]:
                captured[layer].add(name)
    executed: dict[str, set[str]] = defaultdict(set)
    for name, layer in ran.found:
        executed[layer].add(name)
    everywhere: set[str] = set().union(*captured.values())
    all_ran: set[str] = set().union(*executed.values())
    common = (layers & ran.layers) - {""}
    found = []
    for layer, names in sorted(captured.items()):
        there = executed[layer] | executed[""] if layer in common else all_ran
        found += [
            ("not executed", name, layer)
            for name in sorted(names)
            if not _BECOMES[name] & (all_ran if name in _SHARED else there)
        ]
    for layer, names in sorted(executed.items()):
        if opaque & ({layer, ""} if layer in common else layers):
            continue
        here = captured[layer] | captured[""] if layer in common else everywhere
        allowed: set[str] = set().union(*(_BECOMES[name] for name in here))
        found += [("not captured", name, layer) for name in sorted(names & _FUNCTIONS - allowed)]
    return found


def _layer(origin: str) -> str:
    return ", ".join(part for part in origin.split(", ") if part not in _PHASES)
