"""Results of products whose heads a batched product wants in front: a kernel transposes them.

The idea: a projection writes tokens [batch, length, heads x size]; attention multiplies for each
head, and XLA's kernels of batched products read the batch in front.  The reshape between the two
leaves no node, but sizes tell: no number of leading dims has as many elements as the batch.  Where
a kernel writes the operand anyway (a part of a merged product, an elementwise op), it writes it so.

    q = x wq [4, 768, 384];  scores of 24 heads        q -> transpose [4, 6, 768, 64]

Source: ``dot_decomposer.cc``, ``gpu/transforms/layout_assignment.cc`` of openxla/xla (2026).
"""

from __future__ import annotations

import itertools
import operator

import numpy as np

from flint.graph.graph import WorkloadGraph
from flint.graph.work import Role
from flint.passes.xla.orders import PRODUCT
from flint.passes.xla.transposes import Copy, with_transposes


def turned_heads(graph: WorkloadGraph) -> WorkloadGraph:
    """One block with the kernels that bring heads in front; its table of ops has that of copies."""
    found: dict[int, Copy] = {}
    named = np.array([name == PRODUCT for name in graph.tables.ops], dtype=bool)[graph.op]
    named &= (graph.role == Role.CONTRACTION) & (np.diff(graph.work_ptr) == 1)
    for node in np.flatnonzero(named).tolist():
        number = int(graph.work_gemm[graph.work_ptr[node]])
        batch, m, n, k = graph.tables.gemms[number] if number >= 0 else (1, 1, 1, 1)
        if batch == 1 or min(m, n) == 1:
            continue
        first = int(graph.operand_ptr[node])
        for side, (value, rows) in enumerate(
            zip(graph.operands_of(node).tolist(), (m, n), strict=False)
        ):
            shape, maker = graph.type_of(value).shape, int(graph.producer[value])
            whole = graph.type_of(value).elements == batch * rows * k
            leading = itertools.accumulate(shape, operator.mul)
            if whole and maker >= 0 and named[maker] and batch not in leading:
                found.setdefault(value, Copy([])).entries.append(first + side)
    return with_transposes(graph, found)
