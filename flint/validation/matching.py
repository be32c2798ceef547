"""Pairs captured ops with executed ones, class by class, and says how each pair was found.

The idea: a recording must come in the same order, so its classes are aligned by longest common
subsequence, and one extra op makes nothing behind it a mismatch.  XLA orders a program anew, so
there the op's identity decides: the same sizes and the same source line, then the same sizes.  What
is left may still be explained (combined collectives); what is not, is a mismatch.

    result = match(captured, executed, rules)
    result.pairs[0], result.unmatched_captured
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict, deque
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum

import numpy as np

from flint.validation.alignment import aligned, longest_ascending
from flint.validation.backends import GLOO, Gloo, explanations, shapes_of
from flint.validation.classes import OpClass
from flint.validation.keys import (
    COMBINED,
    FOREACH,
    PARTED,
    POINTWISE,
    PROMOTED,
    Rules,
)
from flint.validation.observed import OpFacts
from flint.validation.rooted import THROUGH_ROOT, call_of, through_root
from flint.validation.selection import plain_name


class Evidence(IntEnum):
    """Why two ops are held to be the same."""

    NAME = 0  # class, name and order: the trace has no sizes, so this is a weak match
    SIZES = 1  # what they compute or send as well
    IDENTITY = 2  # and where the program's source has them


@dataclass(slots=True)
class Matching:
    """How the ops of one rank pair up.

    Attributes:
        pairs: (captured, executed, evidence); positions in what ``match`` was given.
        explained: reason -> how many pairs differ in form by it, or how many ops have no partner.
        without_captured, without_executed: positions of ops without a partner for a known reason,
            and of calls whose partners are their messages.
        unmatched_captured, unmatched_executed: positions of the others, ascending.
        reordered: pairs of a recording in another order than recorded.
        in_order: class -> pairs that follow each other in both.
        certain: captured positions whose partner could be no other op: all recorded ones, and of
            XLA's those that alone look as they do.
    """

    pairs: list[tuple[int, int, Evidence]] = field(default_factory=list)
    explained: Counter[str] = field(default_factory=Counter)
    without_captured: list[int] = field(default_factory=list)
    without_executed: list[int] = field(default_factory=list)
    unmatched_captured: list[int] = field(default_factory=list)
    unmatched_executed: list[int] = field(default_factory=list)
    reordered: list[tuple[int, int]] = field(default_factory=list)
    in_order: dict[OpClass, int] = field(default_factory=dict)
    certain: set[int] = field(default_factory=set)

    def explain(self, reason: str, captured: Sequence[int], executed: Sequence[int]) -> None:
        """Say why ops have no partner."""
        if captured or executed:
            self.explained[reason] += len(captured) + len(executed)
        self.without_captured += captured
        self.without_executed += executed
        self.unmatched_captured = _without(self.unmatched_captured, captured)
        self.unmatched_executed = _without(self.unmatched_executed, executed)


def match(
    captured: Sequence[OpFacts],
    executed: Sequence[OpFacts],
    rules: Rules,
    address: Sequence[Hashable] = (),
    threads: Sequence[int] = (),
) -> Matching:
    """Pair the ops of one rank.

    Args:
        captured: in issue order.
        address: of each captured op in the program, the same in each iteration of a loop.
        executed: in the order in which they began.
        rules: of ``rules_for``.
        threads: of each executed op, or its stream; () where nobody knows.
    """
    result = Matching()
    ours, theirs = _by_class(captured, rules), _by_class(executed, rules)
    gloo: Gloo | None = None
    kinds = sorted(ours.keys() | theirs.keys())
    for kind in [kind for kind in kinds if kind.must_match]:
        _match_class(kind, captured, executed, ours, theirs, rules, address, result)
    if rules.recorded:
        _through_root(captured, executed, result)
        if rules.on_host and any(not kind.must_match for kind in kinds):
            gloo = _aside(captured, executed, threads, theirs, result)
        for kind in [kind for kind in kinds if not kind.must_match]:
            _match_class(kind, captured, executed, ours, theirs, rules, address, result)
    else:  # XLA fuses light ops: counted, not compared
        _pointwise(captured, executed, rules, result)
    if gloo is not None:
        known = [(i, j) for i, j, _ in result.pairs]
        for item in explanations(
            captured, executed, known, result.unmatched_captured, result.unmatched_executed, gloo
        ):
            result.explain(item.reason, item.captured, item.executed)
    result.pairs.sort()
    result.unmatched_captured.sort()
    result.unmatched_executed.sort()
    return result


def _match_class(
    kind: OpClass,
    captured: Sequence[OpFacts],
    executed: Sequence[OpFacts],
    ours: dict[OpClass, list[int]],
    theirs: dict[OpClass, list[int]],
    rules: Rules,
    address: Sequence[Hashable],
    result: Matching,
) -> None:
    """Pair the ops of a class; those left over go to ``result`` as unmatched."""
    mine, yours = ours.get(kind, []), theirs.get(kind, [])
    if rules.recorded:
        pairs = _in_order(captured, executed, mine, yours, rules, result)
    else:
        pairs = _by_identity(captured, executed, mine, yours, rules, address, result)
    pairs = [
        (i, j, Evidence.SIZES if e == Evidence.NAME and rules.sized(executed[j]) else e)
        for i, j, e in pairs
        if not rules.contradicts(captured[i], executed[j])
    ]
    left = _without(mine, (i for i, _, _ in pairs))
    over = _without(yours, (j for _, j, _ in pairs))
    if kind.collective and kind not in rules.by_name:
        parted = _parted(kind, captured, executed, left, over, rules, result)
        left = _without(left, (i for i, _, _ in parted))
        over = _without(over, (j for _, j, _ in parted))
        pairs += parted
    sized = kind.collective or kind == OpClass.GEMM
    if rules.recorded and kind not in rules.by_name and not sized:
        more = _wider(captured, executed, left, over, pairs, rules, result)
        if kind == OpClass.ELEMENTWISE:
            more += _spread(
                captured, executed, _without(left, (i for i, _, _ in more)),
                _without(over, (j for _, j, _ in more)), result,
            )  # fmt: skip
        left = _without(left, (i for i, _, _ in more))
        over = _without(over, (j for _, j, _ in more))
        pairs += more
    for i, j, _ in pairs:
        result.explained.update(rules.reasons(captured[i], executed[j]))
    result.pairs += pairs
    firsts = {i: j for i, j, _ in sorted(pairs, reverse=True)}
    result.in_order[kind] = longest_ascending([firsts[i] for i in sorted(firsts)])
    result.unmatched_captured += left
    result.unmatched_executed += over


def _aside(
    captured: Sequence[OpFacts],
    executed: Sequence[OpFacts],
    threads: Sequence[int],
    theirs: dict[OpClass, list[int]],
    result: Matching,
) -> Gloo:
    """What gloo may run for the collectives; what it ran on threads of its own is set aside."""
    pairs = [(i, j) for i, j, _ in result.pairs]
    gloo = Gloo(captured, pairs, [j for _, j in pairs if call_of(executed[j]) == "gather"])
    if not threads:
        return gloo
    programs = {threads[j] for j, facts in enumerate(executed) if facts.kind.must_match}
    others = [j for j in range(len(executed)) if threads[j] not in programs]
    own = gloo.take(executed, others)
    result.explain(GLOO, [], own)
    for kind, positions in theirs.items():
        theirs[kind] = _without(positions, own)
    return gloo


def _by_class(ops: Sequence[OpFacts], rules: Rules) -> dict[OpClass, list[int]]:
    found: dict[OpClass, list[int]] = defaultdict(list)
    for number, facts in enumerate(ops):
        found[rules.kind(facts)].append(number)
    return found


def _without(positions: list[int], taken: Iterable[int]) -> list[int]:
    gone = set(taken)
    return [position for position in positions if position not in gone]


_Pairs = list[tuple[int, int, Evidence]]


def _in_order(
    captured: Sequence[OpFacts],
    executed: Sequence[OpFacts],
    mine: list[int],
    yours: list[int],
    rules: Rules,
    result: Matching,
) -> _Pairs:
    """Ops of a recording: aligned in order, and what is left over in another order."""
    our_keys = [rules.key(captured[i]) for i in mine]
    their_keys = [rules.key(executed[j]) for j in yours]
    named = bool(mine) and rules.kind(captured[mine[0]]) in rules.by_name
    evidence = Evidence.NAME if named else Evidence.SIZES
    numbers: dict[Hashable, int] = {}
    a, b = (
        np.array([numbers.setdefault(key, len(numbers)) for key in keys], dtype=np.int64)
        for keys in (our_keys, their_keys)
    )
    pairs = [(mine[i], yours[j], evidence) for i, j in aligned(a, b) or []]
    result.certain.update(i for i, _, _ in pairs)
    left, over = (set(positions) for positions in (mine, yours))
    left -= {i for i, _, _ in pairs}
    over -= {j for _, j, _ in pairs}
    rest = [(i, key) for i, key in zip(mine, our_keys, strict=True) if i in left]
    others = [(j, key) for j, key in zip(yours, their_keys, strict=True) if j in over]
    for i, j in _equal([key for _, key in rest], [key for _, key in others]):
        pair = rest[i][0], others[j][0]
        result.reordered.append(pair)
        pairs.append((*pair, evidence))
    return pairs


def _by_identity(
    captured: Sequence[OpFacts],
    executed: Sequence[OpFacts],
    mine: list[int],
    yours: list[int],
    rules: Rules,
    address: Sequence[Hashable],
    result: Matching,
) -> _Pairs:
    """Ops of XLA's programs: the same sizes, and as much of their origin as agrees."""
    pairs: _Pairs = []
    named = bool(mine) and rules.kind(captured[mine[0]]) in rules.by_name
    if named:  # those whose sizes are known first
        sized = [j for j in yours if rules.sized(executed[j])]
        alike = _equal(
            [rules.sized_key(captured[i]) for i in mine],
            [rules.sized_key(executed[j]) for j in sized],
        )
        pairs = [(mine[i], sized[j], Evidence.SIZES) for i, j in alike]
        mine = _without(mine, (i for i, _, _ in pairs))
        yours = _without(yours, sized)
    for told in (2, 1, 0):
        ours, theirs = (
            _buckets(ops, positions, rules, told)
            for ops, positions in ((captured, mine), (executed, yours))
        )
        found: _Pairs = []
        for bucket, members in ours.items():
            others = theirs.get(bucket, [])
            evidence = Evidence.IDENTITY if told else Evidence.SIZES
            both = zip(members, others, strict=False)
            found += [(i, j, Evidence.NAME if named else evidence) for i, j in both]
            if len(members) == len(others) and address:
                places = {address[i] for i in members}
                if len(places) == len({executed[j].name for j in others}) == 1:
                    result.certain.update(members)
        mine = _without(mine, (i for i, _, _ in found))
        yours = _without(yours, (j for _, j, _ in found))
        pairs += found
    return pairs


def _buckets(
    ops: Sequence[OpFacts], positions: list[int], rules: Rules, told: int
) -> dict[Hashable, list[int]]:
    """Positions by key and, as ``told``, source line (1) and layer and phase (2)."""
    found: dict[Hashable, list[int]] = defaultdict(list)
    for number in positions:
        facts = ops[number]
        if told and not facts.source:
            continue
        place = (facts.source, facts.origin)[:told]
        found[rules.key(facts), place].append(number)
    return found


def _equal(ours: Sequence[Hashable], theirs: Sequence[Hashable]) -> list[tuple[int, int]]:
    """Positions of equal keys, the first of each with the first."""
    places: dict[Hashable, deque[int]] = defaultdict(deque)
    for j, key in enumerate(theirs):
        places[key].append(j)
    return [(i, places[key].popleft()) for i, key in enumerate(ours) if places.get(key)]


def _wider(
    captured: Sequence[OpFacts],
    executed: Sequence[OpFacts],
    left: list[int],
    over: list[int],
    pairs: _Pairs,
    rules: Rules,
    result: Matching,
) -> _Pairs:
    """Ops of the same name, of which the trace lists other arguments for a reason.

    Those that read nothing must be at the same place in the order.
    """
    if not left or not over:
        return []
    ours, theirs = sorted(i for i, _, _ in pairs), sorted(j for _, j, _ in pairs)
    free: dict[str, list[int]] = defaultdict(list)
    for j in over:
        free[plain_name(executed[j].name)].append(j)
    found: _Pairs = []
    for i in left:
        candidates = free[plain_name(captured[i].name)]
        for j in candidates[:_LOOKED_AT]:
            reason = rules.argument_reason(captured[i], executed[j])
            placed = bisect_left(ours, i) == bisect_left(theirs, j)
            if reason and (placed or shapes_of(captured[i])):
                candidates.remove(j)
                found.append((i, j, Evidence.SIZES))
                result.explained[reason] += 1
                break
    return found


#: So many ops of a name are looked at for one that lists other arguments.
_LOOKED_AT = 64
#: Operands per tensor of the foreach ops that PyTorch's optimizers use, by overload.
_PER_TENSOR = {"List": 2, "Scalar": 1, "ScalarList": 1, "default": 1, "Tensor": 1}
#: And of those that take more lists.
_LISTS = {"addcmul": 3, "addcdiv": 3, "lerp": 2}


def _spread(
    captured: Sequence[OpFacts],
    executed: Sequence[OpFacts],
    left: list[int],
    over: list[int],
    result: Matching,
) -> _Pairs:
    """A captured op on lists of tensors, and the ops on single tensors that ran in its place."""
    free: dict[Hashable, deque[int]] = defaultdict(deque)
    for j in over:
        shapes = {shape for shape, _ in executed[j].operands or () if shape}
        if len(shapes) == 1:
            free[plain_name(executed[j].name), shapes.pop()].append(j)
    pairs: _Pairs = []
    for i in left:
        name, _, overload = captured[i].name.rpartition(".")
        base = plain_name(name + "." + overload)
        times = _LISTS.get(base.removeprefix("_foreach_")) or _PER_TENSOR.get(overload)
        if not base.startswith("_foreach_") or times is None:
            continue
        counts = Counter(shape for shape, _ in captured[i].operands or () if shape)
        single = base.removeprefix("_foreach_")
        wanted = {(single, shape): count // times for shape, count in counts.items()}
        whole = all(count % times == 0 for count in counts.values())
        if not whole or any(len(free[key]) < count for key, count in wanted.items()):
            continue
        for key, count in wanted.items():
            pairs += [(i, free[key].popleft(), Evidence.SIZES) for _ in range(count)]
        result.explained[FOREACH] += 1
    return pairs


def _pointwise(
    captured: Sequence[OpFacts], executed: Sequence[OpFacts], rules: Rules, result: Matching
) -> None:
    """Convolutions that ran as matrix products, of the same sizes and from the same line."""
    left = [i for i in result.unmatched_captured if captured[i].kind == OpClass.CONVOLUTION]
    over = [j for j in result.unmatched_executed if executed[j].kind == OpClass.GEMM]
    keys, others = (
        [(rules.product(ops[n]), ops[n].source) for n in positions]
        for ops, positions in ((captured, left), (executed, over))
    )
    for x, y in _equal(keys, others):
        i, j = left[x], over[y]
        result.pairs.append((i, j, Evidence.SIZES))
        result.unmatched_captured.remove(i)
        result.unmatched_executed.remove(j)
        result.explained[POINTWISE] += 1
        if captured[i].dtype != executed[j].dtype:
            result.explained[PROMOTED] += 1


def _through_root(
    captured: Sequence[OpFacts], executed: Sequence[OpFacts], result: Matching
) -> None:
    """Gathers and scatters, each with its messages."""
    left, over = sorted(result.unmatched_captured), sorted(result.unmatched_executed)
    found = through_root(captured, executed, left, over)
    for i, j in found:
        sized = executed[j].parts is not None
        result.pairs.append((i, j, Evidence.SIZES if sized else Evidence.NAME))
        result.certain.add(i)
        kind = captured[i].kind
        result.in_order[kind] = result.in_order.get(kind, 0) + 1
    result.unmatched_captured = _without(left, (i for i, _ in found))
    result.explain(THROUGH_ROOT, [], sorted({j for _, j in found}))


def _parted(
    kind: OpClass,
    captured: Sequence[OpFacts],
    executed: Sequence[OpFacts],
    left: list[int],
    over: list[int],
    rules: Rules,
    result: Matching,
) -> _Pairs:
    """Collectives that differ in how many buffers go at once; all of their buffers must pair up."""
    pairs: _Pairs = []
    for few, many, reason, flipped in (
        (over, left, COMBINED[kind], False),
        (left, over, PARTED, True),
    ):
        whole, single = (captured, executed) if flipped else (executed, captured)
        free: dict[Hashable, deque[int]] = defaultdict(deque)
        for number in many:
            parts = rules.parts(single[number])
            if len(parts) == 1:
                free[parts[0], single[number].group].append(number)
        for number in few:
            parts = rules.parts(whole[number])
            wanted = [(part, whole[number].group) for part in parts]
            enough = Counter(wanted)
            if len(parts) < 2 or any(len(free[key]) < count for key, count in enough.items()):
                continue
            for key in wanted:
                other = free[key].popleft()
                pair = (number, other) if flipped else (other, number)
                pairs.append((*pair, Evidence.SIZES))
                result.explained[reason] += 1
    return pairs
