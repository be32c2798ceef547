"""The reader for a post-execution trace, chosen by the file's content, not its name.

read_trace(Path("profile/"))        # the converter "xplane"
"""

from __future__ import annotations

import zlib
from pathlib import Path

from flint import registry
from flint.errors import FlintError, NoTraceError, UsageError
from flint.host.packed_files import Content
from flint.host.reading_memory import bounded
from flint.observed.columns import Observed
from flint.observed.program_runs import AskedProgram, ProgramRuns

_HEAD = 1 << 16
_SQLITE = b"SQLite format 3\0"
ZIP = b"PK\x03\x04"
_TAR, _TAR_AT = b"ustar", 257
_POINTER = b"version https://git-lfs.github.com/spec"
#: A Kineto trace begins with one of these; lists of process groups may be long.
_KINETO = (b'"traceEvents"', b'"deviceProperties"', b'"distributedInfo"', b'"ph"')

#: The first key of the JSON that rocprofv3 writes, and how tables of databases begin.
_ROCPROF, _ROCPD = b'"rocprofiler-sdk-tool"', b"rocpd_"
#: How a database of the rocprof before it names its times.
_OLDER = (b"BeginNs", b"EndNs")
#: How the first line of each CSV of rocprofv3, and of rocprof before it, begins, without quotes.
_ROCPROF_CSV = (
    b"Kind,Agent_Id,Queue_Id,",
    b"Kind,Direction,",
    b"Domain,Function,Process_Id,",
    b"Node_Id,Logical_Node_Id,",
    b"Index,KernelName,gpu-id,",
)

#: Columns of CSV that does not tell when anything ran, and what it is.
_NO_RECORDS = {
    (b"Calls", b"TotalDurationNs"): (
        "statistics of rocprof's, the sums of what ran, not when it did: rocprofv3 --sys-trace "
        "--output-format csv writes that to *_trace.csv"
    ),
    (b"Counter_Name", b"Counter_Value"): (
        "rocprofv3's counters, for which kernels run one at a time: profile the step's times in a "
        "run of its own, rocprofv3 --sys-trace"
    ),
    (b"Total Time (ns)", b"Instances"): (
        "statistics of Nsight Systems', the sums of what ran, not when it did: nsys export --type "
        "sqlite writes that"
    ),
}

_IN_SEQUENCE = "the capture is several programs in sequence; give a JAX profile"


def read_trace(path: Path, program: AskedProgram | None = None) -> Observed:
    """The ops in a trace of any form.

    Args:
        path: the trace.
        program: for a JAX profile, the program to read.

    Raises:
        UsageError: there is no such file.
        FlintError: its format is unknown, or its reader reports an error.
    """
    if not path.exists():
        raise UsageError(f"{path}: no such file or folder")
    form = form_of(path)
    observe = registry.converter(form)
    if program is not None and form != "xplane-ops":
        raise FlintError(f"{path}: {_IN_SEQUENCE}")
    with bounded(path):
        found = observe(path) if program is None else observe(path, program)
    assert isinstance(found, Observed)
    return found


def read_runs(path: Path, program: AskedProgram | None) -> ProgramRuns:
    """Which programs every rank ran; arguments and errors as of ``read_trace``."""
    if form_of(path) != "xplane-ops":
        raise FlintError(f"{path}: {_IN_SEQUENCE}")
    read = registry.converter("xplane-runs")
    with bounded(path):
        found = read(path, program)
    assert isinstance(found, ProgramRuns)
    return found


def _is_archive(head: bytes) -> bool:
    """Whether a file is an SQLite database, by its first bytes, unpacked if they are gzip."""
    return head.startswith(ZIP) or head[_TAR_AT : _TAR_AT + len(_TAR)] == _TAR


def begins_archive(path: Path) -> bool:
    """Whether a file is an archive, as far as its beginning tells.

    Raises:
        FlintError: it cannot be read.
    """
    return _is_archive(head_of(path))


def is_jax_profile(path: Path) -> bool:
    """Whether it is a JAX profile, which contains the executed programs: its folder, or a file."""
    if path.is_dir():
        return any(path.glob("**/*.xplane.pb"))
    return path.name.endswith(".xplane.pb")


def is_trace(source: Path | Content) -> bool:
    """Whether a file or folder is what a profiler recorded, as far as its beginning tells.

    Raises:
        FlintError: it cannot be read.
    """
    if isinstance(source, Content):
        head = _start(source.data[:_HEAD], source.path)
    elif source.is_dir() or source.name.removesuffix(".gz").endswith((".xplane.pb", ".et")):
        return True
    else:
        head = head_of(source)
    begins = head.lstrip().startswith((b"{", b"["))
    return begins or _is_archive(head) or head.startswith(_SQLITE) or _is_rocprof_csv(head)


def is_csv(path: Path) -> bool:
    """Whether a file is CSV of rocprofv3, or of rocprof before it, by its first line.

    Raises:
        FlintError: it cannot be read.
    """
    return _is_rocprof_csv(head_of(path))


def _is_rocprof_csv(head: bytes) -> bool:
    first = head[:1024].partition(b"\n")[0].replace(b'"', b"").removeprefix(b"Guid,")
    return first.startswith(_ROCPROF_CSV)


def form_of(path: Path) -> str:
    """The converter that reads a trace, by its content.

    Raises:
        FlintError: it is not a known kind of trace, or cannot be read.
    """
    if path.is_dir():
        return "xplane-ops"
    head = head_of(path)
    if head.startswith(_POINTER):
        raise FlintError(
            f"{path}: only Git's pointer to a large file: git lfs pull fetches the file"
        )
    text = head.lstrip()
    if text.startswith((b"{", b"[")):
        if any(word in head for word in _KINETO):
            return "kineto-ops"
        if _ROCPROF in head:
            return "rocprof-ops"
        if b'"nodes"' in head or b'"schema"' in head:
            return "pytorch-et-ops"
    if head.startswith(_SQLITE):
        if _ROCPD not in head and all(word in head for word in _OLDER):
            raise NoTraceError(
                f"{path}: a database of rocprof's, which writes the same as JSON beside it "
                "(results.json): give that"
            )
        return "rocprof-ops" if _ROCPD in head else "nsys-ops"
    if _is_rocprof_csv(head):
        return "rocprof-ops"
    # The length of a record, with which a Chakra trace begins, may be a brace's or bracket's code.
    if is_jax_profile(path):
        return "xplane-ops"
    if path.name.removesuffix(".gz").endswith(".et"):
        return "chakra-ops"
    if text.startswith((b"{", b"[")):
        raise NoTraceError(
            f"{path}: JSON, but neither a Kineto trace (traceEvents), a PyTorch execution trace "
            "(schema, nodes) nor rocprofv3's (rocprofiler-sdk-tool)"
        )
    if path.suffix == ".csv":
        columns = head.partition(b"\n")[0]
        for words, what in _NO_RECORDS.items():
            if all(word in columns for word in words):
                raise NoTraceError(f"{path}: {what}")
        raise NoTraceError(
            f"{path}: CSV, but not rocprofv3's of kernels, copies, calls or agents (*_trace.csv)"
        )
    raise FlintError(
        f"{path}: not a trace of a known format: Kineto or PyTorch execution trace JSON, a JAX "
        "profile folder or .xplane.pb, an SQLite export of Nsight Systems (nsys export --type "
        "sqlite), JSON, CSV or a database of rocprofv3, an .rpd of rocmProfileData, or a Chakra .et"
    )


def head_of(path: Path) -> bytes:
    """The first bytes of a file, unpacked if they are gzip.

    Raises:
        FlintError: it cannot be read.
    """
    try:
        with path.open("rb") as file:
            head = file.read(_HEAD)
    except OSError as error:
        raise FlintError(f"{path}: cannot be read ({error.strerror or error})") from error
    return _start(head, path)


def _start(head: bytes, path: Path) -> bytes:
    """The first bytes of a file, unpacked."""
    if head.startswith(_POINTER):
        raise FlintError(f"{path}: only Git's pointer to a large file: git lfs pull fetches it")
    if head[:2] == b"\x1f\x8b":
        try:
            return zlib.decompressobj(31).decompress(head, _HEAD)
        except zlib.error as error:
            raise FlintError(f"{path}: damaged gzip ({error})") from error
    return head
