"""Bytes that cross the boundaries of kernels: each outside value once, as far as members access it,
and results that are used outside.

    read, written, aliased = boundary_bytes(seen, kernel, kernels)
"""

from __future__ import annotations

import numpy as np

from flint.graph.graph import Ints
from flint.graph.work import Role
from flint.mesh.ragged import row_of_entry, total_by_row
from flint.passes.columns import distinct
from flint.passes.contract import surviving
from flint.passes.rematerialize import SeenThrough, is_view


def boundary_bytes(seen: SeenThrough, kernel: Ints, kernels: int) -> tuple[Ints, Ints, Ints]:
    """Bytes that each kernel reads, writes and aliases, shape [kernels] each."""
    graph = seen.graph
    member = np.flatnonzero(kernel >= 0)
    alone = np.bincount(kernel[member], minlength=kernels)[kernel] == 1
    # A view that is a separate kernel moves nothing; inside a kernel, or for a value that the
    # kernel makes, its bytes are written.
    passes = is_view(graph) & (~alone | seen.changed)
    written = np.where(passes, graph.bytes_aliased, graph.bytes_written)
    aliased = np.where(passes, 0, graph.bytes_aliased)

    owner = row_of_entry(graph.result_ptr)
    sizes = graph.value_bytes[graph.inputs :]
    leaving = total_by_row(sizes * surviving(graph, kernel), owner, len(graph))
    total = total_by_row(sizes, owner, len(graph))
    written = np.where(leaving == total, written, np.minimum(written, leaving))
    aliased = np.where(leaving > 0, aliased, 0)

    read = _read_from_outside(seen, kernel, kernels)
    # A single op with unchanged operands keeps its own count (an operand read twice ...).
    own = np.flatnonzero(alone & ~seen.changed & (kernel >= 0))
    read[kernel[own]] = graph.bytes_read[own]
    return (
        read,
        total_by_row(written[member], kernel[member], kernels),
        total_by_row(aliased[member], kernel[member], kernels),
    )


def _read_from_outside(seen: SeenThrough, kernel: Ints, kernels: int) -> Ints:
    """Bytes of outside values that each kernel accesses, each part once, shape [kernels]; a product
    once for each of its operands.
    """
    graph = seen.graph
    reader = kernel[seen.reader]
    maker = graph.producer[seen.value]
    inside = (maker >= 0) & (kernel[maker] == reader)
    outside = np.flatnonzero((reader >= 0) & ~inside)
    side = _sides(seen, kernel)[outside]
    parts, part = distinct(reader[outside], seen.value[outside], seen.part[outside], side)
    most = np.zeros(len(parts), dtype=np.int64)
    np.maximum.at(most, part, seen.accessed[outside])
    reader, value = reader[outside][parts], seen.value[outside][parts]
    first, number = distinct(reader, value, side[parts])
    accessed = total_by_row(most, number, len(first))
    once = np.minimum(accessed, graph.value_bytes[value[first]])
    return total_by_row(once, reader[first], kernels)


def _sides(seen: SeenThrough, kernel: Ints) -> Ints:
    """For which operand of its kernel's product each read is, from 1 on, shape [reads]; else 0."""
    graph = seen.graph
    product = graph.role == Role.CONTRACTION
    side = np.where(product[seen.reader], seen.position + 1, 0)
    makes = np.unique(kernel[product & (kernel >= 0)])
    maker = graph.producer[seen.value]
    inner = (maker >= 0) & (kernel[maker] == kernel[seen.reader])
    inner &= np.isin(kernel[seen.reader], makes)
    of: Ints = np.zeros(len(graph), dtype=np.int64)
    entries = np.flatnonzero(inner)
    for entry in entries[np.argsort(seen.reader[entries], kind="stable")[::-1]].tolist():
        of[maker[entry]] = side[entry] or of[seen.reader[entry]]
    return np.where(side > 0, side, of[seen.reader])
