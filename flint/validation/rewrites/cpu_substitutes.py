"""Light ops that a backend runs in place of a captured one, or beside it: each by a name.

The idea: a recording for an accelerator and its run on a CPU differ in a few known ways.  A rule
says which ops of which sizes it expects, because of which op that has a partner, and how many; what
is beyond that remains a difference.  ``RULES`` are tried one after another.

    explanations(captured, executed, pairs, left, over)[0].reason
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from flint.graph.tensor_types import DTYPE_BITS
from flint.observed.classes import OpClass, base_name
from flint.observed.columns import OpFacts, Tensor

DECOMPOSED = "an op with a kernel of its own on accelerators, which the CPU runs as several ops"
GLOO = "gloo's own work: copies in and out of its buffers, the division of a mean"
FUNCTIONAL = "a functional all-reduce sums in a copy of its argument"
NUMBERS = "an op on single numbers or mesh coordinates, which stay on the host"
HEADS = "attention kernels differ in grouped heads and memory layout: copies around them"
CAST = "autocast on the CPU casts before an op; accelerators have a kernel that casts itself"
ZEROS = "autograd makes zeros with another op in a capture, whose tensors are of a subclass"

Shape: TypeAlias = tuple[int, ...]
Pairs: TypeAlias = Iterable[tuple[int, int]]
Ops: TypeAlias = Sequence[OpFacts]
_Key: TypeAlias = tuple[str, frozenset[Shape]]


@dataclass(frozen=True, slots=True)
class Explained:
    """Ops without a partner, and why: their positions on both sides."""

    reason: str
    captured: list[int]
    executed: list[int]


def explanations(
    captured: Ops,
    executed: Ops,
    pairs: Sequence[tuple[int, int]],
    left: Sequence[int],
    over: Sequence[int],
    gloo: Gloo | None = None,
) -> list[Explained]:
    """Reasons for ops that have no partner.

    Args:
        captured, executed: the ops of a rank.
        pairs: positions of those that have a partner.
        left, over: of captured and of executed ops that have none.
        gloo: what gloo may have run, where it did.
    """
    left = [i for i in left if not captured[i].kind.must_match]
    over = [j for j in over if not executed[j].kind.must_match]
    found: list[Explained] = []
    for rule in RULES if gloo is None else (*RULES[:_GLOOS_TURN], gloo.rule, *RULES[_GLOOS_TURN:]):
        for item in rule(captured, executed, pairs, left, over):
            found.append(item)
            left = [i for i in left if i not in set(item.captured)]
            over = [j for j in over if j not in set(item.executed)]
    return found


def shapes_of(facts: OpFacts) -> frozenset[Shape]:
    """Shapes of an op's operands, without single numbers."""
    return frozenset(shape for shape, _ in facts.operands or () if shape)


class _Free:
    """Ops that may be taken, by name and shapes, the first of each first."""

    def __init__(self, ops: Ops, positions: Iterable[int]) -> None:
        self.positions: dict[_Key, deque[int]] = defaultdict(deque)
        for number in positions:
            facts = ops[number]
            self.positions[base_name(facts.name), shapes_of(facts)].append(number)

    def has(self, wanted: Counter[_Key]) -> bool:
        """Whether there are so many of each."""
        return all(len(self.positions.get(key, ())) >= many for key, many in wanted.items())

    def take(self, wanted: Counter[_Key]) -> list[int]:
        """At most so many of each."""
        found = []
        for key, many in wanted.items():
            there = self.positions.get(key, deque())
            found += [there.popleft() for _ in range(min(many, len(there)))]
        return found


def _key(name: str, *shapes: Shape) -> _Key:
    return name, frozenset(shapes)


def _decomposed(
    captured: Ops, executed: Ops, pairs: Pairs, left: Sequence[int], over: Sequence[int]
) -> Iterable[Explained]:
    """Root mean square norms and dropouts, which the CPU has no kernels for."""
    free = _Free(executed, over)
    for i in left:
        choices, casts = _norm(captured[i])
        choices += _dropout(captured[i])
        for choice in choices:
            if free.has(choice):
                yield Explained(DECOMPOSED, [i], free.take(choice) + free.take(casts))
                break


def _norm(facts: OpFacts) -> tuple[list[Counter[_Key]], Counter[_Key]]:
    """What must have run in place of a norm, one of several lists, and casts that may have.

    PyTorch composes it of elementary ops in float32 where a device has no kernel
    (rms_norm_composite in aten/src/ATen/native/layer_norm.cpp); autograd derives these one by one.
    """
    base = base_name(facts.name)
    tensors = [tensor for tensor in facts.operands or () if tensor[0]]
    if base == "_fused_rms_norm" and len(tensors) == 2:
        x, w = (shape for shape, _ in tensors)
        one = x[: -len(w)] + (1,) * len(w)
        parts = Counter(
            {
                _key("pow", x): 1, _key("add", one): 1, _key("rsqrt", one): 1,
                _key("mul", x, one): 1, _key("mul", x, w): 1,
            }
        )  # fmt: skip
        means = (
            Counter({_key("mean", x): 1}),
            Counter({_key("sum", x, one): 1, _key("div", one): 1}),
        )
        return [parts + mean for mean in means], _casts(tensors)
    if base == "_fused_rms_norm_backward" and len(tensors) == 4:
        x, one, w = (shape for shape, _ in tensors[1:])
        parts = Counter(
            {
                _key("mul", x): 4, _key("mul", x, one): 1, _key("mul", x, w): 1,
                _key("mul", one): 2, _key("pow", one): 1, _key("pow", x): 1,
                _key("sum", x): 2, _key("div", x): 1, _key("add", x): 1,
            }
        )  # fmt: skip
        return [parts], _casts([tensors[1], tensors[3]])
    return [], Counter()


def _dropout(facts: OpFacts) -> list[Counter[_Key]]:
    """What must have run in place of a dropout: noise, its scale, and a product with it.

    ``_dropout_impl`` in aten/src/ATen/native/Dropout.cpp; the gradient is a product with the noise.
    """
    base = base_name(facts.name)
    shapes = [shape for shape, _ in facts.operands or () if shape]
    if base == "native_dropout" and shapes:
        return [Counter(_key(name, shapes[0]) for name in ("bernoulli", "div", "mul"))]
    if base == "native_dropout_backward" and shapes:
        return [Counter([_key("mul", shapes[0])])]
    return []


def _casts(tensors: Sequence[Tensor]) -> Counter[_Key]:
    """To float32 and back."""
    return Counter({_key("_to_copy", shape): 2 for shape, dtype in tensors if dtype != "f32"})


def _numbers(
    captured: Ops, executed: Ops, pairs: Pairs, left: Sequence[int], over: Sequence[int]
) -> Iterable[Explained]:
    """Ops on tensors that captures know to be the host's."""
    found = []
    for j in over:
        facts = executed[j]
        if facts.kind not in (OpClass.COPY, OpClass.ELEMENTWISE) or not facts.operands:
            continue
        tensors = [tensor for tensor in facts.operands if tensor[0]]
        # A mesh is a tensor of ranks, and a rank looks for itself in it.
        mesh = base_name(facts.name) == "eq" and all(dtype == "i32" for _, dtype in tensors)
        if mesh or not tensors:
            found.append(j)
    if found:
        yield Explained(NUMBERS, [], found)


class Gloo:
    """Copies and divisions that gloo may make for the collectives of a rank.

    An all-gather goes through one buffer, which is copied part by part, and so does a gather at its
    root; a reduce-scatter is an all-reduce in a copy, of which the rank's part is copied; a mean is
    a sum that is divided (torch/csrc/distributed/c10d/ProcessGroupGloo.cpp).

    Args:
        captured: ops of a rank.
        pairs: their positions, and those of the executed ops that are the same.
        gathers: executed ops that are gathers to one rank, captured as messages.
    """

    def __init__(self, captured: Ops, pairs: Pairs, gathers: Iterable[int] = ()) -> None:
        self.budget: Counter[tuple[str, int]] = Counter()
        own = set(gathers)  # the root copies its own part as well
        to_root = set(own)
        for i, j in pairs:
            facts = captured[i]
            if j in to_root and facts.kind == OpClass.RECV:
                self.budget["copy", _elements(facts)] += 1 + (j in own)
                own.discard(j)
            members = len(facts.group or ())
            sizes = zip(facts.parts or (), facts.operands or (), strict=False)
            for elements in (size * 8 // DTYPE_BITS.get(dtype, 8) for size, (_, dtype) in sizes):
                self._add(facts.kind, elements, members)

    def _add(self, kind: OpClass, elements: int, members: int) -> None:
        if kind == OpClass.ALL_GATHER:
            self.budget["copy", elements] += members
        elif kind == OpClass.REDUCE_SCATTER:
            self.budget["copy", elements] += 1
            self.budget["div", elements] += 1
            self.budget["copy", elements // max(1, members)] += 1
        elif kind == OpClass.ALL_REDUCE:
            self.budget["div", elements] += 1

    def take(self, executed: Ops, positions: Iterable[int]) -> list[int]:
        """Those of these ops that are gloo's, as long as there may be more."""
        found = []
        for j in positions:
            name = executed[j].name.removeprefix("aten::")
            key = _GLOOS.get(name, name), _elements(executed[j])
            if self.budget[key] > 0:
                self.budget[key] -= 1
                found.append(j)
        return found

    def rule(
        self, captured: Ops, executed: Ops, pairs: Pairs, left: Sequence[int], over: Sequence[int]
    ) -> Iterable[Explained]:
        """What is left of them, as one of ``RULES``."""
        own = self.take(executed, over)
        if own:
            yield Explained(GLOO, [], own)


#: What gloo calls -> what it is in a budget.
_GLOOS = {"clone": "copy", "copy_": "copy", "div_": "div", "div": "division of others"}


def _elements(facts: OpFacts) -> int:
    return max((math.prod(shape) for shape, _ in facts.operands or ()), default=0)


def _functional(
    captured: Ops, executed: Ops, pairs: Pairs, left: Sequence[int], over: Sequence[int]
) -> Iterable[Explained]:
    """Copies by ``_c10d_functional`` (torch/csrc/distributed/c10d/Functional.cpp), anywhere."""
    budget = Counter(
        _elements(captured[i]) for i, _ in pairs if captured[i].kind == OpClass.ALL_REDUCE
    )
    found = []
    for j in over:
        elements = _elements(executed[j])
        if base_name(executed[j].name) == "clone" and budget[elements] > 0:
            budget[elements] -= 1
            found.append(j)
    if found:
        yield Explained(FUNCTIONAL, [], found)


def _heads(
    captured: Ops, executed: Ops, pairs: Pairs, left: Sequence[int], over: Sequence[int]
) -> Iterable[Explained]:
    """Copies before and behind attention.

    A kernel that knows no grouped heads gets keys and values repeated, and their gradients are
    summed; results come head by head or position by position.
    """
    ours: Counter[_Key] = Counter()
    theirs: Counter[_Key] = Counter()
    for i, j in pairs:
        if captured[i].kind != OpClass.ATTENTION:
            continue
        for batch, heads, length, size in (s for s in shapes_of(executed[j]) if len(s) == 4):
            ours[_key("clone", (batch, length, heads, size))] += 3
            theirs[_key("clone", (batch, length, heads, size))] += 3
            theirs[_key("copy", (batch, heads, length, size))] += 2
            theirs[_key("clone", (batch, heads, length))] += 1
            for whole in {shape[1] for shape in shapes_of(captured[i]) if len(shape) == 4}:
                repeated = (batch, heads, whole // heads, length, size)
                ours[_key("clone", repeated)] += 2
                ours[_key("sum", repeated)] += 2
    mine = _Free(captured, left).take(ours)
    others = _Free(executed, over).take(theirs)
    if mine or others:
        yield Explained(HEADS, mine, others)


def _cast(
    captured: Ops, executed: Ops, pairs: Pairs, left: Sequence[int], over: Sequence[int]
) -> Iterable[Explained]:
    """The same reduction of another element type."""
    free = _Free(executed, over)
    for i in left:
        facts = captured[i]
        if facts.kind != OpClass.REDUCTION:
            continue
        other = free.take(Counter({(base_name(facts.name), shapes_of(facts)): 1}))
        if other:
            yield Explained(CAST, [i], other)


def _zeros(
    captured: Ops, executed: Ops, pairs: Pairs, left: Sequence[int], over: Sequence[int]
) -> Iterable[Explained]:
    """Zeros that autograd makes by ``new_zeros`` for subclasses of tensors, else by ``zeros``."""
    ours = [i for i in left if base_name(captured[i].name) == "new_zeros"]
    theirs = [j for j in over if base_name(executed[j].name) == "zeros"]
    for i, j in zip(ours, theirs, strict=False):
        yield Explained(ZEROS, [i], [j])


Rule: TypeAlias = Callable[
    [Ops, Ops, Pairs, Sequence[int], Sequence[int]],
    Iterable[Explained],
]
RULES: tuple[Rule, ...] = (_decomposed, _functional, _heads, _cast, _zeros, _numbers)
#: Gloo's copies are told by their elements alone: after those that are told by more.
_GLOOS_TURN = 2
