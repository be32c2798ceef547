"""The workload folder: everything about a workload on disk, complete or absent.

    out/workload.json mesh, programs and who runs them, options, checksums
    out/programs/main.mlirbc       the module as captured; beside it, as text, main.mlir
    out/programs/main.graph.npz    the graph as analysed (op granularity, issue order)
    out/programs/main.times.npz    of a profile: when its nodes began and were launched
    out/programs/main.memory.npz   of PyTorch: what it asked its allocator for
    out/et/trace.<rank>.et         Chakra execution traces;  out/et/nodes.parquet  what each node is
    out/astra-sim/*                communicator groups, system, network, remote memory

``flint.workload.saving`` writes it, ``flint.workload.loading`` reads it; this module has what both
and the commands share.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

from flint.cost.hardware import System
from flint.cost.simplified import without
from flint.cost.systems import load_system, system_names
from flint.errors import FlintError, UsageError
from flint.execution.chains import CommunicationOrder
from flint.host.packed_files import check_plain
from flint.host.writing import check_folder

if TYPE_CHECKING:
    from flint.workload.document import Document

DOCUMENT = "workload.json"
#: How a table of groups begins, and how much of a file that takes at most.
_GROUPS: Final = re.compile(rb'\s*\{\s*"\d')
_BEGINNING: Final = 1 << 10
#: The largest document that Flint writes (bytes).
_MAX_DOCUMENT = 2**28


def is_workload_folder(folder: Path) -> bool:
    """Whether ``folder`` holds a workload document."""
    document = folder / DOCUMENT
    return document.is_file() and not lists_groups(document)


def lists_groups(path: Path) -> bool:
    """Whether JSON begins like a table of groups, whose keys are numbers.

    Other tools' traces ``workload.<rank>.et`` have theirs in ``workload.json``.
    """
    try:
        with path.open("rb") as file:
            head = file.read(_BEGINNING)
    except OSError:
        return False
    return bool(_GROUPS.match(head))


def check_replaceable(folder: Path) -> None:
    """Check that a workload may be saved there: no folder, an empty one or a workload folder.

    Raises:
        UsageError: there is a file, or a folder with another content.
        FlintError: nothing may be written there.
    """
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder} is a file: give a folder with -o")
    if folder.is_dir() and any(folder.iterdir()) and not is_workload_folder(folder):
        raise UsageError(
            f"{folder} exists and is not a workload folder: Flint does not overwrite it"
        )
    check_folder(folder)


def traced_system(folder: Path) -> System:
    """The system that the folder's traces were written for; dgx-h100 without traces.

    Raises:
        UsageError: it is a user's own system, whose file may be anywhere.
        FlintError: not a workload folder.
    """
    document = read_document(folder)
    stated = document.system
    if stated not in system_names():
        raise UsageError(
            f"{folder}: its traces are for {stated!r}, a system of your own: give its file with "
            "--system"
        )
    return without(load_system(stated), document.without)


def chained_by(document: Document | None) -> CommunicationOrder:
    """How traces chain communications, from a folder's document; one chain per rank without
    traces.
    """
    order = document.et.order if document is not None and document.et is not None else ""
    by_communicator = order.endswith(f" {CommunicationOrder.COMMUNICATOR}")
    return CommunicationOrder.COMMUNICATOR if by_communicator else CommunicationOrder.RANK


def read_document(folder: Path) -> Document:
    """The folder's ``workload.json``.

    Raises:
        FlintError: there is none, or Flint did not write it.
    """
    from flint.workload.document import decode  # code that only writes does not need msgspec

    path = folder / DOCUMENT
    try:
        state = path.stat()
        check_plain(path, state)
        if state.st_size > _MAX_DOCUMENT:
            raise FlintError(f"{path}: too large for a workload document")
        data = path.read_bytes()
    except FileNotFoundError:
        chakra = ", only Chakra execution traces, which flint check reads"
        but = chakra if any(folder.glob("*.et")) else ""
        raise FlintError(f"{folder}: not a workload folder (it has no {DOCUMENT}{but})") from None
    except OSError as error:
        raise FlintError(f"{path}: cannot be read ({error.strerror or error})") from error
    return decode(data, path)
