"""Conversions behind transposed products, which XLA's compiler has in front of the transposes.

The idea: a product that sums up in f32 is transposed and then converted to the program's narrower
type, as in the gradient of attention's queries.  The transpose is a matter of layout, and what is
copied for it is copied after the op that reads it, if that computes element by element
(``MoveCopyToUsers``).  So the product's kernel writes the narrower type:

    convert bf16 (transpose (dot a, b))        transpose (convert bf16 (dot a, b))

It does if nothing else reads the product or the transpose.

Source: ``move_copy_to_users.cc`` of openxla/xla (2026).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from flint.graph.graph import WORK_COLUMNS, NodeKind, WorkloadGraph
from flint.graph.tensor_types import TensorType, tensor_type
from flint.graph.work import Role
from flint.mesh.ragged import pointer, row_of_entry
from flint.passes.columns import gathered

_SWAPPED = ("op", "role", "source", "bytes_read", "bytes_written", "bytes_aliased")


def converted_first(graph: WorkloadGraph, types: dict[TensorType, int]) -> WorkloadGraph:
    """One block whose products are converted before they are transposed.

    Args:
        graph: the block.
        types: all types of the program, by number; new ones are added.
    """
    found = _found(graph)
    if not found:
        return graph
    columns = {name: getattr(graph, name).copy() for name in _SWAPPED}
    result_type = graph.result_type.copy()
    owner = row_of_entry(graph.work_ptr)
    for turn, conversion in found:
        for column in columns.values():
            column[[turn, conversion]] = column[[conversion, turn]]
        source = graph.type_of(int(graph.operands_of(turn)[0]))
        made = graph.type_of(graph.inputs + int(graph.result_ptr[conversion]))
        narrow = tensor_type(source.shape, made.dtype)
        result_type[graph.result_ptr[turn]] = types.setdefault(narrow, len(types))
        for node, read in ((turn, source.bytes), (conversion, made.bytes)):
            columns["bytes_read"][node], columns["bytes_written"][node] = read, made.bytes
        mine, other = owner == turn, owner == conversion
        owner[mine], owner[other] = conversion, turn
    items = np.argsort(owner, kind="stable")
    return replace(
        graph, **columns, result_type=result_type,
        tables=replace(graph.tables, types=tuple(types)),
        work_ptr=pointer(np.bincount(owner, minlength=len(graph))),
        **gathered(graph, WORK_COLUMNS, items),
    )  # fmt: skip


def _found(graph: WorkloadGraph) -> list[tuple[int, int]]:
    """Transposes of products and the conversions to narrower types behind them."""
    names = graph.tables.ops
    turns, converts, dots = (
        np.array([name == wanted for name in names] or [False])[graph.op]
        for wanted in ("transpose", "convert", "dot_general")
    )
    free = (np.diff(graph.order_ptr) == 0) & (np.diff(graph.result_ptr) == 1)
    free[graph.order_node] = False
    free &= graph.kind == NodeKind.COMPUTE
    uses = np.bincount(np.concatenate([graph.operand, graph.outputs]), minlength=graph.values)
    found = []
    for node in np.flatnonzero(converts & free & (graph.role == Role.ELEMENTWISE)).tolist():
        value = int(graph.operands_of(node)[0])
        turn = int(graph.producer[value])
        if turn < 0 or not turns[turn] or not free[turn] or uses[value] > 1:
            continue
        source = int(graph.operands_of(turn)[0])
        product = int(graph.producer[source])
        made = graph.type_of(graph.inputs + int(graph.result_ptr[node]))
        narrows = made.bytes < graph.type_of(value).bytes
        if narrows and product >= 0 and dots[product] and uses[source] == 1:
            found.append((turn, node))
    return found
