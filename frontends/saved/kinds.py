"""The kind of a file, by its content: programs in every form of frameworks and XLA, and others.

The idea: a file's first bytes show its kind, whatever its name.

    detect(b"HloModule m")               # Kind.HLO_TEXT
    detect(b"\x1f\x8b...")               # Kind.GZIP: unpack it, and look again
"""

from __future__ import annotations

import re
from enum import Enum

_GZIP_MAGIC = b"\x1f\x8b"
_MLIR_MAGIC = b"ML\xefR"
_VHLO_PRODUCER = b"StableHLO_v"
_SNIFFED = 1 << 16


class Kind(Enum):
    """The kind of a file; the value is its name in messages."""

    MLIR_BYTECODE = "MLIR bytecode"
    VHLO = "a StableHLO portable artifact"
    MLIR_TEXT = "MLIR text"
    HLO_PROTO = "an HloProto"
    HLO_MODULE_PROTO = "an HloModuleProto"
    HLO_TEXT = "HLO text"
    GZIP = "gzip data"
    EMPTY = "an empty file"
    CHROME_TRACE = "a profiler trace (Chrome or Kineto JSON)"
    PYTORCH_ET = "a PyTorch execution trace (JSON)"
    JSON = "JSON"
    JAX_EXPORT = "a serialised jax.export.Exported"
    PICKLE = "a Python pickle"
    COMPRESSED = "compressed data (xz, zstd, bzip2 or 7z)"
    ZIP = "a ZIP archive (a saved PyTorch model or NumPy file?)"
    NUMPY = "a NumPy array"
    NSYS = "a report of Nsight Systems"
    EXECUTABLE = "a compiled library or program"
    PYTHON = "Python source"
    TEXT = "text that is neither MLIR nor HLO"
    UNKNOWN = "of an unknown format"

    @property
    def is_program(self) -> bool:
        """Whether a file of this kind holds a program that can be read."""
        return self in _PROGRAMS


_PROGRAMS = frozenset({
    Kind.MLIR_BYTECODE, Kind.VHLO, Kind.MLIR_TEXT, Kind.HLO_PROTO, Kind.HLO_MODULE_PROTO,
    Kind.HLO_TEXT, Kind.JAX_EXPORT,
})  # fmt: skip

_OF_A_RUN = (
    "it records a run and holds no program; `flint convert` makes a workload of it, and "
    "`flint validate` compares with it"
)
#: Advice about files that contain no program.
_ADVICE: dict[Kind, str] = {
    Kind.CHROME_TRACE: _OF_A_RUN,
    Kind.PYTORCH_ET: _OF_A_RUN,
    Kind.NSYS: "export it for `flint convert`: nsys export --type sqlite REPORT.nsys-rep",
    Kind.COMPRESSED: "decompress it first; only gzip is read as it is",
    Kind.PICKLE: "pickles are not opened; save StableHLO instead",
    Kind.PYTHON: "`flint capture FILE.py:FUNCTION` captures model code",
}
_WANTED = "StableHLO (MLIR text, bytecode, portable artifact, jax.export's) or HLO (proto, text)"

_MAGIC: tuple[tuple[bytes, Kind], ...] = (
    (_GZIP_MAGIC, Kind.GZIP),
    (b"\xfd7zXZ\x00", Kind.COMPRESSED),
    (b"\x28\xb5\x2f\xfd", Kind.COMPRESSED),
    (b"BZh", Kind.COMPRESSED),
    (b"7z\xbc\xaf\x27\x1c", Kind.COMPRESSED),
    (b"PK\x03\x04", Kind.ZIP),
    (b"\x93NUMPY", Kind.NUMPY),
    (b"NVIDIA Tegra Profiler Re", Kind.NSYS),
    (b"\x7fELF", Kind.EXECUTABLE),
    (b"\x80\x02", Kind.PICKLE),
    (b"\x80\x03", Kind.PICKLE),
    (b"\x80\x04", Kind.PICKLE),
    (b"\x80\x05", Kind.PICKLE),
)

_COMMENTS = r"\A\s*(?://[^\n]*\n\s*)*"
_HLO_TEXT = re.compile(_COMMENTS + r"HloModule\s")
_MLIR_TEXT = re.compile(
    _COMMENTS + r'(?:module\b|"builtin\.module"|builtin\.module\b|func\.func\b|#\w|!\w|\{-#)'
)
_MLIR_OPS = re.compile(r"\b(?:stablehlo|vhlo|mhlo|func|sdy)\.\w")
_PYTHON = re.compile(r"^(?:import \w|from [\w.]+ import |def \w+\(|@\w)", re.MULTILINE)


def detect(data: bytes) -> Kind:
    """The kind of ``data``, by its content alone, without parsing; a truncated file keeps it."""
    if not data:
        return Kind.EMPTY
    if data[:4] == _MLIR_MAGIC:
        return Kind.VHLO if _VHLO_PRODUCER in data[:64] else Kind.MLIR_BYTECODE
    for magic, kind in _MAGIC:
        if data.startswith(magic):
            return kind
    proto = _hlo_proto_kind(data)
    if proto is not None:
        return proto
    text = _text_start(data)
    if text is not None:
        return _text_kind(text)
    return Kind.JAX_EXPORT if _MLIR_MAGIC in data else Kind.UNKNOWN


def advice(kind: Kind) -> str:
    """Advice about a file that contains no program."""
    return _ADVICE.get(kind, f"expected {_WANTED}")


def described(data: bytes) -> str:
    """What a file that holds no profile is, and what to do with it, by its first bytes."""
    kind = detect(data)
    made = "`flint convert` makes a workload folder of it" if kind.is_program else ""
    return "; ".join(filter(None, (kind.value, made or _ADVICE.get(kind))))


def _text_start(data: bytes) -> str | None:
    """The first part of ``data`` as text; None if it is not text."""
    start = data[:_SNIFFED]
    if b"\x00" in start:
        return None
    try:
        return start.decode("utf-8")
    except UnicodeDecodeError as error:
        # A truncated character at the end is not an error; anything else is.
        return start[: error.start].decode() if error.start > len(start) - 4 else None


def _text_kind(text: str) -> Kind:
    if _HLO_TEXT.match(text):
        return Kind.HLO_TEXT
    if _MLIR_TEXT.match(text):
        return Kind.MLIR_TEXT
    if text.lstrip()[:1] in ("{", "["):
        if '"traceEvents"' in text or '"ph"' in text:
            return Kind.CHROME_TRACE
        return Kind.PYTORCH_ET if "-chakra" in text[:4096] else Kind.JSON
    if _PYTHON.search(text):
        return Kind.PYTHON
    return Kind.MLIR_TEXT if _MLIR_OPS.search(text) else Kind.TEXT


def _hlo_proto_kind(data: bytes) -> Kind | None:
    """``HloProto`` and ``HloModuleProto`` by their first fields.

    A module starts with its name (field 1, printable), then its entry computation's name (field 2)
    or the computations (field 3); an HloProto starts with a module (field 1).
    """
    if _starts_like_module(data):
        return Kind.HLO_MODULE_PROTO
    inner = _first_field(data)
    if inner is not None and _starts_like_module(data[inner[0] : inner[0] + _SNIFFED]):
        return Kind.HLO_PROTO
    return None


def _starts_like_module(data: bytes) -> bool:
    field = _first_field(data)
    if field is None:
        return False
    start, length = field
    name, after = data[start : start + length], data[start + length : start + length + 1]
    printable = all(0x20 <= byte < 0x7F for byte in name)
    return 0 < length <= 4096 and printable and after in (b"\x12", b"\x1a", b"")


def _first_field(data: bytes) -> tuple[int, int] | None:
    """Start and stated length of the content of field 1, when data begins with such a field."""
    if data[:1] != b"\x0a":
        return None
    length = shift = 0
    for position in range(1, min(len(data), 11)):
        length |= (data[position] & 0x7F) << shift
        if data[position] < 0x80:
            return position + 1, length
        shift += 7
    return None
