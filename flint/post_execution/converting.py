"""Converting post-execution traces: files of one or more ranks in, a workload out.

The idea: every rank that was traced becomes a program of its own, with its own measured times.  A
rank without a trace gets a program that only answers: its side of what the traced ranks exchange
with it, at once and without any computing, so that simulators, which need all ranks, can run the
others.

    workload = convert_traces([Path("rank0.json.gz"), Path("rank1.json.gz")])
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from flint import registry
from flint.building import GraphBuilder, TableBuilder
from flint.collection import uncollected
from flint.communication import Communication
from flint.errors import FlintError, UsageError
from flint.graph import WorkloadGraph
from flint.mesh import Mesh
from flint.post_execution.exchanges import (
    Exchange,
    Meetings,
    communication_of,
    exchanges_of,
    meet,
)
from flint.post_execution.graphs import Flows, graph_of, phases_of
from flint.post_execution.linking import completed, linked_rows, tensors_of_units
from flint.post_execution.links import Links
from flint.post_execution.order import edges_of
from flint.post_execution.storages import Access, Accesses, flows_of
from flint.post_execution.units import Units, chosen_step, units_of
from flint.ranks import from_mask
from flint.uneven import uneven_remarks, with_largest_sizes
from flint.validation.observed import UNTOLD_RANK, Observed
from flint.validation.reading import form_of
from flint.workload import Level, Order, Program, ProgramInput, Workload, with_communicators

#: More ranks than a run has.
_MAX_WORLD = 1 << 22
_KINETO, _EXECUTION = "kineto-ops", "pytorch-et-ops"
#: The rank of an execution trace that does not say whose it is, and is the only one.
_ANY = -1
#: Share of a step's time on the device in which nothing ran, from which on it is said.
_IDLE = 0.1


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


@uncollected
def convert_traces(
    paths: Sequence[str | Path],
    *,
    execution_traces: Sequence[str | Path] = (),
    mesh: Mesh | Sequence[int] | None = None,
    axes: Sequence[str] | None = None,
    step: str | None = None,
) -> Workload:
    """Convert profiles of a run to a workload with measured durations.

    Args:
        paths: Kineto traces or PyTorch execution traces, one per rank, or folders of such.
        execution_traces: execution traces of the run that the Kineto traces are of, or folders.
        mesh: device grid; default: one axis of all ranks.
        axes: names of the mesh axes.
        step: the step to convert, ``ProfilerStep#4`` or ``4``; default: the last whole one.

    Raises:
        UsageError: no such file or step, two traces of one rank, a mesh that does not fit.
        FlintError: a trace is damaged, or traces do not belong to one run.
    """
    files, beside = _sorted_files(paths, execution_traces)
    recorded: dict[int, Recorded] = {}
    warnings: dict[str, int] = {}
    digest = hashlib.sha256()
    memory = _by_rank(beside)
    for file in files:
        item = _read(file, step, memory, warnings)
        rank = item.units.rank
        if rank in recorded:
            told = "" if UNTOLD_RANK not in item.trace.notes else f" ({UNTOLD_RANK})"
            raise UsageError(
                f"{recorded[rank].trace.path} and {file} are both of rank {rank}{told}: give one "
                "trace per rank, or name the files rank0.json, rank1.json, ..."
            )
        recorded[rank] = item
    for file in (*files, *beside):
        digest.update(hashlib.sha256(file.read_bytes()).digest())
    unused = sorted(set(memory) - set(recorded))
    if unused:
        raise UsageError(
            f"{memory[unused[0]][0].path} is of rank {unused[0]}, of which there is no Kineto trace"
        )
    recorded = dict(sorted(recorded.items()))
    world = _world(recorded)
    grid = _grid(mesh, axes, world)
    meetings = meet(
        {
            rank: [item for item in found.exchanges if item is not None]
            for rank, found in recorded.items()
        }
    )
    programs = [_traced(rank, item, world, warnings) for rank, item in recorded.items()]
    programs += _answering(meetings, recorded, world, warnings)
    finished = with_largest_sizes(with_communicators(tuple(programs)), world)
    workload = Workload(
        mesh=grid,
        programs=finished,
        level=Level.OPTIMIZED,
        order=Order.RECORDED,
        options={"step": step, "measured": any(item.units.timed for item in recorded.values())},
        input={"file": ", ".join(file.name for file in files), "sha256": digest.hexdigest()},
        warnings=warnings | uneven_remarks(finished),
    )
    workload.verify()
    return workload


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


def _sorted_files(
    paths: Sequence[str | Path], execution_traces: Sequence[str | Path]
) -> tuple[list[Path], list[Path]]:
    """The traces to convert, and the execution traces that complete them.

    Execution traces among Kineto traces (both in one folder) complete them, too.
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


def _by_rank(files: Sequence[Path]) -> dict[int, tuple[Observed, Accesses]]:
    """Execution traces, read."""
    found: dict[int, tuple[Observed, Accesses]] = {}
    for file in files:
        trace, accesses = registry.converter("pytorch-et-links")(file)
        rank = trace.ranks[0]
        if UNTOLD_RANK in trace.notes and len(files) == 1:
            rank = _ANY
        if rank in found:
            raise UsageError(
                f"{found[rank][0].path} and {file} are both of rank {rank}: give one execution "
                "trace per rank, named et_rank0.json, et_rank1.json, ..."
            )
        found[rank] = trace, accesses
    return found


def _read(
    file: Path,
    step: str | None,
    memory: dict[int, tuple[Observed, Accesses]],
    warnings: dict[str, int],
) -> Recorded:
    links: Links | None = None
    tensors: list[tuple[Access, ...]] | None = None
    if form_of(file) == _KINETO:
        trace, links = registry.converter("kineto-links")(file)
        if _ANY in memory:  # the only one there is: its links tell whether it is of this run
            memory[trace.ranks[0]] = memory.pop(_ANY)
    else:
        trace, accesses = registry.converter("pytorch-et-links")(file)
        memory = {trace.ranks[0]: (trace, accesses)}
    number = chosen_step(trace, step)
    units = units_of(trace, links, number)
    groups: Mapping[str, tuple[int, ...]] = links.groups if links is not None else {}
    if units.rank in memory:
        recorded, accesses = memory[units.rank]
        pairs = np.arange(len(trace))
        if links is not None:
            pairs = linked_rows(trace, links, number, accesses, recorded.path, units.notes)
        tensors = tensors_of_units(units, trace.parent, pairs, accesses)
        units = completed(units, trace.parent, pairs, recorded, accesses.groups, tensors)
        groups = {**accesses.groups, **groups}
    hint = "; the execution trace of the same run may (--et)" if tensors is None else ""
    exchanges = exchanges_of(units, trace, groups, hint)
    for notes in (trace.notes, units.notes):
        for text, count in notes.items():
            warnings[text] = warnings.get(text, 0) + count
    return Recorded(trace, links, units, exchanges, tensors)


def _world(recorded: Mapping[int, Recorded]) -> int:
    """Number of ranks of the run."""
    said = {item.trace.world for item in recorded.values()} - {None}
    if len(said) > 1:
        raise FlintError(
            f"the traces are of runs with {' and '.join(map(str, sorted(said, key=str)))} ranks"
        )
    members = [
        rank
        for item in recorded.values()
        for exchange in item.exchanges
        if exchange is not None
        for rank in exchange.group
    ]
    least = max([*recorded, *members]) + 1
    world = next(iter(said), None) or least
    if world < least:
        raise FlintError(f"the traces say that there are {world} ranks, and name rank {least - 1}")
    if world > _MAX_WORLD:
        raise FlintError(f"the traces name {world:,} ranks; at most {_MAX_WORLD:,} are taken")
    return world


def _grid(mesh: Mesh | Sequence[int] | None, axes: Sequence[str] | None, world: int) -> Mesh:
    if mesh is None:
        return Mesh((world,), tuple(axes or ("rank",)))
    grid = mesh if isinstance(mesh, Mesh) else Mesh(tuple(mesh), tuple(axes or ()))
    if grid.size != world:
        raise UsageError(f"mesh {grid} has {grid.size} ranks; the traces are of a run with {world}")
    return grid


def _traced(rank: int, item: Recorded, world: int, warnings: dict[str, int]) -> Program:
    units = item.units
    notes: dict[str, int] = {}
    flows = flows_of(units, item.tensors, notes) if item.tensors is not None else None
    edges = edges_of(units, item.trace, item.links, _with_consumers(units, flows))
    for found in (notes, edges.notes):
        for text, count in found.items():
            warnings[text] = warnings.get(text, 0) + count
    _say_idle(units, warnings)
    communications = {
        unit: communication_of(exchange, world)
        for unit, exchange in enumerate(item.exchanges)
        if exchange is not None
    }
    phases = phases_of(units, item.trace, item.links)
    graph = graph_of(units, edges, communications, flows, phases)
    alone = np.arange(world) == rank
    inputs = tuple(ProgramInput(graph.type_of(number)) for number in range(graph.inputs))
    return Program(f"rank_{rank}", graph, from_mask(alone), inputs)


def _answering(
    meetings: Meetings, recorded: Mapping[int, Recorded], world: int, warnings: dict[str, int]
) -> list[Program]:
    """Programs of the ranks without a trace, those together that are in the same groups."""
    missing = np.ones(world, bool)
    missing[list(recorded)] = False
    if not missing.any():
        return []
    keys = [(item.message, item.group) for item in meetings.exchange]
    numbers = {key: number for number, key in enumerate(dict.fromkeys(keys))}
    meets: dict[int, list[int]] = defaultdict(list)
    for (_, group), number in numbers.items():
        for rank in group:
            if missing[rank]:
                meets[rank].append(number)
    alike: dict[tuple[int, ...], list[int]] = defaultdict(list)
    for rank in np.flatnonzero(missing).tolist():
        alike[tuple(meets.get(rank, ()))].append(rank)
    programs: list[Program] = []
    for signature, ranks in alike.items():
        wanted = set(signature)
        sequence = [
            meetings.exchange[meeting]
            for meeting in meetings.order
            if numbers[keys[meeting]] in wanted
        ]
        mask = np.zeros(world, bool)
        mask[ranks] = True
        name = "untraced" if len(alike) == 1 else f"untraced_{len(programs)}"
        graph = _answer(sequence, ranks[0], world)
        programs.append(Program(name, graph, from_mask(mask), ()))
    text = (
        f"no trace of {int(missing.sum()):,} of {world:,} ranks ({_first(missing)}): simulators "
        "need all, so these only answer the traced ranks, at once and without computing; "
        f"--ranks {','.join(map(str, list(recorded)[:8]))} writes the traced ones alone"
    )
    warnings[text] = 1
    return programs


def _first(missing: NDArray[np.bool_]) -> str:
    ranks = np.flatnonzero(missing)
    return ", ".join(map(str, ranks[:4].tolist())) + (", ..." if len(ranks) > 4 else "")


def _answer(sequence: list[Exchange], rank: int, world: int) -> WorkloadGraph:
    builder = GraphBuilder(TableBuilder())
    known: dict[Exchange, Communication] = {}
    for item in sequence:
        if item.message:
            item = replace(item, kind="send" if item.group[0] == rank else "recv")
        if item not in known:
            known[item] = communication_of(item, world)
        builder.communication(known[item], (), ())
    return builder.finish(())


def _with_consumers(units: Units, flows: Flows | None) -> set[int]:
    """Collectives whose result some work is known to read."""
    if flows is None:
        return set()
    return {
        source
        for unit, sources in enumerate(flows.operands)
        if not units.collective[unit]
        for source in sources
        if source >= 0 and units.collective[source]
    }


def _say_idle(units: Units, warnings: dict[str, int]) -> None:
    """Say how much of the step the device had nothing to do."""
    if not (units.device and units.timed):
        return
    order = np.argsort(units.start, kind="stable")
    reached = np.maximum.accumulate(units.end[order])
    gaps = np.maximum(units.start[order][1:] - reached[:-1], 0).sum()
    span = int(reached[-1] - units.start[order][0])
    if span and gaps / span > _IDLE:
        text = (
            f"rank {units.rank}: nothing ran on the device in {gaps / span:.0%} of the step's "
            f"{span / 1e6:.1f} ms, waiting for the host: the graph has no host time"
        )
        warnings[text] = 1
