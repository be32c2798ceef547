"""Which files of a run are traces to convert, and which complete them.

files, beside, others = sorted_files([Path("profiles/")], [])
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from threading import Thread

from flint import registry
from flint.errors import NoTraceError, UsageError
from flint.host.reading_memory import bounded
from flint.observed.columns import UNKNOWN_RANK, Observed
from flint.observed.folders import PROFILES, traces_in
from flint.observed.reading import form_of
from flint.post_execution.storages import Accesses
from flint.workload.folder import is_workload_folder, lists_groups

KINETO, EXECUTION, XPLANE = "kineto-ops", "pytorch-et-ops", "xplane-ops"
#: Profilers of devices alone.
NSYS, ROCPROF = "nsys-ops", "rocprof-ops"
#: The rank of a single execution trace that does not name its rank.
ANY_RANK = -1
#: A warning about a file in a folder of traces.
NO_TRACES = "{} in the folder is no trace: left out"
_CHAKRA = "a Chakra execution trace is no profile: convert the traces of all its ranks alone"


#: Names of saved programs, as XLA dumps them and people save them; not of what it dumps besides.
_PROGRAM = re.compile(r".*\.(hlo\.pb|hlo\.txt|hlo|mlir|mlirbc|jax_export)(\.gz)?|module_\d+.*\.txt")


def is_chakra(path: Path) -> bool:
    """Whether it is a Chakra execution trace, or a folder with such traces and no profiles."""
    if not path.is_dir():
        return path.is_file() and form_of(path) == "chakra-ops"
    for folder in (path, path / "et"):
        names = [item.name for item in folder.iterdir()] if folder.is_dir() else []
        if any(name.endswith((".et", ".et.gz")) for name in names):
            return not is_workload_folder(path) and not any(map(_is_profile, folder.iterdir()))
    return False


def _is_profile(path: Path) -> bool:
    """Whether a file beside Chakra traces is a profile; JSON there may list groups."""
    if not path.name.endswith(PROFILES) or lists_groups(path):
        return False
    with suppress(NoTraceError):
        return form_of(path) in (KINETO, EXECUTION, NSYS, ROCPROF)
    return False


def trace_files(paths: Sequence[str | Path]) -> tuple[list[Path], list[Path]]:
    """The files to read: the given ones, and the traces in given folders; and what else these have.

    Raises:
        UsageError: no such file, or a folder without traces.
        FlintError: a folder's JSON and CSV is no trace, all of it.
    """
    found: list[Path] = []
    others: list[Path] = []
    for path in map(Path, paths):
        if path.is_dir():
            if is_workload_folder(path):
                raise UsageError(f"{path}: a workload folder is the result of a conversion")
            traces, no_traces = traces_in(path, PROFILES)
            if not traces:
                raise UsageError(_without_profiles(path))
            found += traces
            others += no_traces
        elif path.is_file():
            found.append(path)
        else:
            raise UsageError(f"{path}: no such file or folder")
    return found, others


def _without_profiles(folder: Path) -> str:
    """Why a folder cannot be converted."""
    programs = [item for item in folder.iterdir() if _PROGRAM.fullmatch(item.name)]
    if programs:
        largest = max(programs, key=lambda item: (item.stat().st_size, item.name))
        return (
            f"{folder}: a folder of {len(programs):,} saved programs: give one of them, for "
            f"example the largest, {largest}"
        )
    return (
        f"{folder}: no profile in the folder: neither {', '.join(PROFILES)} files nor, "
        "as JAX writes, .xplane.pb files"
    )


def sorted_files(
    paths: Sequence[str | Path], execution_traces: Sequence[str | Path]
) -> tuple[list[Path], list[Path], list[Path]]:
    """The traces to convert, the execution traces that complete them, and what else the folders
    have: JSON and CSV that is no trace.

    Execution traces next to Kineto traces (in the same folder) also complete them.

    Raises:
        UsageError: a file that is neither, or execution traces that have nothing to complete.
    """
    given, _ = trace_files(execution_traces)
    files, others = trace_files(paths)
    forms = {file: form_of(file) for file in [*files, *given]}
    for file, form in forms.items():
        if form == "chakra-ops":
            raise UsageError(f"{file}: {_CHAKRA}")
        if form not in (KINETO, EXECUTION, NSYS, ROCPROF):
            raise UsageError(f"{file}: neither a Kineto trace nor a PyTorch execution trace")
    kineto = [file for file, form in forms.items() if form in (KINETO, NSYS, ROCPROF)]
    execution = [file for file, form in forms.items() if form == EXECUTION]
    wrong = [file for file in given if forms[file] != EXECUTION]
    if wrong:
        raise UsageError(f"--et {wrong[0]}: not a PyTorch execution trace")
    if given and not kineto:
        raise UsageError(
            f"--et {given[0]}: it completes a Kineto trace, and {paths[0]} is an execution trace, "
            "too: convert it alone"
        )
    return (kineto, execution, others) if kineto else (execution, [], others)


def digest_of(path: Path) -> bytes:
    """SHA-256 of a file; of a profile's folder, that of its files' together."""
    if path.is_dir():
        inside = sorted(item for item in path.glob("**/*.xplane.pb") if item.is_file())
        return hashlib.sha256(b"".join(map(digest_of, inside))).digest()
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").digest()


class Digests:
    """The SHA-256 of files, computed by a thread while something else is done with them."""

    def __init__(self, files: Sequence[Path]) -> None:
        self._found: list[bytes] = []
        self._error: OSError | None = None
        self._thread = Thread(target=self._compute, args=(tuple(files),), daemon=True)
        self._thread.start()

    def _compute(self, files: Sequence[Path]) -> None:
        try:
            self._found += map(digest_of, files)
        except OSError as error:
            self._error = error

    def together(self) -> str:
        """The digest of all files' digests, in hexadecimal digits.

        Raises:
            OSError: a file could not be read.
        """
        self._thread.join()
        if self._error is not None:
            raise self._error
        return hashlib.sha256(b"".join(self._found)).hexdigest()


def accesses_by_rank(files: Sequence[Path]) -> dict[int, tuple[Observed, Accesses]]:
    """Execution traces by rank, read.

    Raises:
        UsageError: two of one rank.
    """
    found: dict[int, tuple[Observed, Accesses]] = {}
    for file in files:
        with bounded(file):
            trace, accesses = registry.converter("pytorch-et-links")(file)
        rank = trace.ranks[0]
        if UNKNOWN_RANK in trace.notes and len(files) == 1:
            rank = ANY_RANK
        if rank in found:
            raise UsageError(
                f"{found[rank][0].path} and {file} are both for rank {rank}: give one execution "
                "trace per rank, named et_rank0.json, et_rank1.json, ..."
            )
        found[rank] = trace, accesses
    return found
