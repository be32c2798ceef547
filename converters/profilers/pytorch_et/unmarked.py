"""Steps of an execution trace that marks none.

The idea: it has no times, but counts the ops in the order in which they began, and tells which is
inside of which.  An op that lasts until the last one inside of it began is enough to find steps as
in a profile with times.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import methodcaller

import numpy as np

from flint.converters.profilers.pytorch_et.nodes import Nodes
from flint.converters.profilers.repeats import BACKWARD, UPDATE, Ran, loop_of, named
from flint.mesh.ragged import Ints
from flint.observed.columns import REPEATED, UNMARKED

#: Around all ops of a process or of a thread there is one that is none.
_ROOT = "[pytorch|profiler|"
#: Backward functions that call hooks of parameters and of modules.
_WITH_HOOKS = ("AccumulateGrad", "BackwardHookFunctionBackward")
_NO_STEPS = "no ProfilerStep in the trace: all of it is treated as one step"


def unmarked_steps(
    nodes: Nodes, rows: Sequence[int], parent: Ints, notes: dict[str, int]
) -> tuple[Ints, tuple[str, ...]]:
    """The step of each row, -1 of those outside of all, and the steps' names; () without any.

    Args:
        nodes: of the trace.
        rows: their places, in the order in which they began.
        parent: of each row the row around it, -1 for none.
        notes: what was found is counted here.
    """
    last = list(range(len(rows)))
    outer = parent.tolist()
    for row in range(len(rows) - 1, -1, -1):
        around = outer[row]
        if around >= 0 and last[around] < last[row]:
            last[around] = last[row]
    steps, note = _steps(nodes, rows, 2 * _ended(nodes, rows, np.array(last)) + 1)
    notes.update(dict.fromkeys(note, 1))
    if not steps:
        return np.zeros(len(rows), np.int64), ()
    begins, ends = (np.array([step[side] for step in steps]) for side in (0, 1))
    when = 2 * np.arange(len(rows))
    place = np.searchsorted(begins, when, side="right") - 1
    inside = (place >= 0) & (when < ends[place])
    return np.where(inside, place, -1), tuple(name for _, _, name in steps)


def _ended(nodes: Nodes, rows: Sequence[int], last: Ints) -> Ints:
    """The last row inside of each, without those of later steps.

    If another thread mixes up the observer's stack, a gradient may enclose all that follows.  One
    encloses at most the update of its own parameter, and only where hooks run.
    """
    names = [item.name for item in nodes.facts]
    fact = np.array(nodes.fact, np.int64)[rows]
    update, backward, hooks = (
        np.array(list(map(holds, names)), bool)[fact]
        for holds in (
            methodcaller("startswith", UPDATE),
            methodcaller("startswith", BACKWARD),
            methodcaller("endswith", _WITH_HOOKS),
        )
    )
    updates, place = np.flatnonzero(update), np.arange(len(rows))
    first, beyond = (
        np.searchsorted(updates, place, "right"),
        np.searchsorted(updates, last, "right"),
    )
    wrong = backward & (beyond - first > np.where(hooks, 1, 0))
    return np.where(wrong, np.append(updates, 0)[first] - 1, last)


def _steps(
    nodes: Nodes, rows: Sequence[int], over: Ints
) -> tuple[list[tuple[int, int, str]], list[str]]:
    """Begin, end and name of each step, and notes about them.

    Args:
        nodes, rows: as of ``unmarked_steps``; a row begins at twice its number.
        over: when each row is over.
    """
    dims = [[list(shape) for shape, _ in fact.operands or ()] for fact in nodes.facts]
    fact = np.array(nodes.fact, np.int64)[rows]
    roots = np.array([item.name.startswith(_ROOT) for item in nodes.facts])
    kept = np.flatnonzero(~roots[fact])
    if not any(item.name.startswith(UPDATE) for item in nodes.facts):
        kinds = [(item.name, shapes) for item, shapes in zip(nodes.facts, dims, strict=True)]
        thread = np.array(nodes.thread, np.int64)[rows]
        loop = loop_of(Ran(2 * kept, over[kept], thread[kept], fact[kept], kinds))
        return named(loop), [REPEATED if loop else _NO_STEPS]
    # Many traces have no update, and a profile's reader takes time to import.
    from flint.converters.profilers.kineto.events import Op
    from flint.converters.profilers.kineto.unmarked_steps import steps_of, uncut

    arguments = [{"Input Dims": shapes} for shapes in dims]
    ops = [
        Op(2 * row, int(over[row]) - 2 * row, nodes.thread[rows[row]], nodes.name[rows[row]],
           None, -1, int(fact[row]))
        for row in kept.tolist()
    ]  # fmt: skip
    found = steps_of(ops, [], arguments)
    if found.steps:
        return found.steps, [UNMARKED]
    return [], [_NO_STEPS, *([uncut(found.updates)] if found.updates > 1 else [])]
