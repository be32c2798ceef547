"""Messages that were sent in the other pass: forward instead of backward, or the reverse.

The idea: ops that look alike cannot be distinguished, especially in loops; but a program shows for
each whether it belongs to the forward or the backward pass, before and after compiling.  A ring in
the opposite direction sends the same messages, those of the first pass in the second one.  Only
permutations are checked, because combined ops have the pass of only one of their parts.

    for i, j in other_pass(matching): ...
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable

from flint.observed.classes import OpClass
from flint.observed.columns import OpFacts
from flint.validation.matching.pairing import Matching

_KIND = OpClass.COLLECTIVE_PERMUTE
#: Recomputation counts as forward pass: which of two equal ops is kept is the compiler's choice.
_PASSES = {"forward": "forward", "recompute": "forward", "backward": "backward"}


def other_pass(matching: Matching) -> list[tuple[int, int]]:
    """Pairs of permutations for which all that look alike ran in another pass than captured."""
    captured, executed = matching.captured, matching.executed
    alike: dict[Hashable, list[tuple[int, int]]] = defaultdict(list)
    for i, j, _ in matching.pairs:
        line = captured[i].source
        both = captured[i], executed[j]
        alone = all(facts.kind == _KIND and len(facts.parts or ()) == 1 for facts in both)
        if alone and line and line == executed[j].source:
            alike[matching.rules.key(captured[i]), line].append((i, j))
    wrong: list[tuple[int, int]] = []
    for pairs in alike.values():
        passes = {_pass(captured[i]) for i, _ in pairs}
        run = {_pass(executed[j]) for _, j in pairs}
        if "" not in passes | run and not passes & run:
            wrong += pairs
    return wrong


def _pass(facts: OpFacts) -> str:
    """The pass of an op; "" if unknown."""
    return _PASSES.get(facts.origin.rpartition(", ")[2], "")
