"""Saving: a workload becomes a folder, complete or absent.

The idea: a folder is written next to its final place and renamed when it is complete, so that a
full disk or Ctrl-C leaves nothing half-written.  ``flint.workload.folder`` lists its content.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flint import registry
from flint.cost.hardware import System
from flint.cost.systems import load_system
from flint.errors import UsageError
from flint.graph.io import graph_to_bytes
from flint.host.environment import DISTRIBUTION, installed_version
from flint.host.writing import replacing_folder
from flint.mesh.ranks import chosen_ranks
from flint.passes import apply
from flint.passes.grouped_as_dense import on_device
from flint.workload.folder import DOCUMENT, check_replaceable
from flint.workload.names import ALLOCATIONS, TIMES, module_suffix, program_file
from flint.workload.programs import Form, Order, Program, ProgramInput
from flint.workload.sealing import SCHEMA, files_of

if TYPE_CHECKING:
    from flint.passes.what_if import Chosen
    from flint.workload.workload import Workload


@dataclass(frozen=True, slots=True)
class Saved:
    """What was written.

    Attributes:
        folder: the folder.
        granularity: op, kernel, xla, inductor or region.
        system: name of the system that durations are for.
        without: parts that were left out of it (see ``flint.cost.simplified``).
        ranks: number of ranks with a trace.
        partial: whether ranks are missing, so that no simulator can run the folder.
        manifest: the ET writer's description of its files (JSON form).
    """

    folder: Path
    granularity: str
    system: str
    without: tuple[str, ...]
    ranks: int
    partial: bool
    manifest: dict[str, Any]


def save(
    workload: Workload,
    folder: Path,
    *,
    system: str | System = "dgx-h100",
    ranks: str | Iterable[int] = "all",
    granularity: str = "kernel",
    passes: Iterable[str | Chosen] = (),
    communication_order: str = "rank",
    unordered_starts: bool = False,
    reduce_ranks: int | None = None,
    annotate: bool = False,
    announce: Callable[[int, int], None] | None = None,
    expect: Callable[[Any], None] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Saved:
    """Write a workload folder.

    Args:
        workload: what to write.
        folder: where to write; an existing workload folder is replaced, anything else is left
            alone.
        system: name or TOML file of the cluster that durations are computed for.
        ranks: the ranks that get a trace: numbers, ``"all"``, ``"0-7"`` or ``"0,3,8-11"``.
        granularity: ``"op"``, ``"kernel"`` or ``"region"``.
        passes: what-if passes that are applied to the traces; the programs stay unchanged.
        communication_order: ``"rank"``: a rank issues its communications one after another, as
            consumers with one communication stream need it; ``"communicator"``: those of each
            communicator, for consumers with a stream for each.
        unordered_starts: leave compute nodes that wait for nothing without dependencies; by default
            each waits for the previous one, which changes no time and keeps consumers fast.
        reduce_ranks: write traces of at most this many ranks, which stand for all (see
            ``flint.workload.reducing``).
        annotate: put op, layer, source, dtype and shapes into every ET node.
        announce: called with (bytes, traces) before the first trace is written.
        expect: called before that with what ASTRA-sim will need for the traces of all ranks (see
            ``flint.converters.chakra.astra_sim.forecast``).
        progress: called with (ranks written, ranks to write).

    Raises:
        UsageError: unknown system, granularity or communication order, ranks outside the mesh,
            another folder in its place, or the logical level (it has no ETs).
        FlintError: the disk is too small or fails.
    """
    workload.check_partitioned("execution traces need")
    described = system if isinstance(system, System) else load_system(system)
    if reduce_ranks is not None and not (isinstance(ranks, str) and ranks == "all"):
        raise UsageError("Flint chooses the ranks that stand for all: leave --ranks out")
    device = described.accelerator
    recorded = workload.order == Order.RECORDED
    graphs = [
        apply(on_device(program.graph, device, recorded=recorded), granularity)
        for program in workload.programs
    ]
    passes = tuple(passes)
    if passes:  # rarely used, and their modules take time to import
        from flint.passes.what_if import parse_passes, transform

        what_if = parse_passes(passes)
        graphs = [transform(graph, what_if) for graph in graphs]
    programs = tuple(
        replace(program, graph=graph)
        for program, graph in zip(workload.programs, graphs, strict=True)
    )
    traced, reduced = replace(workload, programs=programs), None
    if reduce_ranks is not None:
        from flint.workload.reducing import reduce_ranks as reduce

        reduced = reduce(traced, reduce_ranks)
        traced = reduced.workload
    chosen = chosen_ranks(ranks, traced.mesh.size)
    write = registry.converter("chakra")
    check_replaceable(folder)
    with replacing_folder(folder) as partial_folder:
        made = write(
            [(program.graph, program.ranks.array()) for program in traced.programs],
            traced.mesh,
            partial_folder,
            system=described,
            ranks=None if len(chosen) == traced.mesh.size else chosen,
            annotate=annotate,
            communication_order=communication_order,
            unordered_starts=unordered_starts,
            whole=workload.mesh if reduced else None,
            metadata={"granularity": granularity, "order": str(workload.order)},
            announce=announce,
            expect=expect,
            progress=progress,
        )
        sums, manifest = made.sums, made.to_json()
        manifest["reduced"] = reduced and reduced.to_json()
        saved = Saved(
            folder, granularity, described.name, described.without, len(chosen),
            len(chosen) != traced.mesh.size, manifest,
        )  # fmt: skip
        document = _document(workload, _write_programs(workload, partial_folder))
        _write_document(partial_folder, document | _traces_document(saved), sums)
    return saved


def save_programs(workload: Workload, folder: Path) -> None:
    """Write a workload folder without traces, which can be loaded and inspected.

    Raises:
        UsageError: another folder is in its place.
        FlintError: the disk is too small or fails.
    """
    check_replaceable(folder)
    with replacing_folder(folder) as partial_folder:
        document = _document(workload, _write_programs(workload, partial_folder))
        _write_document(partial_folder, document, {})


def _document(workload: Workload, listings: Mapping[str, str | None]) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "version": installed_version(DISTRIBUTION) or "",
        "level": str(workload.level),
        "order": str(workload.order),
        "mesh": {"shape": list(workload.mesh.shape), "axes": list(workload.mesh.axes)},
        "input": workload.input,
        "options": workload.options,
        "warnings": workload.warnings,
        "compiled": workload.compiled.to_json() if workload.compiled else None,
        "programs": [
            {
                "name": program.name,
                "ranks": {
                    "world": program.ranks.world,
                    "period": program.ranks.period,
                    "runs": [list(run) for run in program.ranks.runs],
                },
                "graph": program_file(program.name, ".graph.npz"),
                "module": _path(program.name, program.module),
                "listing": listings[program.name],
                "inputs": [_input(item) for item in program.inputs],
                **({"calls": _calls(program, listings)} if program.calls else {}),
                **({"times": program_file(program.name, TIMES)} if program.timing else {}),
                **(
                    {"memory": program_file(program.name, ALLOCATIONS)}
                    if program.allocations
                    else {}
                ),
                **({"graphed": program.graphed} if program.graphed else {}),
            }
            for program in workload.programs
        ],
    }


def _input(item: ProgramInput) -> dict[str, Any]:
    return {
        "shape": list(item.type.shape),
        "dtype": item.type.dtype,
        "bytes": item.type.bytes,
        "role": item.role,
        "name": item.name,
        "donated": item.donated,
        "sharding": item.sharding,
    }


def _calls(program: Program, listings: Mapping[str, str | None]) -> list[dict[str, Any]]:
    """The programs that it runs in sequence; older folders have none."""
    return [
        {
            "name": call.name,
            "file": call.file,
            "line": call.line,
            "jitted": call.jitted,
            "inputs": [_input(item) for item in call.inputs],
            "operands": [list(origin) for origin in call.operands],
            "outputs": call.outputs,
            "reads": [
                {"value": list(read.value), "file": read.file, "line": read.line}
                for read in call.reads
            ],
            "module": _path(f"{program.name}.{call.name}", call.module),
            "listing": listings[f"{program.name}.{call.name}"],
            **({"ranks": list(call.ranks)} if call.ranks else {}),
        }
        for call in program.calls
    ]


def _traces_document(saved: Saved) -> dict[str, Any]:
    return {
        "granularity": saved.granularity,
        "system": saved.system,
        "without": list(saved.without),
        "partial": saved.partial,
        "et": saved.manifest,
    }


def _write_document(folder: Path, document: dict[str, Any], traces: Mapping[str, str]) -> None:
    document |= {"files": files_of(folder), "traces": dict(traces)}
    text = json.dumps(document, indent=1, ensure_ascii=False) + "\n"
    # The name of an input file need not be UTF-8; text that is not would not be read again.
    (folder / DOCUMENT).write_bytes(text.encode("utf-8", "replace"))


def _path(name: str, form: Form | None) -> str | None:
    return program_file(name, module_suffix(form[1])) if form else None


def _write_programs(workload: Workload, folder: Path) -> dict[str, str | None]:
    """Write graphs and modules; the names of the listings, by program or ``program.call``."""
    (folder / "programs").mkdir()
    listings: dict[str, str | None] = {}
    for program in workload.programs:
        graph = folder / program_file(program.name, ".graph.npz")
        graph.write_bytes(graph_to_bytes(program.graph))
        if program.timing is not None:
            times = folder / program_file(program.name, TIMES)
            times.write_bytes(program.timing.to_bytes())
        if program.allocations is not None:
            memory = folder / program_file(program.name, ALLOCATIONS)
            memory.write_bytes(program.allocations.to_bytes())
        forms = {program.name: (program.module, program.listing)}
        for call in program.calls:
            forms[f"{program.name}.{call.name}"] = (call.module, call.listing)
        for name, (module, listing) in forms.items():
            _write_form(name, module, folder)
            listings[name] = _write_form(name, listing() if listing else None, folder)
    return listings


def _write_form(name: str, form: Form | None, folder: Path) -> str | None:
    path = _path(name, form)
    if path is not None and form is not None:
        (folder / path).write_bytes(form[0])
    return path
