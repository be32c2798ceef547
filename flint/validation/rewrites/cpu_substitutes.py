"""Light ops that a backend runs instead of or in addition to a captured one, each for a known
reason.

The idea: a recording for an accelerator and its run on a CPU differ in a few known ways.  A rule
defines which ops of which sizes, and how many, it expects because of which matched op; other ops
remain differences.  Rules are tried in the order of ``rewrites.table``.

    decomposed(matching)
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Sequence
from typing import Final, TypeAlias

from flint.observed.classes import OpClass, base_name
from flint.observed.columns import OpFacts, Tensor
from flint.validation.matching.pairing import Matching

DECOMPOSED = "an op with a kernel of its own on accelerators, which the CPU runs as several ops"
FUNCTIONAL = "a functional all-reduce sums in a copy of its argument"
HEADS = "attention kernels differ in grouped heads and memory layout: copies around them"
CAST = "autocast on the CPU casts before an op; accelerators have a kernel that casts itself"

_NARROW: Final = frozenset({"bf16", "f16"})

Shape: TypeAlias = tuple[int, ...]
Ops: TypeAlias = Sequence[OpFacts]
Key: TypeAlias = tuple[str, frozenset[Shape]]


def unmatched_light(matching: Matching) -> tuple[list[int], list[int]]:
    """Unmatched captured and executed ops that need not match one by one."""
    return (
        [i for i in matching.unmatched_captured if not matching.captured[i].kind.must_match],
        [j for j in matching.unmatched_executed if not matching.executed[j].kind.must_match],
    )


def shapes_of(facts: OpFacts) -> frozenset[Shape]:
    """Shapes of an op's operands, without single numbers."""
    return frozenset(shape for shape, _ in facts.operands or () if shape)


class Free:
    """Available ops by name and shapes, in order."""

    def __init__(self, ops: Ops, positions: Iterable[int]) -> None:
        self.positions: dict[Key, deque[int]] = defaultdict(deque)
        for number in positions:
            facts = ops[number]
            self.positions[base_name(facts.name), shapes_of(facts)].append(number)

    def has(self, wanted: Counter[Key]) -> bool:
        """Whether there are that many of each."""
        return all(len(self.positions.get(key, ())) >= many for key, many in wanted.items())

    def take(self, wanted: Counter[Key]) -> list[int]:
        """At most that many of each."""
        taken = []
        for key, many in wanted.items():
            there = self.positions.get(key, deque())
            taken += [there.popleft() for _ in range(min(many, len(there)))]
        return taken


def key_of(name: str, *shapes: Shape) -> Key:
    """The key of an op on these tensors."""
    return name, frozenset(shapes)


def decomposed(matching: Matching) -> None:
    """Root mean square norms and dropouts, for which the CPU has no kernels."""
    captured_ids, executed_ids = unmatched_light(matching)
    free = Free(matching.executed, executed_ids)
    for i in captured_ids:
        choices, casts = _norm(matching, i)
        choices += _dropout(matching.captured[i])
        for choice in choices:
            if free.has(choice):
                matching.explain(DECOMPOSED, [i], free.take(choice) + free.take(casts))
                break


def _norm(matching: Matching, captured: int) -> tuple[list[Counter[Key]], Counter[Key]]:
    """The ops that must have run in place of a norm, as alternatives, and casts that may have.

    PyTorch composes it from elementary ops in float32 if a device has no kernel
    (rms_norm_composite in aten/src/ATen/native/layer_norm.cpp); autograd derives these one by one,
    for the gradients that the capture has: of input and weight, where its results are unknown.
    """
    facts = matching.captured[captured]
    base = base_name(facts.name)
    tensors = [tensor for tensor in facts.operands or () if tensor[0]]
    # A kernel's operands are in the order in which its body reads them: shapes distinguish them.
    tensors.sort(key=lambda tensor: (len(tensor[0]), math.prod(tensor[0])), reverse=True)
    if base == "_fused_rms_norm" and len(tensors) == 2:
        x, w = (shape for shape, _ in tensors)
        one = x[: -len(w)] + (1,) * len(w)
        parts = Counter(
            {
                key_of("pow", x): 1, key_of("add", one): 1, key_of("rsqrt", one): 1,
                key_of("mul", x, one): 1, key_of("mul", x, w): 1,
            }
        )  # fmt: skip
        means = (
            Counter({key_of("mean", x): 1}),
            Counter({key_of("sum", x, one): 1, key_of("div", one): 1}),
        )
        return [parts + mean for mean in means], _casts(tensors)
    if base == "_fused_rms_norm_backward" and len(tensors) == 4:
        x, w = tensors[0][0], tensors[3][0]
        if len(w) == len(x):  # all dims are normalised: the statistic is a single number
            w = x
        one = x[: -len(w)] + (1,) * len(w)
        of_input = Counter([key_of("mul", x, w)])  # may look like the next
        of_input += Counter(
            {
                key_of("mul", x): 3, key_of("mul", x, one): 1, key_of("mul", one): 2,
                key_of("pow", one): 1, key_of("pow", x): 1, key_of("sum", x): 1,
                key_of("div", x): 1, key_of("add", x): 1,
            }
        )  # fmt: skip
        # A gradient that already has the weight's shape is not summed.
        of_weight = Counter([key_of("mul", x)] + [key_of("sum", x)] * (w != x))
        choices = [of_input + of_weight]
        results = matching.results(captured)
        if results is not None and len(results) == 1:
            # The first layer's input needs no gradient, nor does a frozen weight.
            choices = [
                parts for shape, parts in ((x, of_input), (w, of_weight)) if results == (shape,)
            ]
        return choices, _casts([tensors[0], tensors[3]])
    return [], Counter()


def _dropout(facts: OpFacts) -> list[Counter[Key]]:
    """The ops that must have run in place of a dropout: noise, its scale, and a product with it.

    ``_dropout_impl`` in aten/src/ATen/native/Dropout.cpp; the gradient is a product with the noise.
    """
    base = base_name(facts.name)
    shapes = [shape for shape, _ in facts.operands or () if shape]
    if base == "native_dropout" and shapes:
        return [Counter(key_of(name, shapes[0]) for name in ("bernoulli", "div", "mul"))]
    if base == "native_dropout_backward" and shapes:
        return [Counter([key_of("mul", shapes[0])])]
    return []


def _casts(tensors: Sequence[Tensor]) -> Counter[Key]:
    """To float32 and back."""
    return Counter({key_of("_to_copy", shape): 2 for shape, dtype in tensors if dtype != "f32"})


def _types(facts: OpFacts) -> set[str]:
    """Element types of an op's operands, without single numbers."""
    return {dtype for shape, dtype in facts.operands or () if shape}


def largest_operand(facts: OpFacts) -> int:
    """Elements of the largest operand."""
    return max((math.prod(shape) for shape, _ in facts.operands or ()), default=0)


def functional(matching: Matching) -> None:
    """Copies by ``_c10d_functional`` (torch/csrc/distributed/c10d/Functional.cpp), anywhere."""
    reduced = (matching.captured[i] for i, _, _ in matching.pairs)
    allowed = Counter(largest_operand(op) for op in reduced if op.kind == OpClass.ALL_REDUCE)
    copies = []
    for j in unmatched_light(matching)[1]:
        elements = largest_operand(matching.executed[j])
        if base_name(matching.executed[j].name) == "clone" and allowed[elements] > 0:
            allowed[elements] -= 1
            copies.append(j)
    matching.explain(FUNCTIONAL, [], copies)


def heads(matching: Matching) -> None:
    """Copies before and after attention.

    A kernel without grouped heads gets keys and values repeated, and their gradients are summed;
    results come head by head or position by position.  A mask of booleans becomes one of numbers.
    """
    captured, executed = matching.captured, matching.executed
    recorded: Counter[Key] = Counter()
    run: Counter[Key] = Counter()
    counted = set()
    for i, j, _ in matching.pairs:
        written = captured[i].kind != OpClass.ATTENTION
        if (written and executed[j].kind != OpClass.ATTENTION) or j in counted:
            continue
        if written:  # several products for one kernel
            counted.add(j)
        for shape, dtype in executed[j].operands or ():
            if dtype == "i1":  # the CPU's op makes numbers of a mask inside
                recorded[key_of("where", shape)] += 1
        for batch, heads, length, size in (s for s in shapes_of(executed[j]) if len(s) == 4):
            recorded[key_of("clone", (batch, length, heads, size))] += 3
            # Those of ``MultiheadAttention``, which has the positions first.
            recorded[key_of("clone", (length, batch, heads, size))] += 1
            recorded[key_of("clone", (length, batch * heads, size))] += 1
            recorded[key_of("clone", (batch, heads, length, size))] += 2
            run[key_of("clone", (batch, length, heads, size))] += 3
            run[key_of("copy", (batch, heads, length, size))] += 2
            run[key_of("clone", (batch, heads, length))] += 1
            if written:  # the products have their own layouts
                run[key_of("clone", (batch, heads, length, size))] += 3
                run[key_of("clone", (batch * heads, length, size))] += 1
            queries = executed[j] if written else captured[i]  # the products have one dim for both
            for whole in {shape[1] for shape in shapes_of(queries) if len(shape) == 4}:
                repeated = (batch, heads, whole // heads, length, size)
                recorded[key_of("clone", repeated)] += 2
                recorded[key_of("sum", repeated)] += 2
    captured_ids, executed_ids = unmatched_light(matching)
    matching.explain(
        HEADS, Free(captured, captured_ids).take(recorded), Free(executed, executed_ids).take(run)
    )


def cast(matching: Matching) -> None:
    """The same reduction with another element type, and other light ops that ran in a narrower one:
    fewer of them are computed in float32 on the CPU (aten/src/ATen/autocast_mode.h).  Each of
    these needs no casts of its tensors and its result.
    """
    captured_ids, executed_ids = unmatched_light(matching)
    reduced = [j for j in executed_ids if matching.executed[j].kind == OpClass.REDUCTION]
    narrow = [j for j in executed_ids if _types(matching.executed[j]) <= _NARROW]
    free = Free(matching.executed, [*reduced, *(j for j in narrow if j not in reduced)])
    casts: Counter[Key] = Counter()
    for i in captured_ids:
        facts = matching.captured[i]
        if facts.kind != OpClass.REDUCTION and "f32" not in _types(facts):
            continue
        other = free.take(Counter({(base_name(facts.name), shapes_of(facts)): 1}))
        if other:
            matching.explain(CAST, [i], other)
            if "f32" in _types(facts):
                casts += Counter({key_of("_to_copy", shape): 2 for shape in shapes_of(facts)})
    needless = Free(matching.captured, unmatched_light(matching)[0]).take(casts)
    matching.explain(CAST, needless, [])
