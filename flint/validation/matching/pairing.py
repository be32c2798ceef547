"""How the ops of one rank pair up: pairs, why each is one, and the ops that have no partner.

The idea: all steps work on one ``Matching``.  It begins with every op unmatched; a step examines
the unmatched ones, and removes them by ``pair`` or ``explain``.

    matching = Matching(captured, executed, rules)
    matching.pair(0, 3, Evidence.SIZES)
    list(matching.unmatched_captured)
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TypeAlias

from flint.graph.tensor_types import TensorType
from flint.observed.classes import OpClass
from flint.observed.columns import OpFacts
from flint.validation.expected.ops import Expected
from flint.validation.matching.equivalence import Rules


class Evidence(IntEnum):
    """Why two ops count as the same."""

    NAME = 0  # class, name and order: the trace has no sizes, so this is a weak match
    SIZES = 1  # what they compute or send as well
    IDENTITY = 2  # and where the program's source has them


#: (captured, executed, evidence).
Pair: TypeAlias = tuple[int, int, Evidence]


@dataclass(slots=True)
class Matching:
    """How the ops of one rank pair up.

    Ops are named by their positions in ``captured`` and ``executed``.

    Attributes:
        captured: in issue order.
        executed: in the order in which they began.
        rules: how they are compared.
        expected: where the captured ops are in the program; None if only the ops are known.
        rank: their rank.
        threads: thread or stream of each executed op; () if unknown.
        around: for each executed op, the outermost enclosing PyTorch op; () if unknown.
        kinds: the classes in which captured, and executed, ops are compared.
        pairs: (captured, executed, evidence).
        explained: reason -> number of pairs that differ in form because of it, or of ops without a
            partner.
        without_captured, without_executed: ops without a partner for a known reason, and calls
            whose partners are their messages.
        unmatched_captured, unmatched_executed: the other compared ops, ascending; the keys. For XLA
            programs only ops that must match are compared.
        reordered: pairs of a recording in another order than recorded.
        in_order: class -> pairs that follow each other in both.
        certain: captured ops whose partner could be no other op: all recorded ones, and those of
            XLA programs that are unique.
        merged: keys of ops of which a compiler merged some; sizes do not show which.
        regrouped: heavy ops ran together, or in another order, for a known reason: the ops between
            them are not the same on both sides.
        recurrent: weights of recurrent layers that were multiplied for all steps at once: rows of
            each step, gates, inputs.
        earlier: how many of the first executed ops ended the step of the trace (``turned_by``).
        gloo: copies and divisions that gloo may still have made: (op, elements) -> number.
    """

    captured: Sequence[OpFacts]
    executed: Sequence[OpFacts]
    rules: Rules
    expected: Expected | None = None
    rank: int = 0
    threads: Sequence[int] = ()
    around: Sequence[str] = ()
    kinds: tuple[list[OpClass], ...] = field(init=False)
    pairs: list[Pair] = field(default_factory=list)
    explained: Counter[str] = field(default_factory=Counter)
    without_captured: list[int] = field(default_factory=list)
    without_executed: list[int] = field(default_factory=list)
    unmatched_captured: dict[int, None] = field(init=False)
    unmatched_executed: dict[int, None] = field(init=False)
    reordered: list[tuple[int, int]] = field(default_factory=list)
    in_order: dict[OpClass, int] = field(default_factory=dict)
    certain: set[int] = field(default_factory=set)
    merged: set[Hashable] = field(default_factory=set)
    regrouped: bool = False
    recurrent: list[tuple[tuple[int, ...], int, int]] = field(default_factory=list)
    earlier: int = 0
    gloo: Counter[tuple[str, int]] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.kinds = tuple(
            [self.rules.kind(facts) for facts in ops] for ops in (self.captured, self.executed)
        )
        self.unmatched_captured, self.unmatched_executed = (
            dict.fromkeys(
                number
                for number, kind in enumerate(kinds)
                if self.rules.recorded or kind.must_match
            )
            for kinds in self.kinds
        )

    def pair(self, captured: int, executed: int, evidence: Evidence, reason: str = "") -> None:
        """Record that two ops are the same; one of them may be in several pairs."""
        self.pairs.append((captured, executed, evidence))
        self.unmatched_captured.pop(captured, None)
        self.unmatched_executed.pop(executed, None)
        if reason:
            self.explained[reason] += 1

    def pair_merged(self, captured: Sequence[int], executed: int) -> None:
        """Record that several captured ops ran as one; others that look like them are no longer
        certain.
        """
        for number in captured:
            self.pair(number, executed, Evidence.SIZES)
        self.merged.update(self.rules.key(self.captured[number]) for number in captured)
        self.merged.add(self.rules.key(self.executed[executed]))

    def give_partner(self, pair: Pair, instead: int) -> None:
        """Give the executed op of a pair to a captured op that looks like the other one."""
        self.pairs[self.pairs.index(pair)] = instead, pair[1], Evidence.SIZES
        self.unmatched_captured.pop(instead, None)
        self.certain.discard(pair[0])

    def release_reordered(self) -> list[Pair]:
        """Take apart the pairs of light ops in another order, for a reason that says more; returns
        them, for ``pair_again``.
        """
        moved = {pair for pair in self.reordered if not self.captured[pair[0]].kind.must_match}
        released = [pair for pair in self.pairs if pair[:2] in moved]
        self.pairs = [pair for pair in self.pairs if pair[:2] not in moved]
        self.reordered = [pair for pair in self.reordered if pair not in moved]
        for unmatched, side in ((self.unmatched_captured, 0), (self.unmatched_executed, 1)):
            now = sorted([*unmatched, *(pair[side] for pair in released)])
            unmatched.clear()
            unmatched.update(dict.fromkeys(now))
        return released

    def pair_again(self, released: Iterable[Pair]) -> None:
        """Pair what was released and no reason has explained, with any op that is the same."""
        evidence = {captured: found for captured, _, found in released}
        captured = [i for i in evidence if i in self.unmatched_captured]
        executed = list(self.unmatched_executed)
        sides = (self.captured, captured), (self.executed, executed)
        keys = ([self.rules.key(ops[number]) for number in ids] for ops, ids in sides)
        for x, y in equal(*keys):
            self.pair(captured[x], executed[y], evidence[captured[x]])
            self.reordered.append((captured[x], executed[y]))

    def explain(self, reason: str, captured: Sequence[int], executed: Sequence[int]) -> None:
        """Record why ops have no partner."""
        if captured or executed:
            self.explained[reason] += len(captured) + len(executed)
        self.without_captured += captured
        self.without_executed += executed
        for number in captured:
            self.unmatched_captured.pop(number, None)
        for number in executed:
            self.unmatched_executed.pop(number, None)

    def unmatched(self, kind: OpClass) -> tuple[list[int], list[int]]:
        """Captured and executed ops of a class without a partner."""
        return (
            [i for i in self.unmatched_captured if self.kinds[0][i] is kind],
            [j for j in self.unmatched_executed if self.kinds[1][j] is kind],
        )

    def place(self, captured: int) -> Hashable:
        """Where a captured op is in the program: the same in each iteration of a loop."""
        if self.expected is None:
            return None
        return int(self.expected.graph[captured]), int(self.expected.node[captured])

    def anchors(self) -> tuple[list[int], list[int]]:
        """Positions of the heavy ops that ran as captured, of both sides, ascending.

        Light ops with the same number of these before them are in the same stretch of the step.
        """
        heavy = [pair for pair in self.pairs if self.captured[pair[0]].kind.must_match]
        return sorted(i for i, _, _ in heavy), sorted(j for _, j, _ in heavy)

    def results(self, captured: int) -> tuple[tuple[int, ...], ...] | None:
        """Shapes of a captured op's results; None if only the ops are known."""
        found = self.result_types(captured)
        return None if found is None else tuple(kind.shape for kind in found)

    def result_types(self, captured: int) -> tuple[TensorType, ...] | None:
        """Types of a captured op's results; None if only the ops are known."""
        if self.expected is None:
            return None
        graph = self.expected.graphs[int(self.expected.graph[captured])]
        return tuple(graph[int(self.expected.node[captured])].result_types)


def without(positions: list[int], taken: Iterable[int]) -> list[int]:
    """The positions that are not taken."""
    gone = set(taken)
    return [position for position in positions if position not in gone]


def equal(captured: Sequence[Hashable], executed: Sequence[Hashable]) -> list[tuple[int, int]]:
    """Positions of equal keys, the first of each with the first."""
    places: dict[Hashable, deque[int]] = defaultdict(deque)
    for j, key in enumerate(executed):
        places[key].append(j)
    return [(i, places[key].popleft()) for i, key in enumerate(captured) if places.get(key)]
