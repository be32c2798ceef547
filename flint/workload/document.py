"""What ``workload.json`` may contain: types, ranges and names, checked during decoding.

The idea: the classes below are the schema.  Version 2 adds the seal (``flint.workload.sealing``)
and the version of Flint that wrote the folder; folders of version 1 have neither.

    document = decode(path.read_bytes(), path)
    document.mesh.shape, document.programs[0].graph
"""

from __future__ import annotations

import math
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from flint.errors import FlintError
from flint.workload.names import NAME

Natural = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Positive = Annotated[int, Meta(ge=1, le=2**31 - 1)]
#: A result that an input is donated to, or a program of a sequence; -1: none, or the step's inputs.
Number = Annotated[int, Meta(ge=-1, le=2**31 - 1)]
Name = Annotated[str, Meta(pattern=rf"^{NAME}\Z")]
#: A file of the folder.
File = Annotated[str, Meta(pattern=r"^(?:[a-z-]+/)?[A-Za-z0-9_][A-Za-z0-9_.+-]{0,249}\Z")]
#: Size and checksum of a file; ranks such as ``0-7,16``.
Entry = Annotated[str, Meta(pattern=r"^\d{1,18}:[0-9a-f]{16}\Z")]
Runs = Annotated[str, Meta(pattern=r"^\d{1,10}(?:-\d{1,10})?(?:,\d{1,10}(?:-\d{1,10})?)*\Z")]


class MeshOf(Struct):
    """The device grid."""

    shape: Annotated[list[Positive], Meta(min_length=1, max_length=64)]
    axes: list[str]


class RanksOf(Struct):
    """The ranks that run a program (see ``flint.mesh.ranks``)."""

    world: Positive
    period: Positive
    runs: list[tuple[Natural, Natural]]


class InputOf(Struct):
    """An input of a program."""

    shape: list[Natural]
    dtype: str
    bytes: Natural
    role: str
    name: str
    donated: Number
    sharding: str


class ReadOf(Struct):
    """A value that the host reads."""

    value: tuple[Number, Natural]
    file: str
    line: Natural


class CallOf(Struct):
    """One of the programs that a program runs in sequence."""

    name: Name
    file: str
    line: Natural
    jitted: bool
    inputs: list[InputOf]
    operands: list[tuple[Number, Natural]]
    outputs: Natural
    reads: list[ReadOf]
    module: File | None
    listing: File | None
    ranks: list[Natural] = []


class ProgramOf(Struct):
    """A program."""

    name: Name
    ranks: RanksOf
    graph: File
    module: File | None
    listing: File | None
    inputs: list[InputOf]
    calls: list[CallOf] = []
    times: File | None = None
    memory: File | None = None
    graphed: Annotated[float, Meta(ge=0, le=1)] = 0.0


class ReducedOf(Struct):
    """For traces that stand for those of more ranks: their mesh, and what they mean."""

    mesh: list[Positive]
    meaning: str


class TracesOf(Struct):
    """The part of the trace writer's manifest that is read again."""

    order: str = ""
    reduced: ReducedOf | None = None


class Document(Struct):
    """A workload folder's ``workload.json``."""

    schema: Literal[1, 2]
    level: Literal["logical", "partitioned", "optimized"]
    order: Literal["modelled", "compiled", "recorded"]
    mesh: MeshOf
    input: dict[str, str]
    options: dict[str, Any]
    warnings: dict[str, Natural]
    programs: list[ProgramOf]
    compiled: dict[str, Any] | None = None
    granularity: Literal["op", "kernel", "region", "xla", "inductor"] | None = None
    system: str = "dgx-h100"
    without: list[str] = []
    partial: bool | None = None
    et: TracesOf | None = None
    version: str = ""
    files: dict[File, Entry] | None = None
    traces: dict[Entry, Runs] = {}


def decode(data: bytes, path: Path) -> Document:
    """A document.

    Raises:
        FlintError: it is not one, or it contradicts itself; the message names the place.
    """
    try:
        document = msgspec.json.decode(data, type=Document)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise FlintError(f"{path}: not a workload written by Flint ({error})") from error
    for where, reason in _contradictions(document):
        raise FlintError(f"{path}: not a workload written by Flint ({where}: {reason})")
    return document


def _contradictions(document: Document) -> list[tuple[str, str]]:
    found = []
    if document.schema > 1 and document.files is None:
        found.append(("files", "missing"))
    size = math.prod(document.mesh.shape)
    names = [program.name for program in document.programs]
    if len(set(names)) < len(names):
        found.append(("programs", "two have one name"))
    for program in document.programs:
        ranks = program.ranks
        ends = [0, *(end for run in ranks.runs for end in run)]
        ordered = all(first <= last for first, last in pairwise(ends))
        if ranks.world != size or size % ranks.period or not ordered or ends[-1] > ranks.period:
            found.append((f"program {program.name}", "its ranks do not fit the mesh"))
    return found
