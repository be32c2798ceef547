"""The gradient of a maximum over windows, as XLA's GPU compiler computes it.

The idea: no kernel selects and scatters at once.  XLA's ``SelectAndScatterExpander`` writes what is
scattered into, finds the place of each window's element, and scatters the gradients there:

    select_and_scatter x, dy, init      zeros = broadcast_in_dim init
                                        places = reduce_window x
                                        scatter zeros, places, dy

A place is one index per dim, an array of i32 each, here one array with a dim more.  The kernel that
finds them writes the elements, too, which nothing reads (windows of bf16 are windows of f32).

Source: ``select_and_scatter_expander.cc`` of openxla/xla (2026).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np

from flint.graph.graph import WORK_COLUMNS, WorkloadGraph
from flint.graph.tensor_types import TensorType, tensor_type
from flint.graph.work import Role
from flint.mesh.ragged import pointer, row_of_entry
from flint.passes.columns import gathered, lists, repeated

#: The ops that it becomes, with their roles.
STEPS: Final = (
    ("broadcast_in_dim", Role.MOVEMENT),
    ("reduce_window", Role.REDUCTION),
    ("scatter", Role.UPDATE),
)
_SELECTS: Final = "select_and_scatter"
#: Its operands: what windows are of, the gradient of their result, the value to begin with.
_OPERANDS: Final = 3
_INDEX: Final = "i32"


def expanded_windows(graph: WorkloadGraph, types: dict[TensorType, int]) -> WorkloadGraph:
    """One block whose select_and_scatters are the three steps.

    Args:
        graph: the block; its table of ops has ``STEPS`` if it has a select_and_scatter.
        types: all types of the program, by number; new ones are added.
    """
    chosen = np.array([name == _SELECTS for name in graph.tables.ops], dtype=bool)[graph.op]
    chosen &= (np.diff(graph.operand_ptr) == _OPERANDS) & (np.diff(graph.result_ptr) == 1)
    found = np.flatnonzero(chosen)
    if not len(found):
        return graph
    copied, _, last = repeated(graph, np.where(chosen, len(STEPS), 1))
    operands = lists(copied.operand_ptr, copied.operand)
    op, role, made = copied.op.copy(), copied.role.copy(), copied.result_type.copy()
    moved = {
        name: getattr(copied, name).copy()
        for name in ("bytes_read", "bytes_written", "bytes_aliased")
    }
    works = np.ones(len(copied), dtype=bool)
    elements: list[int] = []
    for node in found.tolist():
        scatter = int(last[node])
        zeros, places = scatter - 2, scatter - 1
        image, gradient, initial = operands[scatter]
        source = copied.tables.types[copied.value_type[gradient]]
        whole = copied.tables.types[copied.result_type[copied.result_ptr[scatter]]]
        index = tensor_type((len(source.shape), *source.shape), _INDEX)
        found_in = tensor_type(source.shape, "f32" if source.dtype == "bf16" else source.dtype)
        made[copied.result_ptr[places]] = types.setdefault(index, len(types))
        elements.append(types.setdefault(found_in, len(types)))
        for step, (name, kind) in zip((zeros, places, scatter), STEPS, strict=True):
            op[step], role[step] = copied.tables.plain(name), kind
        values = [copied.inputs + int(copied.result_ptr[step]) for step in (zeros, places)]
        operands[zeros], operands[places] = [initial], [image]
        operands[scatter] = [values[0], values[1], gradient]
        works[[zeros, scatter]] = False
        # What is added to is read, where it is.
        read = int(copied.value_bytes[initial]), int(copied.value_bytes[image])
        for step, sizes in (
            (zeros, (read[0], whole.bytes, 0)),
            (places, (read[1], index.bytes + found_in.bytes, 0)),
            (scatter, (index.bytes + 2 * source.bytes, source.bytes, whole.bytes)),
        ):
            for column, size in zip(moved.values(), sizes, strict=True):
                column[step] = size
    owner = row_of_entry(copied.work_ptr)
    items = np.flatnonzero(works[owner])
    # The second result of the kernels that find places moves all values behind it.
    behind = copied.result_ptr[last[found]]
    operand = np.array([value for row in operands for value in row], dtype=np.int64)
    result_ptr = copied.result_ptr + np.searchsorted(behind, copied.result_ptr, "right")
    operand, outputs = (
        values + np.searchsorted(behind + copied.inputs, values, "right")
        for values in (operand, copied.outputs)
    )
    return replace(
        copied, op=op, role=role, **moved, outputs=outputs, operand=operand,
        result_ptr=result_ptr, result_type=np.insert(made, behind, elements),
        operand_ptr=pointer(np.array([len(row) for row in operands], dtype=np.int64)),
        work_ptr=pointer(np.bincount(owner[items], minlength=len(copied))),
        tables=replace(copied.tables, types=tuple(types)),
        **gathered(copied, WORK_COLUMNS, items),
    )  # fmt: skip
