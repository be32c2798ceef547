"""Loading: reading a workload from a folder that ``flint.workload.saving`` has written.

The idea: ``workload.json`` is decoded by its schema (``flint.workload.document``), and the files
that it names are compared with its seal before they are read.

    workload = load("out/")
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flint.errors import FlintError
from flint.graph.allocations import Allocations
from flint.graph.io import graph_from_bytes
from flint.graph.tensor_types import TensorType
from flint.graph.timing import Timing
from flint.host.packed_files import check_plain, read_once
from flint.mesh.mesh import Mesh
from flint.mesh.ranks import RankSet
from flint.passes.in_sequence import Origin
from flint.workload.document import CallOf, Document, InputOf, ProgramOf
from flint.workload.folder import DOCUMENT, read_document
from flint.workload.names import ALLOCATIONS, TIMES, module_suffix, program_file
from flint.workload.programs import (
    Call,
    Form,
    HostRead,
    Level,
    Listing,
    Order,
    Program,
    ProgramInput,
)
from flint.workload.sealing import check_file
from flint.workload.workload import Workload

if TYPE_CHECKING:
    from flint.workload.compiler_report import CompilerReport


#: The largest file of a folder.
_MAX_BYTES = 16 << 30


def load(folder: str | Path, note: Callable[[str], None] | None = None) -> Workload:
    """The workload of a folder that ``save`` has written.

    Args:
        folder: the folder.
        note: called with remarks about a folder that an earlier version wrote.

    Raises:
        FlintError: it is not such a folder, contradicts itself, or a file in it has changed.
    """
    folder = Path(folder)
    document = read_document(folder)
    if document.files is None and note is not None:
        note(
            f"{folder} was written by an earlier version, without checksums: changes to its "
            "files are not detected"
        )
    try:
        mesh = Mesh(tuple(document.mesh.shape), tuple(document.mesh.axes))
        programs = tuple(_read_program(folder, item, document) for item in document.programs)
        workload = Workload(
            mesh=mesh,
            programs=programs,
            level=Level(document.level),
            order=Order(document.order),
            options=document.options,
            input=document.input,
            warnings=document.warnings,
            compiled=_compiled(document.compiled),
        )
    except FileNotFoundError as error:
        raise FlintError(f"{error.filename}: is missing: capture or convert again") from error
    except (KeyError, TypeError, ValueError, OSError) as error:
        raise FlintError(
            f"{folder / DOCUMENT}: not a workload written by Flint ({error})"
        ) from error
    workload.verify()
    return workload


def _compiled(document: dict[str, Any] | None) -> CompilerReport | None:
    if document is None:
        return None
    from flint.workload.compiler_report import CompilerReport  # few programs have one

    return CompilerReport.from_json(document)


def _read_program(folder: Path, item: ProgramOf, document: Document) -> Program:
    def read(name: str) -> bytes:
        path = _inside(folder, name)
        check_plain(path, path.stat())
        data = read_once(path, _MAX_BYTES).data
        check_file(folder, name, data, document.files)
        return data

    if item.graph != program_file(item.name, ".graph.npz"):
        raise ValueError(f"the graph of program {item.name} is not its own")
    graph = graph_from_bytes(read(item.graph), str(folder / item.graph))
    inputs = tuple(map(_input, item.inputs))
    if len(inputs) != graph.inputs or any(one.donated >= len(graph.outputs) for one in inputs):
        raise ValueError(f"the inputs of program {item.name} are not its graph's")
    ranks = item.ranks
    return Program(
        name=item.name,
        graph=graph,
        ranks=RankSet(ranks.world, ranks.period, tuple(ranks.runs)),
        inputs=inputs,
        module=_form(item.name, item.module, read),
        listing=_listing(item.name, item.listing, read),
        calls=tuple(_call(item, call, read) for call in item.calls),
        timing=_times(folder, item, len(graph), read),
        allocations=_allocations(folder, item, read),
        graphed=item.graphed,
    )


def _times(
    folder: Path, item: ProgramOf, nodes: int, read: Callable[[str], bytes]
) -> Timing | None:
    if item.times is None:
        return None
    if item.times != program_file(item.name, TIMES):
        raise ValueError(f"the times of program {item.name} are not its own")
    return Timing.from_bytes(read(item.times), nodes, str(folder / item.times))


def _allocations(folder: Path, item: ProgramOf, read: Callable[[str], bytes]) -> Allocations | None:
    if item.memory is None:
        return None
    if item.memory != program_file(item.name, ALLOCATIONS):
        raise ValueError(f"the allocations of program {item.name} are not its own")
    return Allocations.from_bytes(read(item.memory), str(folder / item.memory))


def _input(item: InputOf) -> ProgramInput:
    kind = TensorType(tuple(item.shape), item.dtype, item.bytes)
    return ProgramInput(kind, item.role, item.name, item.donated, item.sharding)


def _call(program: ProgramOf, item: CallOf, read: Callable[[str], bytes]) -> Call:
    own = f"{program.name}.{item.name}"
    return Call(
        name=item.name,
        inputs=tuple(map(_input, item.inputs)),
        operands=tuple(Origin(*pair) for pair in item.operands),
        outputs=item.outputs,
        reads=tuple(HostRead(Origin(*one.value), one.file, one.line) for one in item.reads),
        file=item.file,
        line=item.line,
        jitted=item.jitted,
        module=_form(own, item.module, read),
        listing=_listing(own, item.listing, read),
        ranks=tuple(item.ranks),
    )


def _listing(name: str, stated: str | None, read: Callable[[str], bytes]) -> Listing | None:
    form = _form(name, stated, read)
    return None if form is None else lambda: form


def _form(name: str, stated: str | None, read: Callable[[str], bytes]) -> Form | None:
    if stated is None:
        return None
    suffix = module_suffix(stated)
    if stated != program_file(name, suffix):
        raise ValueError(f"{stated} is no module of program {name}")
    return read(stated), suffix


def _inside(folder: Path, relative: str) -> Path:
    path = (folder / relative).resolve()
    if not path.is_relative_to(folder.resolve()):
        raise ValueError(f"{relative} points outside the folder")
    return path
