"""Loading: the workload of a folder that ``flint.workload.saving`` has written.

workload = load("out/")
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from flint.errors import FlintError
from flint.graph.io import graph_from_bytes
from flint.graph.tensor_types import TensorType
from flint.graph.timing import Timing
from flint.mesh.mesh import Mesh
from flint.mesh.ranks import RankSet
from flint.passes.in_sequence import Origin
from flint.workload.folder import DOCUMENT, TIMES, module_suffix, program_file, read_document
from flint.workload.programs import Call, HostRead, Level, Order, Program, ProgramInput
from flint.workload.workload import Workload

if TYPE_CHECKING:
    from flint.workload.compiler_report import CompilerReport


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


def _compiled(document: dict[str, Any] | None) -> CompilerReport | None:
    if document is None:
        return None
    from flint.workload.compiler_report import CompilerReport  # few programs have one

    return CompilerReport.from_json(document)


def _read_program(folder: Path, item: dict[str, Any], mesh: Mesh) -> Program:
    name = str(item["name"])
    path = _inside(folder, str(item["graph"]))
    if str(item["graph"]) != program_file(name, ".graph.npz"):
        raise ValueError(f"the graph of program {name} is not its own")
    ranks = item["ranks"]
    rank_set = RankSet(
        int(ranks["world"]), int(ranks["period"]), tuple((int(a), int(b)) for a, b in ranks["runs"])
    )
    if rank_set.world != mesh.size or rank_set.period < 1 or rank_set.world % rank_set.period:
        raise ValueError(f"ranks of program {item['name']} do not fit the mesh")
    graph = graph_from_bytes(path.read_bytes(), str(path))
    return Program(
        name=name,
        graph=graph,
        ranks=rank_set,
        inputs=tuple(map(_input, item["inputs"])),
        module=_read_form(folder, item, "module"),
        listing=_read_form(folder, item, "listing"),
        calls=tuple(_read_call(folder, item, call) for call in item.get("calls", ())),
        timing=_read_times(folder, item, len(graph)),
    )


def _read_times(folder: Path, item: dict[str, Any], nodes: int) -> Timing | None:
    if "times" not in item:
        return None
    path = _inside(folder, str(item["times"]))
    if str(item["times"]) != program_file(str(item["name"]), TIMES):
        raise ValueError(f"the times of program {item['name']} are not its own")
    return Timing.from_bytes(path.read_bytes(), nodes, str(path))


def _input(item: dict[str, Any]) -> ProgramInput:
    return ProgramInput(
        TensorType(tuple(map(int, item["shape"])), str(item["dtype"]), int(item["bytes"])),
        str(item["role"]),
        str(item["name"]),
        int(item["donated"]),
        str(item["sharding"]),
    )


def _read_call(folder: Path, program: dict[str, Any], item: dict[str, Any]) -> Call:
    own = {**item, "name": f"{program['name']}.{item['name']}"}
    return Call(
        name=str(item["name"]),
        inputs=tuple(map(_input, item["inputs"])),
        operands=tuple(map(_origin, item["operands"])),
        outputs=int(item["outputs"]),
        reads=tuple(
            HostRead(_origin(read["value"]), str(read["file"]), int(read["line"]))
            for read in item["reads"]
        ),
        file=str(item["file"]),
        line=int(item["line"]),
        jitted=bool(item["jitted"]),
        module=_read_form(folder, own, "module"),
        listing=_read_form(folder, own, "listing"),
    )


def _origin(pair: list[int]) -> Origin:
    program, number = pair
    return Origin(int(program), int(number))


def _read_form(folder: Path, item: dict[str, Any], key: str) -> tuple[bytes, str] | None:
    stated = item.get(key)
    if stated is None:
        return None
    path = _inside(folder, str(stated))
    return path.read_bytes(), module_suffix(path.name)


def _inside(folder: Path, relative: str) -> Path:
    path = (folder / relative).resolve()
    if not path.is_relative_to(folder.resolve()):
        raise ValueError(f"{relative} points outside the folder")
    return path
