"""Ops of the same name for which a profiler lists other arguments, for a known reason.

listed_arguments(matching, OpClass.COPY)
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import defaultdict

from flint.observed.classes import OpClass
from flint.observed.columns import Gemm, OpFacts
from flint.observed.selection import has_heads, plain_name
from flint.validation.matching.equivalence import (
    Rules,
    arguments,
    number_instead,
    tensors_read,
)
from flint.validation.matching.pairing import Evidence, Matching
from flint.validation.rewrites.cpu_substitutes import shapes_of

UNREAD = "the profiler records arguments that the op does not read, or lists without element types"
UNRECORDED = "the profiler does not record the tensors of an optional list, such as indices"
LONG_LIST = "the profiler does not record lists of more than 30 tensors: only names are compared"

#: The most tensors of a list that Kineto writes out (kTruncatLength in
#: torch/csrc/profiler/util.cpp).
_LONGEST_LIST = 30
#: The most ops of a name that are searched for one that lists other arguments.
_LOOKED_AT = 64


def listed_arguments(matching: Matching, kind: OpClass) -> None:
    """Pair ops of the same name whose arguments differ for a reason.

    Those that read nothing must be at the same position in the order, or make a listed tensor
    between the same heavy ops.  An op between the same heavy ops is preferred: a backend that runs
    a norm as several ops runs further ones of the same name and sizes.
    """
    rules = matching.rules
    if not rules.recorded or kind in rules.by_name or kind.collective or kind == OpClass.GEMM:
        return
    captured_ids, executed_ids = matching.unmatched(kind)
    if not captured_ids or not executed_ids:
        return
    pairs = [(i, j) for i, j, _ in matching.pairs if matching.kinds[0][i] is kind]
    before, ran_before = sorted(i for i, _ in pairs), sorted(j for _, j in pairs)
    heavy, ran_heavy = matching.anchors()
    free: dict[str, list[int]] = defaultdict(list)
    near: dict[tuple[str, int], list[int]] = defaultdict(list)
    for j in executed_ids:
        name = plain_name(matching.executed[j].name)
        free[name].append(j)
        near[name, bisect_left(ran_heavy, j)].append(j)
    for i in captured_ids:
        captured = matching.captured[i]
        name = plain_name(captured.name)
        candidates, stretch = free[name], near[name, bisect_left(heavy, i)]
        for j in [*stretch[:_LOOKED_AT], *candidates[:_LOOKED_AT]]:
            reason = _reason(captured, matching.executed[j], rules)
            at_same_place = bisect_left(before, i) == bisect_left(ran_before, j)
            if reason and (at_same_place or shapes_of(captured) or _makes(matching, i, j)):
                candidates.remove(j)
                near[name, bisect_left(ran_heavy, j)].remove(j)
                evidence = Evidence.NAME if reason == LONG_LIST else Evidence.SIZES
                matching.pair(i, j, evidence, reason)
                break


def _makes(matching: Matching, captured: int, executed: int) -> bool:
    """Whether an op's result is a listed tensor of one that ran between the same heavy ops."""
    results = matching.results(captured)
    listed = shapes_of(matching.executed[executed])
    heavy, ran = matching.anchors()
    same_stretch = bisect_left(heavy, captured) == bisect_left(ran, executed)
    return same_stretch and bool(results) and set(results or ()) <= listed


def _reason(captured: OpFacts, executed: OpFacts, rules: Rules) -> str:
    """Why two ops of the same name list other arguments; "" if no reason is known.

    Lists of tensors have no element type in Kineto's traces; their shapes count.  An op that makes
    a tensor reads nothing, even if the profiler lists arguments.  Of the ops that must match, only
    a convolution may list more (its weight), and attention a mask, and keys and values of grouped
    heads, which other kernels need repeated.
    """
    if number_instead(captured, executed):
        return ""
    tensors, listed = set(arguments(captured)), set(arguments(executed))
    masked = any(_masks(shape, captured.gemms) for shape, _ in listed)
    if captured.kind == OpClass.ATTENTION:  # without cuDNN's log-sum-exp
        tensors = {one for one in tensors if len(one[0]) < 4 or has_heads(one[0])}
    if captured.kind == OpClass.ATTENTION and masked:
        # Kernels get the mask for all heads and rows, and the CPU broadcasts it; other values saved
        # for the gradient differ between kernels.
        listed = {one for one in listed if has_heads(one[0]) or _masks(one[0], captured.gemms)}
        tensors = {one for one in tensors if len(one[0]) > 3}
        tensors = {one for one in tensors if one in listed or not _masks(one[0], captured.gemms)}
    if not listed and len(captured.operands or ()) > _LONGEST_LIST:
        return LONG_LIST
    untyped = {shape for shape, dtype in listed if not dtype}
    more = {shape for shape, _ in listed} - {shape for shape, _ in tensors}
    results = {batch * m * n for batch, m, n, _ in captured.gemms or ()}
    if captured.kind == OpClass.ATTENTION and not all(
        _masks(shape, captured.gemms) or any(_grouped(shape, whole) for whole, _ in tensors)
        for shape in more
    ):
        return ""
    # The gradient of a weight alone does not read the weight, which has the result's sizes.
    if captured.kind == OpClass.CONVOLUTION and not {math.prod(s) for s in more} <= results:
        return ""
    if all(item in listed or item[0] in untyped for item in tensors):
        return UNREAD
    fewer = tensors_read(executed) < tensors_read(captured)
    return UNRECORDED if rules.recorded and fewer and listed and listed < tensors else ""


def _masks(shape: tuple[int, ...], products: tuple[Gemm, ...] | None) -> bool:
    """Whether a tensor may be a mask of the scores of all heads (batch, heads, rows, keys)."""
    if not 2 <= len(shape) <= 4 or not products:
        return False
    batch, rows, keys, _ = products[0]
    heads = math.prod(shape[:-2])
    return heads > 0 and not batch % heads and shape[-2] in (1, rows) and shape[-1] in (1, keys)


def _grouped(shape: tuple[int, ...], whole: tuple[int, ...]) -> bool:
    """Whether a tensor (batch, heads, ...) is another with fewer heads, each for a group of its."""
    if len(shape) != len(whole) or len(shape) < 3 or not shape[1]:
        return False
    return shape[:1] + shape[2:] == whole[:1] + whole[2:] and whole[1] % shape[1] == 0
