"""Which rows of a PyTorch trace are compared: those at the capture's level.

The idea: profilers list an op and everything inside it, ``aten::linear`` and its ``aten::addmm``.
The outermost op whose name the capture has is taken as a whole; if there is none, the innermost
that launched a kernel (on a device), or that contains no op of its own weight (on a CPU), which an
op of unknown class has if it makes its result (an FFT, an upsampling). For a
DTensor's op, which has global shapes, the ops inside it, on the rank's own part, are taken; so is
the product inside one of vmap's.

    selected(trace, trace.rows(0, 2), names={"addmm", "mm"})
"""

from __future__ import annotations

from collections.abc import Set

import numpy as np

from flint.mesh.ragged import Ints
from flint.observed.classes import OpClass, aten_class, base_name
from flint.observed.columns import Observed, OpFacts
from flint.observed.unfinished_ops import PRODUCTS, answered, halted, nested

#: Library-specific names of ops -> PyTorch's own name of the same op.
LIBRARY_NAMES = {
    "cudnn_convolution": "convolution",
    "miopen_convolution": "convolution",
    "mkldnn_convolution": "convolution",
    "cudnn_batch_norm": "native_batch_norm",
    "cudnn_batch_norm_backward": "native_batch_norm_backward",
    "miopen_batch_norm": "native_batch_norm",
    "miopen_batch_norm_backward": "native_batch_norm_backward",
    "_index_put_impl": "index_put",
}

#: Ops that only call others, on every backend (CompositeImplicitAutograd in PyTorch's
#: native_functions.yaml).  One with nothing inside it is not a kernel: execution traces record a
#: wrong parent if another thread's op ends at the same moment.
CALLERS = frozenset({"linear", "matmul", "einsum", "bilinear", "tensordot", "inner", "conv2d"})

#: Ops that make room for the result of the op that calls them.
MAKERS = frozenset({"empty", "empty_like", "empty_strided", "new_empty", "resize"})

#: Note about ops that are not where an execution trace puts them.
MOVED = "ops with an impossible recorded nesting: moved to where they fit"

STOPPED = (
    "a product that started but never ran: activation checkpointing already had all that it needed"
)

#: The most enclosing ops that are searched for an op.
_DEPTH = 16

#: Recorded by PyTorch when an op is dispatched to a tensor subclass: the inner op follows
#: separately.
_SUBCLASS = "PythonSubclass"

#: Part of the names of CPU kernels for ops that lack it in their name.
_FOR_CPU = "_for_cpu"

#: Ranges that begin in Python or in autograd's engine, which aten ops do not call themselves.
_RANGES = ("autograd::engine", "ProfilerStep", "Optimizer.", "FSDP::")


def plain_name(name: str) -> str:
    """An op's name without namespace, overload, in-place mark and library.

    PyTorch has an op per library for scaled dot product attention: all are ``attention``.
    """
    base = base_name(name)
    if "attention" in base and aten_class(name) == OpClass.ATTENTION:
        return "attention backward" if base.endswith("backward") else "attention"
    return LIBRARY_NAMES.get(base, base)


def selected(trace: Observed, rows: Ints, names: Set[str]) -> tuple[Ints, Ints]:
    """The rows to compare, in order, and nanoseconds of each with everything inside it.

    Args:
        trace: from Kineto or an execution trace.
        rows: the rows of one rank and step.
        names: ``plain_name`` of every op that the capture has.
    """
    parents, facts = nested(trace, rows)
    if trace.form == "pytorch-et":
        parents = _repaired(parents, facts, trace.stream[rows].tolist())
    on_device = bool((trace.launches[rows] >= 0).any())
    launched = np.maximum(trace.launches[rows], 0).tolist()
    time = np.maximum(trace.duration[rows], 0).tolist()
    if on_device:
        time = [time[i] if launched[i] else 0 for i in range(len(rows))]
    under = list(launched)
    plain = {fact: plain_name(fact.name) for fact in set(facts)}
    repeated = [False] * len(rows)
    communicates = [False] * len(rows)
    inside = [0] * len(rows)
    named = [False] * len(rows)
    of_subclass = [False] * len(rows)
    makes = [False] * len(rows)
    for i in range(len(rows) - 1, -1, -1):
        outer = parents[i]
        if outer < 0:
            continue
        under[outer] += under[i]
        if on_device:
            time[outer] += time[i]
        around = outer
        is_product = plain[facts[i]] in PRODUCTS & names
        for _ in range(_DEPTH):
            if around < 0 or repeated[around]:
                break
            # DTensor's op, with global shapes, around the op on this rank's part; vmap's with the
            # shapes of one sample, around a product of all.
            same = plain[facts[around]] == plain[facts[i]]
            same |= is_product and plain[facts[around]] in PRODUCTS
            repeated[around] = same and _FOR_CPU not in facts[i].name
            around = parents[around]
        communicates[outer] |= communicates[i] or facts[i].kind.collective
        inside[outer] = max(inside[outer], inside[i], facts[i].kind.weight)
        named[outer] |= named[i] or plain[facts[i]] in names
        of_subclass[outer] |= of_subclass[i] or facts[i].name == _SUBCLASS
        makes[outer] |= base_name(facts[i].name) in MAKERS
    covered = [False] * len(rows)
    unfinished = halted(trace, parents, facts) | answered(trace, parents, facts)
    chosen = []
    for i, fact in enumerate(facts):
        outer = parents[i]
        if outer >= 0 and covered[outer]:
            covered[i] = True
            continue
        if fact.kind.collective:
            take = not communicates[i] and i not in unfinished
        elif (
            communicates[i]
            or of_subclass[i]
            or i in unfinished
            or (repeated[i] and plain[fact] in names)
        ):
            take = False
        elif plain[fact] in names and "::" in fact.name:
            take = not on_device or under[i] > 0
        elif on_device:
            take = launched[i] > 0
        else:
            weight = fact.kind.weight
            copies = weight == inside[i] == 1 and not named[i]
            unknown = fact.kind == OpClass.OTHER and makes[i] and fact.name.startswith("aten::")
            works = weight > inside[i] or copies or (unknown and not inside[i])
            take = plain[fact] not in CALLERS and works
        if take:
            covered[i] = True
            chosen.append(i)
    picked = np.array(chosen, dtype=np.int64)
    return rows[picked], np.array(time, dtype=np.int64)[picked]


def outermost(trace: Observed, rows: Ints, names: Set[str]) -> list[str]:
    """For each row, the outermost enclosing op with one of these names, or ""; [] if none ran."""
    wanted = {number for number, facts in enumerate(trace.facts) if facts.name in names}
    if not wanted:
        return []
    found = []
    for row in rows.tolist():
        name, around = "", int(trace.parent[row])
        while around >= 0:
            number = int(trace.op[around])
            name = trace.facts[number].name if number in wanted else name
            around = int(trace.parent[around])
        found.append(name)
    return found


def moved(trace: Observed, rows: Ints) -> int:
    """How many ops of an execution trace are moved (``selected``)."""
    if trace.form != "pytorch-et":
        return 0
    parents, facts = nested(trace, rows)
    found = _repaired(parents, facts, trace.stream[rows].tolist())
    return sum(one != other for one, other in zip(parents, found, strict=True))


def stopped(trace: Observed, rows: Ints) -> int:
    """Products among some rows that began but never ran."""
    return len(halted(trace, *nested(trace, rows)))


def _repaired(parents: list[int], facts: list[OpFacts], threads: list[int]) -> list[int]:
    """Parents as far as they can be true.

    If an op on another thread ends at the same time as one on this thread, execution traces end the
    wrong one: later ops are recorded inside an op that has ended, or outside one that has not.
    """
    found: list[int] = []
    sibling: dict[tuple[int, int], int] = {}
    held = [0] * len(facts)
    over = [False] * len(facts)
    for i, outer in enumerate(parents):
        last = sibling.get((threads[i], outer), -1)
        if last >= 0 and _is_inside(facts[last], facts[i], held[last]):
            outer = last
        while outer >= 0 and (over[outer] or not _may_contain(facts[outer], facts[i])):
            over[outer] = True
            outer = found[outer]
        found.append(outer)
        sibling[threads[i], outer] = i
        if outer >= 0:
            held[outer] += 1
    return found


#: Suffix -> ops that end with it.
_ENDS = {
    "copy": frozenset({"clone", "_to_copy"}),
    "zero": frozenset({"zeros", "zeros_like", "new_zeros"}),
    "fill": frozenset({"ones", "ones_like", "full", "full_like", "new_full"}),
}


def _is_inside(before: OpFacts, facts: OpFacts, held: int) -> bool:
    """Whether an op recorded after another one can only be inside it.

    An op on a list calls as many ops on single tensors as the list has, if it calls any.
    """
    if not before.name.startswith("aten::"):
        return False
    if facts.name == _SUBCLASS:
        return not held
    if before.kind == facts.kind == OpClass.ATTENTION:
        return not held and _FOR_CPU in facts.name
    if held and base_name(before.name) == "_foreach_" + base_name(facts.name):
        listed, one = len(before.operands or ()), max(1, len(facts.operands or ()))
        return (held + 1) * one <= listed
    same = not before.operands or not facts.operands or before.operands[0] in facts.operands
    return same and base_name(before.name) in _ENDS.get(base_name(facts.name), ())


def _may_contain(outer: OpFacts, inner: OpFacts) -> bool:
    name = inner.name
    if outer.name.startswith("c10d::"):
        return not name.startswith(("aten::", "c10d::", "_c10d_functional::", "fsdp::", *_RANGES))
    if not outer.name.startswith("aten::"):
        return True
    if name.startswith(_RANGES):
        return False
    if base_name(outer.name) == "copy":
        return not name.startswith("aten::") or inner.kind in (OpClass.FREE, OpClass.COPY)
    if outer == inner and outer.kind == OpClass.ELEMENTWISE:
        return False  # the next of two; autocast calls copies again with the same tensors
    if inner.kind.must_match:
        composed = "math" in outer.name or outer.kind not in (*_LIGHT, OpClass.ATTENTION)
        return composed or inner.kind == outer.kind
    if base_name(outer.name) in PRODUCTS:
        return base_name(name) != "t"
    if outer.kind == OpClass.ATTENTION and "math" not in outer.name:
        return inner.kind not in _LIGHT[1:] and base_name(name) != "cat"
    return inner.kind != OpClass.REDUCTION or outer.kind not in _LIGHT[:2]


_LIGHT = (OpClass.COPY, OpClass.ELEMENTWISE, OpClass.REDUCTION)


def has_heads(shape: tuple[int, ...]) -> bool:
    """Whether an argument of attention may be (batch, heads, positions, size), not saved beside."""
    return len(shape) > 3 and shape[-1] > 1
