"""The steps of one process's events: their marks, or what the events themselves tell.

mark(events, rows, "no ProfilerStep in the trace")
events.steps                                # [(0, 70, "step#0"), (80, 150, "step#1")]
"""

from __future__ import annotations

import numpy as np

from flint.converters.profilers.kineto.events import Events
from flint.converters.profilers.kineto.launch_loops import launch_loop
from flint.converters.profilers.kineto.unmarked_steps import steps_of, uncut, updates_of
from flint.converters.profilers.repeats import UPDATE, Ran, loop_of, named
from flint.observed.columns import REPEATED, UNMARKED
from flint.observed.rows import ObservedRows


def mark(events: Events, rows: ObservedRows, lack: str) -> None:
    """Add steps to a process's events if they have no marks; say if a mark has several.

    Args:
        events: events of one process.
        rows: notes are added here.
        lack: what the trace does not have.
    """
    if events.steps:
        if several := _under_one_mark(events):
            rows.note(several)
        return
    found = steps_of(events.ops, events.updates, events.arguments)
    loop = [] if found.updates else loop_of(_ran(events)) or launch_loop(events)
    events.steps.extend(found.steps or named(loop))
    if events.steps:
        rows.note(REPEATED if loop else UNMARKED)
        return
    rows.note(f"{lack}: all of it is treated as one step")
    if found.updates > 1:
        rows.note(uncut(found.updates))


def _under_one_mark(events: Events) -> str | None:
    """The note about the last mark with several updates, if they end steps that are alike."""
    names = set(events.ops.columns[3])
    noted = events.updates
    if not noted and any(name.startswith(UPDATE) for name in names):
        noted = updates_of(events.ops)
    for low, high, name in reversed(events.steps):
        inside = [span for span in noted if low <= span[0] < high]
        if len(inside) < 2:
            continue
        ops = [op for op in events.ops if low <= op.start < high]
        alike = len(steps_of(ops, inside, events.arguments).steps)
        told = f"{alike} updates with the same gradients under one mark ({name}): if they end as "
        told += "many training steps, these are one step here; call profiler.step() after each ("
        told += "for a capture of all of them, call flint.step() where profiler.step() is called)"
        return told if alike > 1 else None
    return None


def _ran(events: Events) -> Ran:
    kinds: dict[tuple[str, int], int] = {}
    threads: dict[object, int] = {}
    columns = [
        (
            op.start,
            op.start + op.duration,
            threads.setdefault(op.thread, len(threads)),
            kinds.setdefault((op.name, op.arguments), len(kinds)),
        )
        for op in events.ops
    ]
    described = [(name, events.arguments[arguments].get("Input Dims")) for name, arguments in kinds]
    start, over, thread, kind = np.array(columns, np.int64).reshape(-1, 4).T
    return Ran(start, over, thread, kind, described)
