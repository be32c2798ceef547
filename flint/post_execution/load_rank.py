"""Files of a run -> one rank after the other, read and linked.

item = read_recorded(Path("rank0.json.gz"), None, {}, warnings)
item.units, item.exchanges
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from flint import registry
from flint.errors import FlintError, UsageError
from flint.observed.columns import UNTOLD_RANK, Observed
from flint.observed.reading import form_of
from flint.post_execution.et_join import completed, linked_rows, tensors_of_units
from flint.post_execution.exchanges import Exchange, exchanges_of
from flint.post_execution.host_device_links import Links
from flint.post_execution.host_units import host_units
from flint.post_execution.kernel_units import kernel_units
from flint.post_execution.storages import Access, Accesses
from flint.post_execution.units import Units

_KINETO, _EXECUTION = "kineto-ops", "pytorch-et-ops"
#: The rank of an execution trace that does not say whose it is, and is the only one.
_ANY = -1


@dataclass(frozen=True, eq=False)
class Recorded:
    """One rank's trace, read and linked.

    Attributes:
        trace: its rows.
        links: what ties them; None where the trace has no times.
        units: what becomes nodes.
        exchanges: of each unit, None of those that compute.
        tensors: of each unit what it does with memory; None where that is not known.
    """

    trace: Observed
    links: Links | None
    units: Units
    exchanges: list[Exchange | None]
    tensors: list[tuple[Access, ...]] | None


def trace_files(paths: Sequence[str | Path]) -> list[Path]:
    """The files to read: those given, and of a folder the traces in it.

    Raises:
        UsageError: no such file, or a folder without traces.
    """
    found: list[Path] = []
    for path in map(Path, paths):
        if path.is_dir():
            inside = sorted(p for p in path.iterdir() if p.name.endswith((".json", ".json.gz")))
            if not inside:
                raise UsageError(f"{path}: no .json or .json.gz file in the folder")
            found += inside
        elif path.is_file():
            found.append(path)
        else:
            raise UsageError(f"{path}: no such file or folder")
    return found


def sorted_files(
    paths: Sequence[str | Path], execution_traces: Sequence[str | Path]
) -> tuple[list[Path], list[Path]]:
    """The traces to convert, and the execution traces that complete them.

    Execution traces among Kineto traces (both in one folder) complete them, too.

    Raises:
        UsageError: a file that is neither.
    """
    forms = {file: form_of(file) for file in trace_files([*paths, *execution_traces])}
    for file, form in forms.items():
        if form not in (_KINETO, _EXECUTION):
            raise UsageError(f"{file}: neither a Kineto trace nor a PyTorch execution trace")
    kineto = [file for file, form in forms.items() if form == _KINETO]
    execution = [file for file, form in forms.items() if form == _EXECUTION]
    given = trace_files(execution_traces)
    wrong = [file for file in given if forms[file] != _EXECUTION]
    if wrong:
        raise UsageError(f"--et {wrong[0]}: no PyTorch execution trace")
    return (kineto, execution) if kineto else (execution, [])


def accesses_by_rank(files: Sequence[Path]) -> dict[int, tuple[Observed, Accesses]]:
    """Execution traces by rank, read.

    Raises:
        UsageError: two of one rank.
    """
    found: dict[int, tuple[Observed, Accesses]] = {}
    for file in files:
        trace, accesses = registry.converter("pytorch-et-links")(file)
        rank = trace.ranks[0]
        if UNTOLD_RANK in trace.notes and len(files) == 1:
            rank = _ANY
        if rank in found:
            raise UsageError(
                f"{found[rank][0].path} and {file} are both for rank {rank}: give one execution "
                "trace per rank, named et_rank0.json, et_rank1.json, ..."
            )
        found[rank] = trace, accesses
    return found


def read_recorded(
    file: Path,
    step: str | None,
    memory: dict[int, tuple[Observed, Accesses]],
    warnings: dict[str, int],
) -> Recorded:
    """One rank's trace, read and linked.

    Args:
        file: a Kineto or an execution trace.
        step: the step's name or number; None for the last one.
        memory: execution traces by rank, which complete Kineto's.
        warnings: the readers' notes are added.

    Raises:
        UsageError: no such step.
        FlintError: the file is damaged, or does not tell what is needed.
    """
    links: Links | None = None
    tensors: list[tuple[Access, ...]] | None = None
    if form_of(file) == _KINETO:
        trace, links = registry.converter("kineto-links")(file)
        if _ANY in memory:  # the only one there is: its links tell whether it is of this run
            memory[trace.ranks[0]] = memory.pop(_ANY)
    else:
        trace, accesses = registry.converter("pytorch-et-links")(file)
        memory = {trace.ranks[0]: (trace, accesses)}
    number = _chosen_step(trace, step)
    units = _units_of(trace, links, number)
    groups: Mapping[str, tuple[int, ...]] = links.groups if links is not None else {}
    if units.rank in memory:
        recorded, accesses = memory[units.rank]
        pairs = np.arange(len(trace))
        if links is not None:
            pairs = linked_rows(trace, links, number, accesses, recorded.path, units.notes)
        tensors = tensors_of_units(units, trace.parent, pairs, accesses)
        units = completed(units, trace.parent, pairs, recorded, accesses.groups, tensors)
        groups = {**accesses.groups, **groups}
    hint = "; the execution trace of the same run may record it (--et)" if tensors is None else ""
    exchanges = exchanges_of(units, trace, groups, hint)
    for notes in (trace.notes, units.notes):
        for text, count in notes.items():
            warnings[text] = warnings.get(text, 0) + count
    return Recorded(trace, links, units, exchanges, tensors)


def _chosen_step(trace: Observed, wanted: str | None) -> int:
    """The step to convert: the one that is named, else the last one.

    Args:
        trace: its steps.
        wanted: ``ProfilerStep#4``, ``4``, or None.

    Raises:
        UsageError: no such step.
    """
    if wanted is not None:
        for number, name in enumerate(trace.steps):
            if wanted in (name, name.rpartition("#")[2]):
                return number
        raise UsageError(
            f"--step {wanted}: {trace.path} has the steps {', '.join(trace.steps[:8])}"
        )
    return len(trace.steps) - 1


def _units_of(trace: Observed, links: Links | None, step: int) -> Units:
    """The units of a step.

    Args:
        trace: one rank's trace.
        links: of the same trace; None of execution traces.
        step: index into ``trace.steps``.

    Raises:
        FlintError: nothing ran in the step, or several ranks are in the trace.
    """
    if len(trace.ranks) != 1:
        raise FlintError(
            f"{trace.path}: {len(trace.ranks)} ranks in one PyTorch trace, which should have one"
        )
    rows = np.flatnonzero(trace.step == step)
    if links is not None and len(links.kernel_row):
        found = kernel_units(trace, links, rows, step)
    else:
        found = host_units(trace, links, rows)
    if not len(found):
        raise FlintError(f"{trace.path}: nothing ran in {trace.steps[step]}")
    return found
