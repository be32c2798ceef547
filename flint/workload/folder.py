"""The workload folder: everything about a workload on disk, complete or absent.

    out/workload.json              mesh, programs and who runs them, options, input hash
    out/programs/main.mlirbc       the module as captured; beside it, as text, main.mlir
    out/programs/main.graph.npz    the graph as analysed (op granularity, issue order)
    out/et/trace.<rank>.et         Chakra execution traces;  out/et/nodes.parquet  what each node is
    out/astra-sim/*                communicator groups, system, network, remote memory

The idea: a folder is written beside its final place and renamed when it is whole, so that a full
disk or Ctrl-C leaves nothing half-written.  What was saved can be loaded, looked at, saved again.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flint import registry
from flint.cost.systems import System, load_system, system_names
from flint.errors import FlintError, UsageError
from flint.execution.chains import CommunicationOrder
from flint.graph.io import graph_from_bytes, graph_to_bytes
from flint.graph.tensor_types import TensorType
from flint.mesh.mesh import Mesh
from flint.mesh.ranks import RankSet, chosen_ranks
from flint.passes import apply
from flint.workload.workload import Level, Order, Program, ProgramInput, Workload

if TYPE_CHECKING:
    from flint.passes.what_if import Chosen
    from flint.workload.compiler_report import CompilerReport

SCHEMA = 1
DOCUMENT = "workload.json"
#: A document beyond this is not ours (bytes).
_MAX_DOCUMENT = 2**28


@dataclass(frozen=True, slots=True)
class Saved:
    """What was written.

    Attributes:
        folder: where.
        granularity: op, kernel or region.
        system: name of the system that durations are for.
        ranks: number of ranks with a trace.
        partial: whether ranks are missing, so that no simulator can run the folder.
        manifest: what the ET writer says of its files (JSON form).
    """

    folder: Path
    granularity: str
    system: str
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
    annotate: bool = False,
    announce: Callable[[int, int], None] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Saved:
    """Write a workload folder.

    Args:
        workload: what to write.
        folder: where; a workload folder that is there is replaced, anything else is left alone.
        system: name or TOML file of the cluster that durations are computed for.
        ranks: the ranks that get a trace: numbers, ``"all"``, ``"0-7"`` or ``"0,3,8-11"``.
        granularity: ``"op"``, ``"kernel"`` or ``"region"``.
        passes: what-if passes that the traces are written after; the programs stay as they are.
        communication_order: ``"rank"``: a rank issues its communications one after another, as
            consumers with one communication stream need it; ``"communicator"``: those of each
            communicator, for consumers with a stream for each.
        annotate: put op, layer, source, dtype and shapes into every ET node.
        announce: called with (bytes, traces) before the first trace is written.
        progress: called with (ranks written, ranks to write).

    Raises:
        UsageError: unknown system, granularity or communication order, ranks outside the mesh, a
            folder in the way, the logical level (it has no ETs).
        FlintError: the disk is too small or fails.
    """
    if workload.level == Level.LOGICAL:
        raise UsageError(
            "the program is not partitioned (its shapes are global, its inputs carry shardings): "
            "execution traces need the per-device program that XLA's partitioner makes of it"
        )
    described = system if isinstance(system, System) else load_system(system)
    chosen = chosen_ranks(ranks, workload.mesh.size)
    graphs = [apply(program.graph, granularity) for program in workload.programs]
    passes = tuple(passes)
    if passes:  # few want any, and their modules take a moment
        from flint.passes.what_if import parse_passes, transform

        what_if = parse_passes(passes)
        graphs = [transform(graph, what_if) for graph in graphs]
    write = registry.converter("chakra")
    with _whole(folder) as partial_folder:
        manifest = write(
            [
                (graph, program.ranks.array())
                for graph, program in zip(graphs, workload.programs, strict=True)
            ],
            workload.mesh,
            partial_folder,
            system=described,
            ranks=None if len(chosen) == workload.mesh.size else chosen,
            annotate=annotate,
            communication_order=communication_order,
            metadata={"granularity": granularity, "order": str(workload.order)},
            announce=announce,
            progress=progress,
        ).to_json()
        saved = Saved(
            folder, granularity, described.name, len(chosen),
            len(chosen) != workload.mesh.size, manifest,
        )  # fmt: skip
        _write_programs(workload, partial_folder)
        _write_document(partial_folder, _document(workload) | _traces_document(saved))
    return saved


def save_programs(workload: Workload, folder: Path) -> None:
    """Write a workload folder without traces; what there is can be loaded and inspected.

    Raises:
        UsageError: a folder in the way.
        FlintError: the disk is too small or fails.
    """
    with _whole(folder) as partial_folder:
        _write_programs(workload, partial_folder)
        _write_document(partial_folder, _document(workload))


def load(folder: str | Path) -> Workload:
    """The workload of a folder that ``save`` has written.

    Raises:
        FlintError: not such a folder, or one that contradicts itself.
    """
    folder = Path(folder)
    document = read_document(folder)
    try:
        mesh = Mesh(tuple(document["mesh"]["shape"]), tuple(document["mesh"]["axes"]))
        programs = tuple(_read_program(folder, item, mesh) for item in document["programs"])
        workload = Workload(
            mesh=mesh,
            programs=programs,
            level=Level(document["level"]),
            order=Order(document["order"]),
            options=dict(document["options"]),
            input=dict(document["input"]),
            warnings=dict(document["warnings"]),
            compiled=_compiled(document.get("compiled")),
        )
    except (KeyError, TypeError, ValueError, OSError) as error:
        raise FlintError(
            f"{folder / DOCUMENT}: not a workload that Flint wrote ({error})"
        ) from error
    workload.verify()
    return workload


def is_workload_folder(folder: Path) -> bool:
    """Whether ``folder`` holds a workload document."""
    return (folder / DOCUMENT).is_file()


def traced_system(folder: Path) -> str:
    """Name of the system that the folder's traces were written for; dgx-h100 without traces.

    Raises:
        UsageError: it is a user's own, whose file may be anywhere.
        FlintError: no workload folder.
    """
    stated = str(read_document(folder).get("system", "dgx-h100"))
    if stated not in system_names():
        raise UsageError(
            f"{folder}: its traces are for {stated!r}, a system of your own: give its file with "
            "--system"
        )
    return stated


def chained_by(document: dict[str, Any]) -> CommunicationOrder:
    """How traces chain communications by a folder's document; one chain per rank without traces."""
    said = str((document.get("et") or {}).get("order", ""))
    by_communicator = said.endswith(f" {CommunicationOrder.COMMUNICATOR}")
    return CommunicationOrder.COMMUNICATOR if by_communicator else CommunicationOrder.RANK


def read_document(folder: Path) -> dict[str, Any]:
    """The folder's ``workload.json``.

    Raises:
        FlintError: there is none, or it is not ours.
    """
    path = folder / DOCUMENT
    try:
        if path.stat().st_size > _MAX_DOCUMENT:
            raise FlintError(f"{path}: too large for a workload document")
        document = json.loads(path.read_text())
    except FileNotFoundError:
        raise FlintError(f"{folder}: no workload folder (it has no {DOCUMENT})") from None
    except (OSError, ValueError, RecursionError) as error:
        raise FlintError(f"{path}: cannot be read ({error})") from error
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        found = document.get("schema") if isinstance(document, dict) else None
        raise FlintError(f"{path}: workload schema {found}, known is {SCHEMA}")
    return document


def _document(workload: Workload) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
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
                "graph": f"programs/{program.name}.graph.npz",
                "module": _path(program, program.module),
                "listing": _path(program, program.listing),
                "inputs": [
                    {
                        "shape": list(item.type.shape),
                        "dtype": item.type.dtype,
                        "bytes": item.type.bytes,
                        "role": item.role,
                        "name": item.name,
                        "donated": item.donated,
                        "sharding": item.sharding,
                    }
                    for item in program.inputs
                ],
            }
            for program in workload.programs
        ],
    }


def _compiled(document: dict[str, Any] | None) -> CompilerReport | None:
    if document is None:
        return None
    from flint.workload.compiler_report import CompilerReport  # few programs have one

    return CompilerReport.from_json(document)


def _traces_document(saved: Saved) -> dict[str, Any]:
    return {
        "granularity": saved.granularity,
        "system": saved.system,
        "partial": saved.partial,
        "et": saved.manifest,
    }


def _write_document(folder: Path, document: dict[str, Any]) -> None:
    (folder / DOCUMENT).write_text(json.dumps(document, indent=1) + "\n")


def _path(program: Program, form: tuple[bytes, str] | None) -> str | None:
    return f"programs/{program.name}{form[1]}" if form else None


def _write_programs(workload: Workload, folder: Path) -> None:
    (folder / "programs").mkdir()
    for program in workload.programs:
        (folder / f"programs/{program.name}.graph.npz").write_bytes(graph_to_bytes(program.graph))
        for form in (program.module, program.listing):
            path = _path(program, form)
            if path is not None and form is not None:
                (folder / path).write_bytes(form[0])


def _read_program(folder: Path, item: dict[str, Any], mesh: Mesh) -> Program:
    path = _inside(folder, str(item["graph"]))
    ranks = item["ranks"]
    rank_set = RankSet(
        int(ranks["world"]), int(ranks["period"]), tuple((int(a), int(b)) for a, b in ranks["runs"])
    )
    if rank_set.world != mesh.size or rank_set.period < 1 or rank_set.world % rank_set.period:
        raise ValueError(f"ranks of program {item['name']} do not fit the mesh")
    return Program(
        name=str(item["name"]),
        graph=graph_from_bytes(path.read_bytes(), str(path)),
        ranks=rank_set,
        inputs=tuple(
            ProgramInput(
                TensorType(tuple(map(int, i["shape"])), str(i["dtype"]), int(i["bytes"])),
                str(i["role"]),
                str(i["name"]),
                int(i["donated"]),
                str(i["sharding"]),
            )
            for i in item["inputs"]
        ),
        module=_read_form(folder, item, "module"),
        listing=_read_form(folder, item, "listing"),
    )


def _read_form(folder: Path, item: dict[str, Any], key: str) -> tuple[bytes, str] | None:
    stated = item.get(key)
    if stated is None:
        return None
    path = _inside(folder, str(stated))
    return path.read_bytes(), path.name.removeprefix(str(item["name"]))


def _inside(folder: Path, relative: str) -> Path:
    path = (folder / relative).resolve()
    if not path.is_relative_to(folder.resolve()):
        raise ValueError(f"{relative} points outside the folder")
    return path


def check_replaceable(folder: Path) -> None:
    """That a workload may be saved there: nothing, an empty folder or a workload folder is.

    Raises:
        UsageError: a file, or a folder with something else in it.
    """
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder} is a file: give a folder with -o")
    if folder.is_dir() and any(folder.iterdir()) and not is_workload_folder(folder):
        raise UsageError(f"{folder} exists and is no workload folder: it is left alone")


@contextlib.contextmanager
def _whole(folder: Path) -> Iterator[Path]:
    """A folder beside ``folder`` that takes its place when the block ends well."""
    check_replaceable(folder)
    folder = folder.absolute()
    partial = folder.with_name(f".{folder.name}.{os.getpid()}.partial")
    try:
        try:
            folder.parent.mkdir(parents=True, exist_ok=True)
            partial.mkdir()
            yield partial
            _exchange(partial, folder)
        except OSError as error:
            raise FlintError(f"{folder}: cannot be written ({error.strerror or error})") from error
    finally:
        if partial.exists():
            shutil.rmtree(partial, ignore_errors=True)


def _exchange(partial: Path, folder: Path) -> None:
    old = folder.with_name(f".{folder.name}.{os.getpid()}.old")
    if folder.exists():
        folder.rename(old)
    try:
        partial.rename(folder)
    except OSError:
        if old.exists():
            old.rename(folder)
        raise
    if old.exists():
        shutil.rmtree(old, ignore_errors=True)
