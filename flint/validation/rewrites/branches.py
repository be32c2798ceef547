"""Data-dependent conditionals: a run may take another branch than the captured one.

The idea: a capture has one branch of such a conditional, and the program has all of them.  If a
trace shows how often each branch ran, the program is walked again with another branch; the
differing ops must then be present, or missing, the right number of times.

    others = OtherBranches(workload)
    others.explain(matching, taken)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias

from flint import registry
from flint.capturing.converting import workload_of
from flint.errors import FlintError, UsageError
from flint.host.packed_files import Content
from flint.observed.columns import OpFacts, Taken
from flint.stablehlo.options import WalkOptions
from flint.stablehlo.read.records import Module
from flint.stablehlo.walker import walk
from flint.validation.expected.ops import expected_of
from flint.validation.matching.equivalence import Rules
from flint.validation.matching.pairing import Matching
from flint.validation.rewrites.gemm_forms import multiplication, multiplied_in_all
from flint.validation.rewrites.table import match
from flint.validation.rewrites.widened_types import as_stored
from flint.workload.workload import Workload

NOT_CHOSEN = "ops of a conditional's captured branch, which did not run"
CHOSEN = "ops of a conditional's branch that ran in place of the captured one"

#: The most conditionals and branches that are tried.
_MOST = 16

#: A program with each of the branches of one of its conditionals.
_Branches: TypeAlias = list[Workload]
#: The key by which ops are counted.
_Key: TypeAlias = Callable[[OpFacts], Hashable]


class OtherBranches:
    """The ops of a captured program with other branches of its conditionals.

    Args:
        workload: the capture.
    """

    def __init__(self, workload: Workload) -> None:
        self.workload = workload

    @cached_property
    def _others(self) -> list[_Branches]:
        # Programs that were split by rank come from one module, which the first of them keeps.
        modules = [one.module for one in self.workload.programs if one.module is not None]
        if len(modules) != 1:
            return []
        data, suffix = modules[0]
        begin: Callable[..., AbstractContextManager[Callable[[], Module]]]
        begin = registry.frontend("saved")
        asked = _Asked(self.workload.options.get("branches", {}))
        try:
            with begin(Content(Path(f"program{suffix}"), data)) as records:
                module = records()
            self._walked(module, asked)
            return [self._branches(module, name) for name in list(asked.names)[:_MOST]]
        except FlintError:  # a module that cannot be read or walked again explains nothing
            return []

    def _branches(self, module: Module, name: str) -> _Branches:
        found: _Branches = []
        for branch in range(_MOST):
            choices = {**self.workload.options.get("branches", {}), name: branch}
            try:
                found.append(self._walked(module, choices))
            except UsageError:  # no branch of that number
                break
        return found

    def _walked(self, module: Module, branches: Mapping[str, int]) -> Workload:
        known = {field.name for field in fields(WalkOptions)}
        given = {key: value for key, value in self.workload.options.items() if key in known}
        options = WalkOptions(**{**given, "branches": branches})
        walked = walk(module, self.workload.mesh, options)
        return workload_of(walked, module, options=options, source={})

    def explain(self, matching: Matching, taken: Sequence[Taken]) -> None:
        """Account for ops of a rank without a partner by the branches of its conditionals.

        Args:
            matching: explained ops are recorded here.
            taken: how often the rank's conditionals took their branches.
        """
        unused = [one for one in taken if sum(one.times) and one.inside]
        if not unused or not (matching.unmatched_captured or matching.unmatched_executed):
            return
        executed, rules = matching.executed, matching.rules
        bare = [replace(facts, compared="") if facts.compared else facts for facts in executed]
        for branches in self._others:
            every = [expected_of(other, matching.rank) for other in branches]
            ops = [expected.captured for expected in every]
            # Ops of a type that was not captured come from another branch.
            typed = list(executed)
            for expected, of_branch in zip(every, ops, strict=True):
                stored = as_stored(expected, of_branch, bare, rules)
                typed = [
                    other if facts.of_no_captured_type else facts
                    for facts, other in zip(typed, stored, strict=True)
                ]
            for key, run in ((_with_type(rules), typed), (rules.key, executed)):
                if self._choose(matching, run, ops, unused, key):
                    break

    def denied(self, matching: Matching, taken: Sequence[Taken]) -> Taken | None:
        """The conditional that took another branch although the captured ops ran.

        The capture's other branch does not contain the executed ops; another program's may, for
        example on a mesh with its axes in another order.  Only for a single conditional.

        Args:
            matching, taken: as of ``explain``, after it has run.
        """
        captured, executed = matching.captured, matching.executed
        alone = [one for one in taken if sum(one.times)]
        apart = [captured[i] for i in (*matching.unmatched_captured, *matching.without_captured)]
        apart += [executed[j] for j in (*matching.unmatched_executed, *matching.without_executed)]
        if len(alone) != 1 or not alone[0].inside or any(facts.kind.must_match for facts in apart):
            return None
        if len(self._others) != 1:
            return None
        branches = [expected_of(other, matching.rank).captured for other in self._others[0]]
        changes, example = _changes(captured, branches, matching.rules.key)
        difference = _in_all(changes, alone[0])
        if difference is None:
            return None
        ops = [example[name] for part in difference for name in part]
        return alone[0] if _stands_for(ops, alone[0], matching.rules) else None

    def _choose(
        self,
        matching: Matching,
        executed: Sequence[OpFacts],
        branches: list[list[OpFacts]],
        unused: list[Taken],
        key: _Key,
    ) -> bool:
        """Explain the differences by the first executed conditional that can; returns whether one
        can.

        Args:
            matching: as of ``explain``.
            executed: the executed ops, as they are compared with those of the branches.
            branches: a rank's ops with each branch of a captured conditional.
            unused: executed conditionals; the used one is removed.
            key: the key by which ops are counted.
        """
        changes, example = _changes(matching.captured, branches, key)
        for one in unused:
            difference = _in_all(changes, one)
            if difference is None:
                continue
            added, gone = difference
            ops = [example[name] for part in difference for name in part]
            wanted = [example[name] for name, count in added.items() for _ in range(count)]
            fits = _stands_for(ops, one, matching.rules)
            if fits and _account(matching, executed, wanted, gone, key):
                unused.remove(one)
                return True
        return False


def _account(
    matching: Matching,
    executed: Sequence[OpFacts],
    wanted: Sequence[OpFacts],
    gone: Counter[Hashable],
    key: _Key,
) -> bool:
    """Explain the ops of another branch if all of them ran; returns whether they did.

    Args:
        matching, executed, key: as of ``_choose``.
        wanted: what ran more than captured.
        gone: what ran less, by ``key``.
    """
    missing: list[int] = []
    for i in matching.unmatched_captured:
        name = key(matching.captured[i])
        if gone[name] > 0:
            gone[name] -= 1
            missing.append(i)
    paired = {j for _, j, _ in matching.pairs}.union(matching.without_executed)
    free = [j for j in range(len(executed)) if j not in paired]
    inner = match(Matching(wanted, [executed[j] for j in free], matching.rules))
    if any(gone.values()) or inner.unmatched_captured:
        return False
    used = [free[j] for _, j, _ in inner.pairs if executed[free[j]].kind.must_match]
    if not matching.unmatched_executed.keys() >= set(used):
        return False
    matching.explain(NOT_CHOSEN, missing, [])
    matching.explain(CHOSEN, [], used)
    matching.explained.update(inner.explained)
    return True


class _Asked(dict[str, int]):
    """Choices of branches that record which conditionals depend on data."""

    def __init__(self, choices: Mapping[str, int]) -> None:
        super().__init__(choices)
        self.names: dict[str, None] = {}

    def __contains__(self, name: Any) -> bool:
        if name:
            self.names[name] = None
        return super().__contains__(name)

    def __deepcopy__(self, _memo: Any) -> dict[str, int]:
        return dict(self)


def _stands_for(ops: Sequence[OpFacts], one: Taken, rules: Rules) -> bool:
    """Whether the branches of an executed conditional have ops of these sizes, of any type.

    Products that may run as multiplications are not searched for.
    """

    def size(facts: OpFacts) -> Hashable:
        return rules.sized_key(replace(facts, dtype="", stored=(), compared=""))

    there = set(map(size, one.inside))
    return all(
        size(facts) in there
        for facts in ops
        if not (multiplication(rules, facts) or multiplied_in_all(rules, facts))
    )


def _with_type(rules: Rules) -> _Key:
    """What must be equal of two ops, and the element type that the capture has."""
    return lambda facts: (rules.key(facts), facts.dtype)


def _counted(ops: Sequence[OpFacts], key: _Key) -> Counter[Hashable]:
    return Counter(key(facts) for facts in ops if facts.kind.must_match)


def _changes(
    captured: Sequence[OpFacts], branches: Sequence[Sequence[OpFacts]], key: _Key
) -> tuple[list[Counter[Hashable]], dict[Hashable, OpFacts]]:
    """For each branch, what runs more or less often than captured; and an op of each kind."""
    example = {key(facts): facts for facts in captured if facts.kind.must_match}
    changes = []
    for ops in branches:
        example.update((key(facts), facts) for facts in ops)
        change = _counted(ops, key)
        change.subtract(_counted(captured, key))
        changes.append(change)
    return changes, example


def _in_all(
    changes: list[Counter[Hashable]], one: Taken
) -> tuple[Counter[Hashable], Counter[Hashable]] | None:
    """What ran more and less often than captured, given how often a conditional took its branches.

    Args:
        changes: for each branch, what would run more or less often if it were always taken.
        one: how often it was taken.

    Returns:
        None if the numbers are not whole, or there is no difference.
    """
    whole = sum(one.times)
    added: Counter[Hashable] = Counter()
    gone: Counter[Hashable] = Counter()
    if len(changes) != len(one.times):
        return None
    for change, times in zip(changes, one.times, strict=True):
        for key, count in change.items() if times else ():
            if count % whole:
                return None
            (added if count > 0 else gone)[key] += abs(count) // whole * times
    return (+added, +gone) if +added or +gone else None
