"""Graphs to files and back: numpy archives without pickle.

The idea: every column is an array of the archive under a path (``columns``, ``loop0/columns``
...); tables and trip counts are one JSON document stored as bytes.  Reading checks names, types and
sizes before using anything, and the graph is verified afterwards.

    data = graph_to_bytes(graph);  graph = graph_from_bytes(data, "main.graph.npz")
"""

from __future__ import annotations

import json
from dataclasses import fields
from operator import attrgetter
from typing import Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from flint.errors import FlintError
from flint.graph.arrays import DAMAGED, archive_of, arrays_of
from flint.graph.communication import Communication
from flint.graph.graph import Loop, Phase, Source, Tables, WorkloadGraph
from flint.graph.tensor_types import TensorType
from flint.graph.verification import verify
from flint.mesh.groups import Groups, StridedGroups, TableGroups
from flint.mesh.permutation import Permutation, permutation

_VERSION = 1
_COLUMNS = tuple(
    field.name
    for field in fields(WorkloadGraph)
    if field.name not in ("tables", "loops", "conditionals")
)


def graph_to_bytes(graph: WorkloadGraph) -> bytes:
    """The graph as an ``.npz`` archive."""
    arrays: dict[str, NDArray[Any]] = {}
    structure = _structure(graph, "", arrays)
    document = {"version": _VERSION, "tables": _tables(graph.tables, arrays), "graph": structure}
    arrays["document"] = np.frombuffer(_encoded(document), dtype=np.uint8)
    return archive_of(arrays)


def _encoded(document: dict[str, Any]) -> bytes:
    try:
        return msgspec.json.encode(document)
    except (UnicodeEncodeError, OverflowError):  # names of files that are not UTF-8; huge counts
        return json.dumps(document, separators=(",", ":")).encode()


def graph_from_bytes(data: bytes, name: str) -> WorkloadGraph:
    """The graph of ``graph_to_bytes``.

    Raises:
        FlintError: not such an archive, or it contradicts itself.
    """
    try:
        arrays = arrays_of(data, name)
        document = json.loads(arrays["document"].tobytes())
        if document["version"] != _VERSION:
            raise FlintError(
                f"{name}: graph format {document['version']}, but this Flint reads {_VERSION}"
            )
        tables = _read_tables(document["tables"], arrays)
        graph = _read_graph(document["graph"], "", arrays, tables)
    except FlintError:
        raise
    except DAMAGED as error:
        raise FlintError(f"{name}: not a graph written by Flint ({error})") from error
    verify(graph)
    return graph


def _structure(graph: WorkloadGraph, path: str, arrays: dict[str, NDArray[Any]]) -> dict[str, Any]:
    for column in _COLUMNS:
        arrays[f"{path}{column}"] = getattr(graph, column)
    loops = [
        {
            "body": _structure(loop.body, f"{path}loop{i}/", arrays),
            "carried": loop.carried,
            "trip_count": loop.trip_count,
            "lookahead": loop.lookahead,
            "known_by": loop.known_by,
        }
        for i, loop in enumerate(graph.loops)
    ]
    assert not graph.conditionals  # programs of a workload have none
    return {"loops": loops, "conditionals": []}


def _read_graph(
    structure: dict[str, Any], path: str, arrays: dict[str, NDArray[Any]], tables: Tables
) -> WorkloadGraph:
    columns: dict[str, Any] = {}
    for column in _COLUMNS:
        values = arrays[f"{path}{column}"]
        if values.ndim != 1 or values.dtype.kind not in "iu":
            raise ValueError(f"column {path}{column} is not an integer column")
        columns[column] = values
    loops = tuple(
        Loop(
            _read_graph(item["body"], f"{path}loop{i}/", arrays, tables),
            int(item["carried"]),
            int(item["trip_count"]),
            None if item["lookahead"] is None else int(item["lookahead"]),
            str(item["known_by"]),
        )
        for i, item in enumerate(structure["loops"])
    )
    if structure["conditionals"]:
        raise ValueError("a program with conditionals that no rank has resolved")
    return WorkloadGraph(tables=tables, loops=loops, **columns)


def _tables(tables: Tables, arrays: dict[str, NDArray[Any]]) -> dict[str, Any]:
    groups: dict[Groups, int] = {}
    permutations: dict[Permutation, int] = {}
    communications = []
    for item in tables.communications:
        entry: dict[str, Any] = dict(zip(_OF_COMMUNICATION, _values(item), strict=True))
        if item.groups is not None:
            entry["groups"] = groups.setdefault(item.groups, len(groups))
        if item.permutation is not None:
            entry["permutation"] = permutations.setdefault(item.permutation, len(permutations))
        communications.append(entry)
    for partition, number in groups.items():
        if isinstance(partition, TableGroups):
            arrays[f"groups{number}"] = partition.rows
    for peers, number in permutations.items():
        sends = np.flatnonzero(peers.target >= 0)
        arrays[f"pairs{number}"] = np.stack([sends, peers.target[sends]], axis=1)
    return {
        "types": [[list(t.shape), t.dtype, t.bytes, t.dynamic] for t in tables.types],
        "ops": list(tables.ops),
        "heroes": list(tables.heroes),
        "forms": [list(form) for form in tables.forms],
        "gemms": [list(dims) for dims in tables.gemms],
        "sources": [[s.layer, s.file, s.line, int(s.phase)] for s in tables.sources],
        "groups": [
            [g.world, list(map(list, g.dims))] if isinstance(g, StridedGroups) else [g.world, None]
            for g in groups
        ],
        "permutations": [peers.world for peers in permutations],
        "communications": communications,
    }


#: The fields of a communication, which the file has as they are.
_OF_COMMUNICATION: Final = tuple(field.name for field in fields(Communication))
_values: Final = attrgetter(*_OF_COMMUNICATION)


def _read_tables(data: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> Tables:
    groups: list[Groups] = [
        TableGroups(int(world), arrays[f"groups{i}"])
        if dims is None
        else StridedGroups(int(world), tuple((int(size), int(stride)) for size, stride in dims))
        for i, (world, dims) in enumerate(data["groups"])
    ]
    peers = [permutation(int(w), arrays[f"pairs{i}"]) for i, w in enumerate(data["permutations"])]
    return Tables(
        types=tuple(_read_type(item) for item in data["types"]),
        ops=tuple(map(str, data["ops"])),
        gemms=tuple((int(b), int(m), int(n), int(k)) for b, m, n, k in data["gemms"]),
        sources=tuple(
            Source(str(layer), str(file), int(line), Phase(phase))
            for layer, file, line, phase in data["sources"]
        ),
        communications=tuple(
            Communication(
                **{
                    **item,
                    "groups": None if item["groups"] is None else groups[item["groups"]],
                    "permutation": (
                        None if item["permutation"] is None else peers[item["permutation"]]
                    ),
                    "operand_bytes": tuple(item["operand_bytes"]),
                    "result_bytes": tuple(item["result_bytes"]),
                    "dtypes": tuple(item["dtypes"]),
                }
            )
            for item in data["communications"]
        ),
        heroes=tuple(map(str, data.get("heroes", ()))),  # older files have none
        forms=tuple(tuple(map(int, form)) for form in data.get("forms", ())),
    )


def _read_type(item: list[Any]) -> TensorType:
    shape, dtype, size, dynamic = item
    return TensorType(tuple(map(int, shape)), str(dtype), int(size), bool(dynamic))
