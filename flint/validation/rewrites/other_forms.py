"""Ops that ran in another form than captured, for a known reason.

The idea: what is not the same in both may still be the same work: an op on lists of tensors that
ran tensor by tensor, collectives that were combined or parted, a convolution that ran as a matrix
product, a gather by its messages.  Each is paired here and its reason counted.

    pairs = parted(OpClass.ALL_REDUCE, captured, executed, [4], [5, 6], rules, result)
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict, deque
from collections.abc import Hashable, Sequence
from dataclasses import replace

from flint.observed.classes import OpClass
from flint.observed.columns import OpFacts
from flint.observed.selection import plain_name
from flint.validation.matching.equivalence import (
    COMBINED,
    FOREACH,
    LONG_LIST,
    MULTIPLIED,
    PARTED,
    POINTWISE,
    PROMOTED,
    RAGGED,
    SUMMED,
    Rules,
)
from flint.validation.matching.pairing import Evidence, Matching, Pairs, equal, without
from flint.validation.rewrites.cpu_substitutes import shapes_of
from flint.validation.rewrites.gather_scatter import THROUGH_ROOT, through_root

#: So many ops of a name are looked at for one that lists other arguments.
_LOOKED_AT = 64
#: Operands per tensor of the foreach ops that PyTorch's optimizers use, by overload.
_PER_TENSOR = {"List": 2, "Scalar": 1, "ScalarList": 1, "default": 1, "Tensor": 1}
#: And of those that take more lists.
_LISTS = {"addcmul": 3, "addcdiv": 3, "lerp": 2}


def wider(
    captured: Sequence[OpFacts],
    executed: Sequence[OpFacts],
    left: list[int],
    over: list[int],
    pairs: Pairs,
    rules: Rules,
    result: Matching,
) -> Pairs:
    """Ops of the same name, of which the trace lists other arguments for a reason.

    Those that read nothing must be at the same place in the order.
    """
    if not left or not over:
        return []
    ours, theirs = sorted(i for i, _, _ in pairs), sorted(j for _, j, _ in pairs)
    free: dict[str, list[int]] = defaultdict(list)
    for j in over:
        free[plain_name(executed[j].name)].append(j)
    found: Pairs = []
    for i in left:
        candidates = free[plain_name(captured[i].name)]
        for j in candidates[:_LOOKED_AT]:
            reason = rules.argument_reason(captured[i], executed[j])
            placed = bisect_left(ours, i) == bisect_left(theirs, j)
            if reason and (placed or shapes_of(captured[i])):
                candidates.remove(j)
                told = Evidence.NAME if reason == LONG_LIST else Evidence.SIZES
                found.append((i, j, told))
                result.explained[reason] += 1
                break
    return found


def spread(
    captured: Sequence[OpFacts],
    executed: Sequence[OpFacts],
    left: list[int],
    over: list[int],
    result: Matching,
) -> Pairs:
    """A captured op on lists of tensors, and the ops on single tensors that ran in its place."""
    free: dict[Hashable, deque[int]] = defaultdict(deque)
    for j in over:
        shapes = {shape for shape, _ in executed[j].operands or () if shape}
        if len(shapes) == 1:
            free[plain_name(executed[j].name), shapes.pop()].append(j)
    pairs: Pairs = []
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


def pointwise(
    captured: Sequence[OpFacts], executed: Sequence[OpFacts], rules: Rules, result: Matching
) -> None:
    """Convolutions that ran as matrix products, of the same sizes and from the same line."""
    left = [i for i in result.unmatched_captured if captured[i].kind == OpClass.CONVOLUTION]
    over = [j for j in result.unmatched_executed if executed[j].kind == OpClass.GEMM]
    keys, others = (
        [(rules.product(ops[n]), ops[n].source) for n in positions]
        for ops, positions in ((captured, left), (executed, over))
    )
    for x, y in equal(keys, others):
        i, j = left[x], over[y]
        result.pairs.append((i, j, Evidence.SIZES))
        result.unmatched_captured.remove(i)
        result.unmatched_executed.remove(j)
        result.explained[POINTWISE] += 1
        if captured[i].dtype != executed[j].dtype:
            result.explained[PROMOTED] += 1


def ragged(
    captured: Sequence[OpFacts], executed: Sequence[OpFacts], rules: Rules, result: Matching
) -> None:
    """Ragged products that ran as dense ones, from the same line.

    XLA expands them (xla/hlo/transforms/expanders/ragged_dot_rewriter.cc): rows of other groups
    are zeros, in a sum that is longer by the number of groups, or in a product per group where the
    rows themselves are summed.
    """
    left = [i for i in result.unmatched_captured if captured[i].name.endswith("ragged_dot")]
    over = [j for j in result.unmatched_executed if executed[j].kind == OpClass.GEMM]
    keys = [(_dense(captured[i], rules), captured[i].source) for i in left]
    others = [(rules.sized_key(executed[j]), executed[j].source) for j in over]
    for x, y in equal(keys, others):
        result.pairs.append((left[x], over[y], Evidence.SIZES))
        result.unmatched_captured.remove(left[x])
        result.unmatched_executed.remove(over[y])
        result.explained[RAGGED] += 1


def _dense(facts: OpFacts, rules: Rules) -> Hashable:
    """The key of the dense product in place of a ragged one; None of what is none."""
    shapes = [shape for shape, _ in facts.operands or ()]
    if len(shapes) != 3 or not shapes[2] or facts.gemms is None or len(facts.gemms) != 1:
        return None
    [(batch, m, n, k)], groups = facts.gemms, shapes[2][-1]
    rows_summed = len(shapes[0]) == len(shapes[1])  # else the second operand is one per group
    size = (batch * groups, m, n, k) if rows_summed else (batch, m, n, k * groups)
    return rules.sized_key(replace(facts, gemms=(size,)))


def multiplied(
    captured: Sequence[OpFacts], executed: Sequence[OpFacts], rules: Rules, result: Matching
) -> None:
    """Products that ran as multiplications, of the same sizes and from the same line."""
    left = [i for i in result.unmatched_captured if captured[i].kind == OpClass.GEMM]
    made = [
        j
        for j, facts in enumerate(executed if left else ())
        if facts.kind == OpClass.ELEMENTWISE and facts.gemms is not None
    ]
    for told, size, reason, evidence in (
        *((told, rules.multiplication, MULTIPLIED, Evidence.SIZES) for told in (2, 1, 0)),
        *((told, rules.multiplied_in_all, SUMMED, Evidence.NAME) for told in (2, 1, 0)),
    ):
        # A sum that is not the product's alone has no line; nor is there one to contradict then.
        some = [j for j in made if (told or not executed[j].source) and size(executed[j])]
        mine = [i for i in left if size(captured[i])]
        keys, others = (
            [(size(ops[n]), (ops[n].source, ops[n].origin)[:told]) for n in ns]
            for ops, ns in ((captured, mine), (executed, some))
        )
        found = [(mine[x], some[y]) for x, y in equal(keys, others)]
        left = without(left, (i for i, _ in found))
        made = without(made, (j for _, j in found))
        result.pairs += [(i, j, evidence) for i, j in found]
        result.unmatched_captured = without(result.unmatched_captured, (i for i, _ in found))
        result.explained.update({reason: len(found)} if found else {})


def gathered_through_root(
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
    result.unmatched_captured = without(left, (i for i, _ in found))
    result.explain(THROUGH_ROOT, [], sorted({j for _, j in found}))


def parted(
    kind: OpClass,
    captured: Sequence[OpFacts],
    executed: Sequence[OpFacts],
    left: list[int],
    over: list[int],
    rules: Rules,
    result: Matching,
) -> Pairs:
    """Collectives that differ in how many buffers go at once; all of their buffers must pair up."""
    pairs: Pairs = []
    for few, many, reason, flipped in (
        (over, left, COMBINED[kind], False),
        (left, over, PARTED, True),
    ):
        whole, single = (captured, executed) if flipped else (executed, captured)
        free: dict[Hashable, deque[int]] = defaultdict(deque)
        for number in many:
            facts = single[number]
            buffers = rules.buffers(facts)
            if len(buffers) == 1:
                free[buffers[0], facts.group, rules.reduction(facts)].append(number)
        for number in few:
            facts = whole[number]
            wanted = [(one, facts.group, rules.reduction(facts)) for one in rules.buffers(facts)]
            enough = Counter(wanted)
            if len(wanted) < 2 or any(len(free[key]) < count for key, count in enough.items()):
                continue
            for key in wanted:
                other = free[key].popleft()
                pair = (number, other) if flipped else (other, number)
                pairs.append((*pair, Evidence.SIZES))
                result.explained[reason] += 1
    return pairs
