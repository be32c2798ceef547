"""Linking a Kineto trace with the execution trace of the same run.

The idea: both profilers number the ops that they record with the same counter (``Record function
id`` and ``rf_id``), so that the link is exact; a pair of another name is none.  Traces without
these numbers are aligned by the names of their ops, in order.  Too few links mean two different
runs.

    pairs = linked_rows(trace, links, accesses, "et.json")
    pairs[12]        # row of the execution trace that is row 12 of the Kineto trace, -1 for none
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from flint.errors import FlintError
from flint.mesh.ragged import Ints
from flint.observed.columns import Observed, OpFacts
from flint.post_execution.inferred_groups import BY_SIZE
from flint.post_execution.links import Links
from flint.post_execution.storages import Access, Accesses
from flint.post_execution.units import Units, around
from flint.validation.matching.alignment import aligned

#: Share of a step's ops that must also be in the execution trace.
_ENOUGH = 0.9
UNLINKED = "ops of the Kineto trace that are not in the execution trace"


def linked_rows(
    trace: Observed, links: Links, step: int, accesses: Accesses, path: str, notes: dict[str, int]
) -> Ints:
    """For each row of the Kineto trace, the row of the execution trace, -1 for none.

    Args:
        trace: Kineto's rows.
        links: their links.
        step: the step that is converted.
        accesses: accesses of the execution trace.
        path: the execution trace, for messages.
        notes: the number without a partner is added.

    Raises:
        FlintError: they are of different runs.
    """
    rows, most = np.flatnonzero(trace.step == step), ""
    if (links.record >= 0).any():
        found = _by_number(trace, links, accesses)
        linked = int((found[rows] >= 0).sum())
    elif (linked := _of_same_names(trace, rows, accesses)) >= _ENOUGH * len(rows):
        found = _by_name(trace, accesses)
        linked = int((found[rows] >= 0).sum())
    else:
        most = "at most "
    if linked < _ENOUGH * len(rows):
        raise FlintError(
            f"{path} is not from the same run as {trace.path}: {most}{linked:,} of the "
            f"{len(rows):,} ops of {trace.steps[step]} are in both; give the file that "
            "ExecutionTraceObserver wrote while this profile was taken"
        )
    if linked < len(rows):
        notes[UNLINKED] = notes.get(UNLINKED, 0) + len(rows) - linked
    return found


def _of_same_names(trace: Observed, rows: Ints, accesses: Accesses) -> int:
    """The most rows that can have a partner: aligning two different runs takes long."""
    here = Counter(trace.facts[op].name for op in trace.op[rows].tolist())
    return (here & Counter(accesses.names)).total()


def _by_number(trace: Observed, links: Links, accesses: Accesses) -> Ints:
    place = {number: row for row, number in enumerate(accesses.record.tolist()) if number >= 0}
    names = [fact.name for fact in trace.facts]
    found = np.full(len(trace), -1, np.int64)
    for row, (number, op) in enumerate(zip(links.record.tolist(), trace.op.tolist(), strict=True)):
        other = place.get(number, -1)
        if other >= 0 and _same(accesses.names[other], names[op]):
            found[row] = other
    return found


def _same(name: str, other: str) -> bool:
    """One of the readers names a record of communication after its collective."""
    return name == other or name == "record_param_comms"


def _by_name(trace: Observed, accesses: Accesses) -> Ints:
    """Ops by their order, without those whose names only one of the profilers writes."""
    here = [trace.facts[op].name for op in trace.op.tolist()]
    numbers: dict[str, int] = {}
    kineto = np.array([numbers.setdefault(n, len(numbers)) for n in here], np.int64)
    common = set(here) & set(accesses.names)
    execution = np.array([numbers.get(n, -1) for n in accesses.names], np.int64)
    kineto_rows = np.flatnonzero(np.array([name in common for name in here], bool))
    execution_rows = np.flatnonzero(np.array([name in common for name in accesses.names], bool))
    found = np.full(len(trace), -1, np.int64)
    for i, j in aligned(kineto[kineto_rows], execution[execution_rows]) or ():
        found[kineto_rows[i]] = execution_rows[j]
    return found


def tensors_of_units(
    units: Units, parent: Ints, pairs: Ints, accesses: Accesses
) -> list[tuple[Access, ...]]:
    """For each unit, the memory accesses of its op; for a collective, all those of its c10d op."""
    partner = np.where(units.row >= 0, pairs[np.maximum(units.row, 0)], -1).tolist()
    found = [accesses.tensors[mate] if mate >= 0 else () for mate in partner]
    for unit in np.flatnonzero(units.collective).tolist():
        row = int(units.row[unit])
        accessed: dict[Access, None] = {}
        while row >= 0:
            other = int(pairs[row])
            if other >= 0:
                accessed |= dict.fromkeys(accesses.tensors[other])
            if other >= 0 and accesses.names[other].startswith("c10d::"):
                break
            row = int(parent[row])
        found[unit] = tuple(accessed)
    return found


def completed(
    units: Units,
    parent: Ints,
    pairs: Ints,
    recorded: Observed,
    groups: Mapping[str, tuple[int, ...]],
    tensors: list[tuple[Access, ...]],
) -> Units:
    """The units, with facts about their collectives that only the execution trace has.

    Args:
        units: units of one rank.
        parent: enclosing row of each of their rows.
        pairs: from ``linked_rows``.
        recorded: the execution trace.
        groups: the process groups that it lists.
        tensors: from ``tensors_of_units``.
    """
    named = np.array([fact.group is not None for fact in recorded.facts], bool)
    holder = around(recorded.parent, named[recorded.op])
    facts: dict[OpFacts, int] = {fact: i for i, fact in enumerate(units.facts)}
    numbers = units.fact.copy()
    for unit in np.flatnonzero(units.collective).tolist():
        fact = units.facts[int(numbers[unit])]
        row = _first_linked(int(units.row[unit]), parent, pairs)
        if row < 0:
            continue
        known = recorded.facts[int(recorded.op[row])]
        group = fact.group or known.group
        if group is None and holder[row] >= 0:
            group = recorded.facts[int(recorded.op[holder[row]])].group
        if group is None:
            group = _by_size(tensors[unit], groups)
            if group is not None:
                units.notes[BY_SIZE] = units.notes.get(BY_SIZE, 0) + 1
        better = replace(
            fact,
            group=group,
            parts=fact.parts if fact.parts is not None else known.parts,
            dtype=fact.dtype or known.dtype,
            peer=fact.peer if fact.peer >= 0 else known.peer,
        )
        numbers[unit] = facts.setdefault(better, len(facts))
    return replace(units, facts=tuple(facts), fact=numbers)


def _first_linked(row: int, parent: Ints, pairs: Ints) -> int:
    while row >= 0 and pairs[row] < 0:
        row = int(parent[row])
    return int(pairs[row]) if row >= 0 else -1


def _by_size(
    tensors: tuple[Access, ...], groups: Mapping[str, tuple[int, ...]]
) -> tuple[int, ...] | None:
    """The only group with as many ranks as the factor between a gather's or scatter's bytes."""
    only = [sum(a.kind.bytes for a in tensors if a.written and not a.taken),
            sum(a.taken for a in tensors)]  # fmt: skip
    small, large = min(only), max(only)
    if small <= 0 or small == large or large % small:
        return None
    fitting = {group for group in groups.values() if len(group) == large // small}
    return fitting.pop() if len(fitting) == 1 else None
