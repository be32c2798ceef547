"""Reading and linking the files of a run, rank by rank.

[item] = read_linked([Path("rank0.json.gz")], Choices(), {})
with_exchanges({item.units.rank: item}, 8, Choices(), warnings)[0].exchanges
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np

from flint import registry
from flint.errors import FlintError
from flint.host.reading_memory import bounded
from flint.host.side_by_side import free_memory, processors, side_by_side
from flint.observed.across_ranks import groups_across
from flint.observed.columns import CUT_OFF, Observed
from flint.observed.reading import form_of
from flint.post_execution.any_source import name_senders
from flint.post_execution.chosen_step import ALL_STEPS, as_one_step, chosen_step
from flint.post_execution.et_join import completed, linked_rows, tensors_of_units
from flint.post_execution.exchanges import Exchange, exchanges_of, ungrouped_exchanges
from flint.post_execution.inferred_groups import InferredGroups
from flint.post_execution.links import Links
from flint.post_execution.meetings import CONTRADICTORY, NO_BYTES, leave_out_empty, take_back
from flint.post_execution.storages import Access, Accesses
from flint.post_execution.trace_files import ANY_RANK, EXECUTION, KINETO, NSYS, ROCPROF, XPLANE
from flint.post_execution.units import Units

#: Traces with at least this many bytes are read in separate processes.
_WORTHWHILE = 16 << 20
#: Typical ratio of unpacked to packed size, and memory for reading per byte (measured: 215 MB for
#: 105 MB).
_UNPACKED, _NEEDED = 12, 4


@dataclass(frozen=True, eq=False)
class Ran:
    """What one rank ran.

    Attributes:
        units: the future nodes.
        links: links between the events of its trace; None if it has none.
        exchanges: exchange of each unit, None for those that compute.
    """

    units: Units
    links: Links | None
    exchanges: list[Exchange | None]


@dataclass(frozen=True, eq=False)
class Recorded(Ran):
    """One rank's trace, read and linked.

    Attributes:
        trace: its rows.
        tensors: memory accesses of each unit; None if unknown.
    """

    trace: Observed
    tensors: list[tuple[Access, ...]] | None


@dataclass(frozen=True, slots=True)
class Choices:
    """The user's choices about traces.

    Attributes:
        step: name or number of the step; None for the last one in which something ran,
            ``ALL_STEPS`` for the whole trace.
        groups: groups that the user gives, by the name of a process group or of a collective.
        strict: whether nothing may be inferred.
    """

    step: str | None = None
    groups: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    strict: bool = False


@dataclass(frozen=True, eq=False)
class Linked:
    """One rank's trace with its units; the attributes are those of ``Recorded``.

    Attributes:
        groups: the process groups that it lists, by name.
        step: the name of the step that the units are of.
    """

    trace: Observed
    links: Links | None
    units: Units
    tensors: list[tuple[Access, ...]] | None
    groups: Mapping[str, tuple[int, ...]]
    step: str


def read_linked(
    files: Sequence[Path], choices: Choices, memory: dict[int, tuple[Observed, Accesses]]
) -> Iterator[Linked]:
    """The ranks in some traces, read and linked.

    Args:
        files: Kineto or execution traces, of one rank each, exports of Nsight Systems, or a
            profile without HLO.
        choices: the step, and the given groups.
        memory: execution traces by rank, which complete Kineto's.

    Raises:
        UsageError: no such step.
        FlintError: a file is damaged, or lacks necessary facts.
    """
    forms = {file: form_of(file) for file in files}
    for form, reader in _OF_SEVERAL.items():
        together = [file for file, other in forms.items() if other == form]
        if not together:
            continue
        read_all = registry.converter(reader)
        with bounded(together[0]):
            recorded = list(read_all(together, choices.groups))
        for trace, links in recorded:
            yield _linked(trace, links, choices, memory)
    alone = [(file, form) for file, form in forms.items() if form in _READERS]
    for _, form in alone:
        registry.converter(_READERS[form])  # so that forks inherit it
    read = partial(_ranks_in, choices=choices, memory=memory)
    # Completing traces are removed from ``memory``, which belongs to this process.
    jobs = 1 if memory else _jobs([file for file, _ in alone])
    for ranks in side_by_side(read, alone, jobs):
        yield from ranks


#: What is read together, because one file may have several ranks.
_OF_SEVERAL: Final = {
    NSYS: "nsys-links",
    ROCPROF: "rocprof-links",
    XPLANE: "xplane-links",
}
_READERS: Final = {KINETO: "kineto-links", EXECUTION: "pytorch-et-links"}


def _jobs(files: Sequence[Path]) -> int:
    """How many files to read at a time, by processors and available memory."""
    sizes = [file.stat().st_size * (_UNPACKED if file.suffix == ".gz" else 1) for file in files]
    if sum(sizes) < _WORTHWHILE:
        return 1
    free, needed = free_memory(), _NEEDED * max(sizes)
    most = len(files) if free is None else free // needed
    return max(1, min(processors(), most))


def _ranks_in(
    given: tuple[Path, str], choices: Choices, memory: dict[int, tuple[Observed, Accesses]]
) -> list[Linked]:
    """The ranks in one trace, which comes with its form; the rest is as of ``read_linked``."""
    file, form = given
    with bounded(file):
        return _read_ranks(file, form, choices, memory)


def _read_ranks(
    file: Path, form: str, choices: Choices, memory: dict[int, tuple[Observed, Accesses]]
) -> list[Linked]:
    read = registry.converter(_READERS[form])
    if form == EXECUTION:
        trace, accesses = read(file, choices.groups)
        return [_linked(trace, None, choices, {trace.ranks[0]: (trace, accesses)})]
    found = []
    for trace, links in read(file, choices.groups):
        if ANY_RANK in memory:  # the only one: its links show whether it is from this run
            memory[trace.ranks[0]] = memory.pop(ANY_RANK)
        found.append(_linked(trace, links, choices, memory))
    return found


def _linked(
    trace: Observed,
    links: Links | None,
    choices: Choices,
    memory: Mapping[int, tuple[Observed, Accesses]],
) -> Linked:
    """One rank's trace with its units; arguments and errors as of ``read_linked``."""
    tensors: list[tuple[Access, ...]] | None = None
    if choices.step == ALL_STEPS:
        trace, links = as_one_step(trace, links)
    number, units = chosen_step(trace, links, choices.step)
    groups: Mapping[str, tuple[int, ...]] = links.groups if links is not None else {}
    if units.rank in memory:
        recorded, accesses = memory[units.rank]
        pairs = np.arange(len(trace))
        if links is not None:
            pairs = linked_rows(trace, links, number, accesses, recorded.path, units.notes)
        tensors = tensors_of_units(units, trace.parent, pairs, accesses)
        units = completed(units, trace.parent, pairs, recorded, accesses.groups, tensors)
        groups = {**accesses.groups, **groups}
    return Linked(trace, links, units, tensors, groups, trace.steps[number])


def in_one_step(
    linked: dict[int, Linked],
    choices: Choices,
    memory: Mapping[int, tuple[Observed, Accesses]],
    warnings: dict[str, int],
) -> dict[int, Linked]:
    """The ranks in one step: if their last ones differ, because a profile ends earlier, the last
    one that all of them ran.

    Args:
        linked: the traces by rank.
        choices, memory: as of ``read_linked``.
        warnings: which step that is, or that there is none, is added here.
    """
    ranks = list(linked.values())
    if len({item.step for item in ranks}) < 2:
        return linked
    steps = [name for name in ranks[0].trace.steps if all(name in i.trace.steps for i in ranks)]
    for name in reversed(steps) if all(item.links is not None for item in ranks) else ():
        choices = replace(choices, step=name)
        try:
            found = {
                rank: item
                if item.step == name
                else _linked(item.trace, item.links, choices, memory)
                for rank, item in linked.items()
            }
        except FlintError:  # nothing ran in it on one of them
            continue
        warnings[f"the ranks' last steps differ: {name} is converted, which all of them ran"] = 1
        return found
    warnings["the ranks' last steps differ, and none is the same: each has its own"] = 1
    return linked


def with_exchanges(
    linked: Mapping[int, Linked], world: int | None, choices: Choices, warnings: dict[str, int]
) -> dict[int, Recorded]:
    """The ranks' traces with what their units exchange, by ascending rank.

    Args:
        linked: the traces by rank.
        world: number of ranks of the run, None if unknown.
        choices: given groups, and whether anything may be inferred.
        warnings: the readers' notes are added here.

    Raises:
        FlintError: something would be inferred, or a file is cut off, and ``choices.strict``.
    """
    unnamed = {
        rank: InferredGroups(item.trace, item.groups, world, choices.groups)
        for rank, item in sorted(linked.items())
    }
    if len(linked) > 1:
        listed = frozenset().union(*(groups.listed for groups in unnamed.values()))
        across = groups_across(
            {
                rank: ungrouped_exchanges(linked[rank].units, linked[rank].trace, groups)
                for rank, groups in unnamed.items()
            },
            {rank: frozenset(group for group in listed if rank in group) for rank in unnamed},
            world,
        )
        for rank, groups in unnamed.items():
            groups.across = across[rank]
    exchanges: dict[int, list[Exchange | None]] = {}
    guessed: dict[int, dict[int, str]] = {}
    for rank, groups in unnamed.items():
        item = linked[rank]
        if choices.strict and CUT_OFF in item.trace.notes:
            raise FlintError(f"{item.trace.path}: --strict: {CUT_OFF}")
        exchanges[rank], guessed[rank] = exchanges_of(
            item.units, item.trace, groups, strict=choices.strict, alone=item.tensors is None
        )
    for rank, unit in take_back(exchanges, guessed):
        notes, why = linked[rank].units.notes, guessed[rank][unit]
        notes[why] -= 1
        notes[CONTRADICTORY] = notes.get(CONTRADICTORY, 0) + 1
    nameless = {rank: groups.nameless for rank, groups in unnamed.items()}
    name_senders(exchanges, nameless, {rank: linked[rank].units.notes for rank in unnamed})
    if empty := leave_out_empty(exchanges):
        warnings[NO_BYTES] = len(empty)
    found = {}
    for rank, item in sorted(linked.items()):
        for notes in (item.trace.notes, item.units.notes):
            for text, count in notes.items():
                if count:
                    warnings[text] = warnings.get(text, 0) + count
        found[rank] = Recorded(item.units, item.links, exchanges[rank], item.trace, item.tensors)
    return found
