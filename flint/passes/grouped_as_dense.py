"""Grouped products as XLA's compiler for GPUs writes them: every row meets every group's matrix.

The idea: XLA has no kernel for ``ragged_dot`` on GPUs.  Its ``RaggedDotRewriter`` writes the rows
once per group, with zeros for the rows of other groups, and multiplies all of it:

    rows [m, k] x matrices [g, k, n]    rows -> [g, m, k] -> [m, g, k];  [m, g k] x [g k, n]
    sum over rows, [m, k] x [m, n]      both -> [g, m, .];  g products of [k, m] x [m, n]

So a product with g groups has g times the FLOPs, and rows that are g times as large.  Rows that
several products read are written once.  Products of one group, and those with batch dims, stay as
they are; so do PyTorch's (``_grouped_mm``, which is captured as the same op), a kernel of its own.

    as_dense(graph)                     # the graph itself if it has none
    on_device(graph, accelerator, recorded=False)   # the same, unless there is a kernel for them
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import prod
from typing import Final, NamedTuple

import numpy as np

from flint.cost.grouped import ROWS, groups_of
from flint.cost.hardware import Accelerator
from flint.graph.graph import WORK_COLUMNS, Form, Ints, WorkloadGraph, with_tables
from flint.graph.tensor_types import TensorType, tensor_type
from flint.graph.work import Role, Unit
from flint.mesh.ragged import pointer, row_of_entry
from flint.passes.columns import gathered, lists, repeated, with_bodies

#: JAX's grouped product, as StableHLO and HLO name it.
NAMES: Final = frozenset(("chlo.ragged_dot", "mhlo.ragged_dot"))
#: Ops that replace one: masked rows, the same with all groups in a row, the product over rows (its
#: matrices' contracted dim is the second or the third) or of sums.
_MASK: Final[tuple[str, str, Form]] = ("select", "", ())
_TURN: Final[tuple[str, str, Form]] = ("transpose", "", (1, 0, 2))
_DOTS: Final = tuple(("dot_general", "", form) for form in ((1, 2, 0, 1), (1, 2, 0, 2), (1, 1)))
#: Operations per element of masked rows: two comparisons with the group's ends, both, a choice.
_MASKING: Final = 4

Gemm = tuple[int, int, int, int]


class _Rows(NamedTuple):
    """Rows that are written once per group.

    Attributes:
        value: the rows.
        sizes: how many belong to each group.
        groups: number of groups.
        turned: with the groups of each row next to each other, [m, g, k]; otherwise [g, m, k].
    """

    value: int
    sizes: int
    groups: int
    turned: bool


@dataclass(frozen=True, slots=True)
class _Product:
    """A grouped product: what it multiplies, and what has to be written first."""

    groups: int
    over_rows: bool
    rows: tuple[_Rows, ...]
    first: tuple[_Rows, ...]


@dataclass(frozen=True, slots=True)
class _Entries:
    """The program's tables, by entry; new ones are added."""

    ops: dict[tuple[str, str, Form], int]
    types: dict[TensorType, int]
    gemms: dict[Gemm, int]


def on_device(graph: WorkloadGraph, accelerator: Accelerator, *, recorded: bool) -> WorkloadGraph:
    """``graph`` as a device runs it: with dense products, or with grouped ones.

    Args:
        graph: of a program.
        accelerator: the device.
        recorded: the program's ops were recorded as a framework issued them, one by one: no
            compiler rewrites them.
    """
    return graph if recorded or accelerator.kernel.grouped_rows else as_dense(graph)


def as_dense(graph: WorkloadGraph) -> WorkloadGraph:
    """``graph`` and its bodies with grouped products written out; itself if there are none."""
    if not NAMES.intersection(graph.tables.ops):
        return graph
    ops = {entry: number for number, entry in enumerate(graph.tables.entries())}
    for entry in (_MASK, _TURN, *_DOTS):
        ops.setdefault(entry, len(ops))
    types = {kind: number for number, kind in enumerate(graph.tables.types)}
    gemms = {sizes: number for number, sizes in enumerate(graph.tables.gemms)}
    written = _block(graph, _Entries(ops, types, gemms))
    names, heroes, forms = zip(*ops, strict=True)
    tables = replace(
        graph.tables, ops=names, heroes=heroes, forms=forms, types=tuple(types), gemms=tuple(gemms)
    )
    return with_tables(written, tables)


def _block(graph: WorkloadGraph, entries: _Entries) -> WorkloadGraph:
    graph = with_bodies(graph, lambda inner, _: _block(inner, entries))
    found = _products(graph)
    if not found:
        return graph
    copies = np.ones(len(graph), dtype=np.int64)
    copies[list(found)] = [1 + len(each.first) for each in found.values()]
    copied, _, last = repeated(graph, copies)
    return _edited(copied, last, found, entries)


def _products(graph: WorkloadGraph) -> dict[int, _Product]:
    """The grouped products of a block that are written out, by node."""
    named = np.array([name in NAMES for name in graph.tables.ops], dtype=bool)[graph.op]
    owner = row_of_entry(graph.work_ptr)
    found: dict[int, _Product] = {}
    known: set[_Rows] = set()
    for item, (groups, dim) in sorted(groups_of(graph).items()):
        node = int(owner[item])
        operands = graph.operand[graph.operand_ptr[node] : graph.operand_ptr[node + 1]].tolist()
        if not named[node] or groups < 2 or len(operands) != 3:
            continue
        left, right, sizes = operands
        if len(_kind(graph, left).shape) != 2:
            continue
        if dim == ROWS:
            whole = _Rows(left, sizes, groups, turned=False)
            rows: tuple[_Rows, ...] = (whole._replace(turned=True),)
            wanted = (whole, *rows)
        else:
            rows = wanted = tuple(_Rows(each, sizes, groups, False) for each in (left, right))
        first = tuple(each for each in dict.fromkeys(wanted) if each not in known)
        known.update(first)
        found[node] = _Product(groups, dim == ROWS, rows, first)
    return found


def _kind(graph: WorkloadGraph, value: int) -> TensorType:
    kind: TensorType = graph.tables.types[graph.value_type[value]]
    return kind


def _edited(
    graph: WorkloadGraph, last: Ints, found: Mapping[int, _Product], entries: _Entries
) -> WorkloadGraph:
    """The block with the nodes before each product and the product itself as they are written.

    Args:
        graph: with a copy of each product for everything that it needs first.
        last: the last copy of each former node.
    """
    columns = {
        name: getattr(graph, name).copy()
        for name in ("op", "role", "bytes_read", "bytes_written", "result_type", *WORK_COLUMNS)
    }
    operands = lists(graph.operand_ptr, graph.operand)
    worked = np.ones(len(graph.work_flops), dtype=bool)
    values: dict[_Rows, int] = {}
    types: dict[int, TensorType] = {}

    def makes(
        node: int, op: tuple[str, str, Form], role: Role, reads: list[int], size: int
    ) -> None:
        columns["op"][node], columns["role"][node] = entries.ops[op], role
        columns["bytes_read"][node] = sum(
            types[value].bytes if value in types else _kind(graph, value).bytes for value in reads
        )
        columns["bytes_written"][node] = size
        operands[node] = reads

    for node, product in found.items():
        place = int(last[node])
        left, right, sizes = operands[place]
        item = int(graph.work_ptr[place])
        _, m, n, k = graph.tables.gemms[graph.work_gemm[item]]
        for number, rows in enumerate(product.first, place - len(product.first)):
            source = left if rows.value == product.rows[0].value else right
            kind = _kind(graph, source)
            length, width = kind.shape
            shape = (length, rows.groups) if rows.turned else (rows.groups, length)
            made = tensor_type((*shape, width), kind.dtype)
            value = graph.inputs + int(graph.result_ptr[number])
            values[rows], types[value] = value, made
            columns["result_type"][value - graph.inputs] = entries.types.setdefault(
                made, len(entries.types)
            )
            mine = int(graph.work_ptr[number])
            if rows.turned:
                makes(
                    number, _TURN, Role.MOVEMENT, [values[rows._replace(turned=False)]], made.bytes
                )
                worked[mine] = False
            else:
                makes(number, _MASK, Role.ELEMENTWISE, [source, sizes], made.bytes)
                columns["work_unit"][mine], columns["work_gemm"][mine] = Unit.VECTOR, -1
                columns["work_flops"][mine] = _MASKING * made.elements
        written = [values[rows] for rows in product.rows]
        size = int(graph.bytes_written[place])
        if product.over_rows:
            dot = _DOTS[0] if _kind(graph, right).shape[1] == k else _DOTS[1]
            makes(place, dot, Role.CONTRACTION, [*written, right], size)
            gemm = (1, m, n, product.groups * k)
        else:
            makes(place, _DOTS[2], Role.CONTRACTION, written, size)
            gemm = (product.groups, m, n, k)
        columns["work_gemm"][item] = entries.gemms.setdefault(gemm, len(entries.gemms))
        columns["work_flops"][item] = 2 * prod(gemm)
    owner = row_of_entry(graph.work_ptr)
    kept = np.flatnonzero(worked)
    works = {name: columns.pop(name) for name in WORK_COLUMNS}
    tables = replace(graph.tables, types=tuple(entries.types), gemms=tuple(entries.gemms))
    edited = replace(graph, **columns, **works, tables=tables)
    return replace(
        edited,
        operand_ptr=pointer(np.array([len(row) for row in operands], dtype=np.int64)),
        operand=np.array([value for row in operands for value in row], dtype=np.int64),
        work_ptr=pointer(np.bincount(owner[kept], minlength=len(graph))),
        **gathered(edited, WORK_COLUMNS, kept),
    )
