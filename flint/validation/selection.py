"""Which rows of a PyTorch trace are compared: the level at which the capture speaks.

The idea: profilers list an op and all inside of it, ``aten::linear`` and its ``aten::addmm``.
The outermost op whose name the capture has is taken whole; where it has none, the innermost that
launched a kernel (on a device), or that is no mere view (on a CPU).  Of a DTensor's op, which has
global shapes, the op of the same name inside of it is taken: the one on the rank's own part.

    selected(trace, trace.rows(0, 2), names={"addmm", "mm"})
"""

from __future__ import annotations

from collections.abc import Set

import numpy as np

from flint.validation.classes import OpClass, aten_class, base_name
from flint.validation.observed import Ints, Observed

#: Ops by the name of a library that implements them -> PyTorch's own name of the same op.
LIBRARY_NAMES = {
    "cudnn_convolution": "convolution",
    "miopen_convolution": "convolution",
    "mkldnn_convolution": "convolution",
    "cudnn_batch_norm": "native_batch_norm",
    "cudnn_batch_norm_backward": "native_batch_norm_backward",
    "miopen_batch_norm": "native_batch_norm",
    "miopen_batch_norm_backward": "native_batch_norm_backward",
}

#: Ops that only call others, on every backend (CompositeImplicitAutograd in PyTorch's
#: native_functions.yaml).  One with nothing inside of it is no kernel: execution traces tell the
#: parent of an op wrongly where another thread's op ends at the same moment.
CALLERS = frozenset({"linear", "matmul", "einsum", "bilinear", "tensordot", "inner", "conv2d"})

#: So far an op is looked for among those around it.
_DEPTH = 16


def plain_name(name: str) -> str:
    """An op's name without namespace, overload, in-place mark and library.

    PyTorch has an op per library for scaled dot product attention: all are ``attention``.
    """
    base = base_name(name)
    if "attention" in base and aten_class(name) == OpClass.ATTENTION:
        return "attention backward" if base.endswith("backward") else "attention"
    return LIBRARY_NAMES.get(base, base)


def selected(trace: Observed, rows: Ints, names: Set[str]) -> tuple[Ints, Ints]:
    """The rows to compare, in order, and nanoseconds of each with all that is inside of it.

    Args:
        trace: from Kineto or an execution trace.
        rows: of one rank and step.
        names: ``plain_name`` of every op that the capture has.
    """
    place = {int(row): i for i, row in enumerate(rows)}
    parents = [place.get(int(parent), -1) for parent in trace.parent[rows]]
    facts = [trace.facts[int(op)] for op in trace.op[rows]]
    on_device = bool((trace.launches[rows] >= 0).any())
    launched = np.maximum(trace.launches[rows], 0).tolist()
    time = np.maximum(trace.duration[rows], 0).tolist()
    if on_device:
        time = [time[i] if launched[i] else 0 for i in range(len(rows))]
    under = list(launched)
    plain = {fact: plain_name(fact.name) for fact in set(facts)}
    repeated = [False] * len(rows)
    communicates = [False] * len(rows)
    has_work = [False] * len(rows)
    for i in range(len(rows) - 1, -1, -1):
        outer = parents[i]
        if outer < 0:
            continue
        under[outer] += under[i]
        if on_device:
            time[outer] += time[i]
        around = outer
        for _ in range(_DEPTH):  # DTensor's op, of global shapes, around the op on this rank's part
            if around < 0 or repeated[around]:
                break
            repeated[around] = plain[facts[around]] == plain[facts[i]]
            around = parents[around]
        communicates[outer] |= communicates[i] or facts[i].kind.collective
        has_work[outer] |= has_work[i] or facts[i].kind not in (OpClass.FREE, OpClass.OTHER)
    covered = [False] * len(rows)
    chosen = []
    for i, fact in enumerate(facts):
        outer = parents[i]
        if outer >= 0 and covered[outer]:
            covered[i] = True
            continue
        if fact.kind.collective:
            take = not communicates[i]
        elif communicates[i] or (repeated[i] and plain[fact] in names):
            take = False
        elif plain[fact] in names and "::" in fact.name:
            take = not on_device or under[i] > 0
        elif on_device:
            take = launched[i] > 0
        else:
            take = (
                not has_work[i]
                and plain[fact] not in CALLERS
                and fact.kind not in (OpClass.FREE, OpClass.OTHER)
            )
        if take:
            covered[i] = True
            chosen.append(i)
    picked = np.array(chosen, dtype=np.int64)
    return rows[picked], np.array(time, dtype=np.int64)[picked]
