"""nodes.parquet: a description of every node of the traces, once per structure instead of per rank.

The idea: traces have what consumers read; further information for people (op, layer, source line,
dtype, shapes, iteration) repeats with the program's templates, so it is written as dictionary
columns keyed by (structure, node id).  `--annotate` puts the same texts into the traces themselves.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from flint.converters.chakra.write.parquet_process import parquet_file
from flint.converters.chakra.write.records import note
from flint.execution.emission import Emission
from flint.graph.distinct import distinct
from flint.graph.graph import NodeKind, WorkloadGraph
from flint.graph.unrolling import Unrolled
from flint.mesh.ragged import Ints

if TYPE_CHECKING:
    from flint.converters.chakra.write.parquet import Column

#: Names of node types in the table.
_KINDS: Final = ("", "", "", "", "COMP", "SEND", "RECV", "COLL")


@dataclass(frozen=True, eq=False, slots=True)
class Texts:
    """Descriptions of a program's templates, as dictionary columns.

    Attributes:
        values: column name -> distinct texts.
        index: column name -> entry per template.
    """

    values: dict[str, list[str]]
    index: dict[str, Ints]

    def notes(self) -> tuple[list[bytes], Ints]:
        """Distinct encoded attributes with all of it, and the one of each template."""
        columns = np.stack(list(self.index.values()), axis=1)
        rows, index = np.unique(columns, axis=0, return_inverse=True)
        table = [
            b"".join(
                note(name, texts[entry])
                for (name, texts), entry in zip(self.values.items(), row, strict=True)
                if texts[entry]
            )
            for row in rows.tolist()
        ]
        return table, index.reshape(-1).astype(np.int64)


def texts_of(graphs: tuple[WorkloadGraph, ...]) -> Texts:
    """The texts of all templates of an unrolled program."""
    tables = graphs[0].tables
    phases = [source.phase.name.lower() for source in tables.sources]
    places = [f"{s.file}:{s.line}" if s.file else "" for s in tables.sources]
    per_source = {
        "layer": [source.layer for source in tables.sources],
        "source": places,
        "phase": ["" if phase == "unknown" else phase for phase in phases],
    }
    source = np.concatenate([graph.source for graph in graphs])
    values: dict[str, list[str]] = {"op": list(tables.ops)}
    index: dict[str, Ints] = {"op": np.concatenate([graph.op for graph in graphs])}
    for name, texts in per_source.items():
        numbers = {text: i for i, text in enumerate(dict.fromkeys(texts))}
        values[name] = list(numbers)
        index[name] = np.array([numbers[text] for text in texts], np.int64)[source]
    _add_types(graphs, values, index)
    _add_own_bytes(graphs, values, index)
    return Texts(values, index)


def _add_types(
    graphs: tuple[WorkloadGraph, ...], values: dict[str, list[str]], index: dict[str, Ints]
) -> None:
    types = graphs[0].tables.types
    shapes: dict[str, int] = {}
    dtypes: dict[str, int] = {}
    found: list[Ints] = []
    for graph in graphs:
        number, results = _alike(graph)
        table = np.empty((len(results), 2), np.int64)
        for row, item in enumerate(results):
            mine = [types[i] for i in item]
            shape, dtype = ", ".join(map(str, mine)), mine[0].dtype if mine else ""
            table[row] = (
                shapes.setdefault(shape, len(shapes)), dtypes.setdefault(dtype, len(dtypes))
            )  # fmt: skip
        found.append(table[number])
    columns = np.concatenate(found)
    values["shapes"], values["dtype"] = list(shapes), list(dtypes)
    index["shapes"], index["dtype"] = columns[:, 0], columns[:, 1]


def _alike(graph: WorkloadGraph) -> tuple[Ints, list[tuple[int, ...]]]:
    """Which types of results each node has, as an index into the different ones.

    Most nodes have one result or none, and there are few different types.
    """
    ptr = graph.result_ptr
    count = np.diff(ptr)
    number = np.zeros(len(count), np.int64)
    one = count == 1
    alone = graph.result_type[ptr[:-1][one]]
    used = distinct(alone)
    number[one] = 1 + np.searchsorted(used, alone)
    results = [(), *((item,) for item in used.tolist())]
    known: dict[tuple[int, ...], int] = {}
    for node in np.flatnonzero(count > 1).tolist():
        mine = tuple(graph.result_type[ptr[node] : ptr[node + 1]].tolist())
        number[node] = known.setdefault(mine, len(results) + len(known))
    return number, results + list(known)


def _add_own_bytes(
    graphs: tuple[WorkloadGraph, ...], values: dict[str, list[str]], index: dict[str, Ints]
) -> None:
    """What a member itself moves, if ``comm_size`` is the largest of all members."""
    table = graphs[0].tables.communications
    detail = np.concatenate(
        [np.where(graph.kind == NodeKind.COMMUNICATION, graph.detail, -1) for graph in graphs]
    )
    for name in ("bytes_in", "bytes_out"):
        texts = [str(getattr(item, name)) if item.largest_bytes else "" for item in table]
        numbers = {text: number for number, text in enumerate(dict.fromkeys([*texts, ""]))}
        values[name] = list(numbers)
        index[name] = np.array([numbers[text] for text in [*texts, ""]], np.int64)[detail]


class NodeTable:
    """Collects ``nodes.parquet``, one row group per structure."""

    def __init__(self) -> None:
        self._file = parquet_file()

    def add(self, structure: int, unrolled: Unrolled, emission: Emission, texts: Texts) -> None:
        """Append the nodes of a structure."""
        template = unrolled.template[emission.instance]
        columns: dict[str, Column] = {
            "structure": (np.full(len(emission), structure, np.int32), None),
            "node": (np.arange(1, len(emission) + 1, dtype=np.int64), None),
            "kind": (emission.type.astype(np.int32), list(_KINDS)),
        }
        for name, values in texts.values.items():
            columns[name] = texts.index[name].astype(np.int32)[template], values
        columns["iteration"] = unrolled.iteration[emission.instance], None
        self._file.add(columns)

    def content(self) -> bytes | memoryview:
        """The finished file."""
        return self._file.content()
