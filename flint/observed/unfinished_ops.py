"""Ops of a PyTorch trace that began and did not run: an exception or a mode ended them.

unfinished = halted(trace, parents, facts) | answered(trace, parents, facts)
"""

from __future__ import annotations

from flint.mesh.ragged import Ints
from flint.observed.classes import base_name
from flint.observed.columns import Observed, OpFacts

PRODUCTS = frozenset({"mm", "addmm", "bmm", "baddbmm"})

#: What a saved argument is called with.
_SAVES = "aten::detach"
#: Recorded by PyTorch when an op is dispatched to a mode, which sees it first.
_MODE = "PythonDispatchMode"


def nested(trace: Observed, rows: Ints) -> tuple[list[int], list[OpFacts]]:
    """For each row, the position of its enclosing op among them, -1 for none, and its facts."""
    place = {int(row): i for i, row in enumerate(rows)}
    parents = [place.get(int(parent), -1) for parent in trace.parent[rows]]
    return parents, [trace.facts[int(op)] for op in trace.op[rows]]


def unfinished(trace: Observed, rows: Ints) -> set[int]:
    """Which of some rows of a trace, by position, are ops that did not run."""
    parents, facts = nested(trace, rows)
    return halted(trace, parents, facts) | answered(trace, parents, facts)


def halted(trace: Observed, parents: list[int], facts: list[OpFacts]) -> set[int]:
    """Products that contain nothing except ops that save their arguments, if anything.

    Activation checkpointing recomputes a layer until it has everything that the backward pass
    needs; the last op saves its arguments, and then an exception ends it
    (torch/utils/checkpoint.py, early stopping).  Of a weight that is frozen nothing is called to
    save it.  One that runs on a CPU calls more: always, or as others of its sizes do (execution
    traces may put that elsewhere).
    """
    held: dict[int, set[str]] = {}
    if trace.backend != "cpu":
        return set()
    for i, one in enumerate(facts):
        if base_name(one.name) in PRODUCTS:
            held[i] = set()
    for i, outer in enumerate(parents):
        if outer in held:
            held[outer].add(facts[i].name)
    ended = {i for i, names in held.items() if names == {_SAVES}}
    if trace.form == "pytorch-et":
        return ended
    call = {_sizes(facts[i]) for i, names in held.items() if names - {_SAVES}}
    return ended | {i for i, names in held.items() if not names and _sizes(facts[i]) in call}


def _sizes(facts: OpFacts) -> tuple[str, object]:
    return facts.name, facts.operands


def answered(trace: Observed, parents: list[int], facts: list[OpFacts]) -> set[int]:
    """Ops that a mode answered itself: what a selective checkpoint has kept does not run again.

    A mode that lets an op run calls it, and it is recorded inside. What saves the op's arguments
    for the backward pass, before the mode is asked, is no run of it.
    """
    if trace.form == "pytorch-et":  # which puts ops inside of others that end at the same moment
        return set()
    runs, silent = set[int](), set[int]()
    for i in range(len(facts) - 1, -1, -1):
        if facts[i].name == _SAVES and parents[i] >= 0 and "::" in facts[parents[i]].name:
            continue
        is_range = facts[i].name == _MODE or (i in silent and "::" not in facts[i].name)
        without = is_range and i not in runs
        (silent if without else runs).add(parents[i])
    return silent - runs
