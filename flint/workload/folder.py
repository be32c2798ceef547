"""The workload folder: everything about a workload on disk, complete or absent.

    out/workload.json              mesh, programs and who runs them, options, input hash
    out/programs/main.mlirbc       the module as captured; beside it, as text, main.mlir
    out/programs/main.graph.npz    the graph as analysed (op granularity, issue order)
    out/programs/main.times.npz    of a profile: when its nodes began and were launched
    out/et/trace.<rank>.et         Chakra execution traces;  out/et/nodes.parquet  what each node is
    out/astra-sim/*                communicator groups, system, network, remote memory

``flint.workload.saving`` writes it, ``flint.workload.loading`` reads it; what both and the commands
know of it stands here.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from flint.cost.hardware import System
from flint.cost.simplified import without
from flint.cost.systems import load_system, system_names
from flint.errors import FlintError, UsageError
from flint.execution.chains import CommunicationOrder

SCHEMA = 1
DOCUMENT = "workload.json"
#: A document beyond this is not ours (bytes).
_MAX_DOCUMENT = 2**28
#: What a program may be called: a plain file name in any file system.
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,99}")
#: What the files of modules end with; a longer one first.
_SUFFIXES = (
    ".mlirbc.gz", ".mlir.gz", ".hlo.pb.gz", ".hlo.gz", ".mlirbc", ".mlir", ".hlo.pb", ".hlo",
)  # fmt: skip
#: The end of a module file whose own says nothing.
_OTHER = ".module"


#: When the nodes of a recorded program began.
TIMES = ".times.npz"


def module_suffix(filename: str) -> str:
    """What a module's file ends with in a workload folder: a known suffix, never a stated one."""
    return next((suffix for suffix in _SUFFIXES if filename.endswith(suffix)), _OTHER)


def program_file(program: str, suffix: str) -> str:
    """Where a program's file stands in a workload folder; nothing else names such files.

    Args:
        program: the program's name, which may come from a file.
        suffix: ``.graph.npz``, ``TIMES``, or as ``module_suffix`` gives it.

    Raises:
        FlintError: a name that is none: it could lead out of the folder.
    """
    if not _NAME.fullmatch(program):
        raise FlintError(
            f"a program is called {program[:60]!r}: names of programs are letters, digits and _.+-"
        )
    return f"programs/{program}{suffix}"


def is_workload_folder(folder: Path) -> bool:
    """Whether ``folder`` holds a workload document."""
    return (folder / DOCUMENT).is_file()


def check_replaceable(folder: Path) -> None:
    """That a workload may be saved there: nothing, an empty folder or a workload folder is.

    Raises:
        UsageError: a file, or a folder with something else in it.
    """
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder} is a file: give a folder with -o")
    if folder.is_dir() and any(folder.iterdir()) and not is_workload_folder(folder):
        raise UsageError(
            f"{folder} exists and is not a workload folder: Flint does not overwrite it"
        )


def traced_system(folder: Path) -> System:
    """The system that the folder's traces were written for; dgx-h100 without traces.

    Raises:
        UsageError: it is a user's own, whose file may be anywhere.
        FlintError: no workload folder.
    """
    document = read_document(folder)
    stated = str(document.get("system", "dgx-h100"))
    if stated not in system_names():
        raise UsageError(
            f"{folder}: its traces are for {stated!r}, a system of your own: give its file with "
            "--system"
        )
    return without(load_system(stated), document.get("without", ()))


def chained_by(document: dict[str, Any]) -> CommunicationOrder:
    """How traces chain communications by a folder's document; one chain per rank without traces."""
    order = str((document.get("et") or {}).get("order", ""))
    by_communicator = order.endswith(f" {CommunicationOrder.COMMUNICATOR}")
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
        raise FlintError(f"{folder}: not a workload folder (it has no {DOCUMENT})") from None
    except (OSError, ValueError, RecursionError) as error:
        raise FlintError(f"{path}: cannot be read ({error})") from error
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        found = document.get("schema") if isinstance(document, dict) else None
        raise FlintError(f"{path}: workload schema {found}, known is {SCHEMA}")
    return document
