"""Products and convolutions of XLA's programs that ran in another form, from the same line.

The idea: a convolution over windows of one element is a matrix product, a ragged product runs as a
dense one, and a product without a sum, or of vectors, as a multiplication.  The CPU computes the
gradient of a grouped convolution's weight for the channels of all groups.

    pointwise(matching)
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace

from flint.observed.classes import OpClass
from flint.observed.columns import OpFacts
from flint.validation.matching.equivalence import Rules, either_way
from flint.validation.matching.form_reasons import PROMOTED
from flint.validation.matching.pairing import Evidence, Matching, equal, without

POINTWISE = "a convolution with a window of one element, computed as a matrix product"
UNGROUPED = "a convolution in groups, which the CPU computes for all pairs of them, and masks"
RAGGED = "a ragged product, which runs as a dense one of all groups, with zeros in between"
MULTIPLIED = "a matrix product of vectors, or one without a sum, which runs as a multiplication"
SUMMED = (
    "a matrix product of vectors whose sum the trace does not name: only the number of "
    "multiplications is compared"
)


def pointwise(matching: Matching) -> None:
    """Pair convolutions with matrix products of the same sizes and from the same line."""
    captured, executed, rules = matching.captured, matching.executed, matching.rules
    captured_ids, _ = matching.unmatched(OpClass.CONVOLUTION)
    _, executed_ids = matching.unmatched(OpClass.GEMM)
    keys = [(_product(captured[i], rules), captured[i].source) for i in captured_ids]
    ran = [(_product(executed[j], rules), executed[j].source) for j in executed_ids]
    for x, y in equal(keys, ran):
        i, j = captured_ids[x], executed_ids[y]
        matching.pair(i, j, Evidence.SIZES, POINTWISE)
        if captured[i].dtype != executed[j].dtype:
            matching.explained[PROMOTED] += 1


def _product(facts: OpFacts, rules: Rules) -> Hashable:
    """The properties that a convolution must share with a matrix product that computes the same."""
    return rules.computed_as(facts.dtype), tuple(sorted(map(either_way, facts.gemms or ())))


def ungrouped(matching: Matching) -> None:
    """Pair convolutions of a batch in groups with those of all pairs of groups.

    XLA's CPU backend has no groups of the batch, one for each channel, as the gradient of a weight
    may have (convolution_group_converter.cc); what it makes in their place has no line.
    """
    captured, executed, rules = matching.captured, matching.executed, matching.rules
    captured_ids, executed_ids = matching.unmatched(OpClass.CONVOLUTION)
    executed_ids = [j for j in executed_ids if not executed[j].source]
    keys = [_for_all_groups(captured[i], rules) for i in captured_ids]
    ran = [rules.sized_key(executed[j]) for j in executed_ids]
    for x, y in equal(keys, ran):
        matching.pair(captured_ids[x], executed_ids[y], Evidence.SIZES, UNGROUPED)


def _for_all_groups(facts: OpFacts, rules: Rules) -> Hashable:
    """The key of a convolution of all pairs of groups; None without groups or known work."""
    if not facts.convolved or facts.gemms is None or len(facts.gemms) != 1:
        return None
    [(groups, *_)] = facts.gemms
    made = tuple(groups * number for number in facts.convolved)
    return rules.sized_key(replace(facts, convolved=made))


def ragged(matching: Matching) -> None:
    """Pair ragged products with dense ones, from the same line.

    XLA expands them (xla/hlo/transforms/expanders/ragged_dot_rewriter.cc): rows of other groups
    are zeros, in a sum that is longer by the number of groups, or in a product per group where the
    rows themselves are summed.
    """
    captured, executed, rules = matching.captured, matching.executed, matching.rules
    captured_ids = [
        i for i in matching.unmatched_captured if captured[i].name.endswith("ragged_dot")
    ]
    _, executed_ids = matching.unmatched(OpClass.GEMM)
    keys = [(_dense(captured[i], rules), captured[i].source) for i in captured_ids]
    ran = [(rules.sized_key(executed[j]), executed[j].source) for j in executed_ids]
    for x, y in equal(keys, ran):
        matching.pair(captured_ids[x], executed_ids[y], Evidence.SIZES, RAGGED)


def _dense(facts: OpFacts, rules: Rules) -> Hashable:
    """The key of the dense product in place of a ragged one; None for other ops."""
    shapes = [shape for shape, _ in facts.operands or ()]
    if len(shapes) != 3 or not shapes[2] or facts.gemms is None or len(facts.gemms) != 1:
        return None
    [(batch, m, n, k)], groups = facts.gemms, shapes[2][-1]
    rows_summed = len(shapes[0]) == len(shapes[1])  # else the second operand is one per group
    size = (batch * groups, m, n, k) if rows_summed else (batch, m, n, k * groups)
    return rules.sized_key(replace(facts, gemms=(size,)))


def multiplied(matching: Matching) -> None:
    """Pair products with multiplications, of the same sizes and from the same line."""
    captured, executed, rules = matching.captured, matching.executed, matching.rules
    captured_ids, _ = matching.unmatched(OpClass.GEMM)
    executed_ids = [
        j
        for j, facts in enumerate(executed if captured_ids else ())
        if facts.kind == OpClass.ELEMENTWISE and facts.gemms is not None
    ]
    for size, reason, evidence in (
        (multiplication, MULTIPLIED, Evidence.SIZES),
        (multiplied_in_all, SUMMED, Evidence.NAME),
    ):
        for detail in (2, 1, 0):
            some = [i for i in captured_ids if size(rules, captured[i])]
            # A sum that is not the product's alone has no line; nor is there one to contradict.
            ran = [
                j
                for j in executed_ids
                if (detail or not executed[j].source) and size(rules, executed[j])
            ]
            keys, others = (
                [(size(rules, ops[n]), (ops[n].source, ops[n].origin)[:detail]) for n in ids]
                for ops, ids in ((captured, some), (executed, ran))
            )
            pairs = [(some[x], ran[y]) for x, y in equal(keys, others)]
            for i, j in pairs:
                matching.pair(i, j, evidence, reason)
            captured_ids = without(captured_ids, (i for i, _ in pairs))
            executed_ids = without(executed_ids, (j for _, j in pairs))


def multiplication(rules: Rules, facts: OpFacts) -> Hashable | None:
    """The key that a product shares with the multiplication that it really is; None for others.

    A product without a sum has the sizes (batch, m, n, 1), one of vectors (batch, 1, 1, k).
    """
    if facts.gemms is None or len(facts.gemms) != 1:
        return None
    [size] = facts.gemms
    _, m, n, k = size
    return (rules.computed_as(facts.dtype), either_way(size)) if k == 1 or m == n == 1 else None


def multiplied_in_all(rules: Rules, facts: OpFacts) -> Hashable | None:
    """The same where a compiler has joined the sum of a product of vectors with another sum.

    Of the executed one k is 0 then, and the batch is how many numbers are multiplied.
    """
    if facts.gemms is None or len(facts.gemms) != 1:
        return None
    [(batch, m, n, k)] = facts.gemms
    ran = facts.kind == OpClass.ELEMENTWISE
    if not m == n == 1 or (ran and k):
        return None
    return rules.computed_as(facts.dtype), batch if ran else batch * k
