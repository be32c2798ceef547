"""What XLA's GPU compiler fuses into the kernels of products, and what it does not.

The idea: its products are library calls or separate Triton kernels.

- A batched product loads its operands in their layout: a transpose before or after it is a kernel.
- A batched product has no epilogue, nor has one that ends in a kernel which reduces rows.
- The epilogue of any other product or convolution has no exponentials or similar functions, and
  reads nothing of the product's size (only bias, activation), except a value that is added (a
  residual: the library's ``beta``, cuDNN's side input).
- The epilogue of a convolution is one that cuDNN has: a bias, a residual, a rectified activation,
  conversions (``cudnn_fused_conv_rewriter.cc`` of openxla/xla).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from flint.graph.graph import WorkloadGraph
from flint.graph.work import Role, Unit
from flint.mesh.ragged import row_of_entry
from flint.passes.rematerialize import loads, transparent_nodes

#: From a product and the members of a kernel: whether the product may end in it.
Ends = Callable[[int, Sequence[int]], bool]
#: Ops that a sum with a residual may consist of.
_ADDS = ("add", "convert", "reshape", "bitcast")
#: Further ops that may follow a convolution: the bias and rectified activations.
_BEHIND = (*_ADDS, "broadcast_in_dim", "maximum", "clamp")


def batched(graph: WorkloadGraph) -> NDArray[np.bool_]:
    """Batched products, shape [nodes]."""
    many = np.array([sizes[0] > 1 for sizes in graph.tables.gemms] or [False])
    found: NDArray[np.bool_] = np.zeros(len(graph), dtype=bool)
    items = (graph.work_gemm >= 0) & many[graph.work_gemm]
    found[row_of_entry(graph.work_ptr)[items]] = True
    found &= graph.role == Role.CONTRACTION
    return found


def with_rows(graph: WorkloadGraph, again: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Nodes that contain a recomputed reduction of rows, shape [nodes]."""
    found = (again & (graph.role == Role.REDUCTION)).tolist()
    passes = (again | transparent_nodes(graph)).tolist()
    for node, maker in zip(
        graph.consumer.tolist(), graph.producer[graph.operand].tolist(), strict=True
    ):
        if maker >= 0 and found[maker] and passes[maker]:
            found[node] = True
    return np.array(found, dtype=bool)


def operand_loads(graph: WorkloadGraph) -> NDArray[np.bool_]:
    """Nodes that a contraction absorbs, shape [nodes]; for batched ones without transposes."""
    load = loads(graph)
    transposes = np.array([name == "transpose" for name in graph.tables.ops], dtype=bool)[graph.op]
    feeds = batched(graph).tolist()
    takes = load.tolist()
    maker = graph.producer[graph.operand].tolist()
    for entry in np.argsort(graph.consumer, kind="stable")[::-1].tolist():
        made = maker[entry]
        if made >= 0 and takes[made] and feeds[graph.consumer[entry]]:
            feeds[made] = True
    found: NDArray[np.bool_] = load & ~(transposes & np.array(feeds, dtype=bool))
    return found


def xla_epilogues(graph: WorkloadGraph, rows: NDArray[np.bool_]) -> Ends:
    """Whether a product may end in a kernel.

    Args:
        graph: the graph of both.
        rows: nodes that reduce rows, shape [nodes].
    """
    alone = batched(graph)
    elements = [kind.elements for kind in graph.tables.types]
    costly = np.zeros(len(graph), dtype=bool)
    costly[row_of_entry(graph.work_ptr)[graph.work_unit == Unit.TRANSCENDENTAL]] = True
    adds, behind, convolutions = (
        [name in names for name in graph.tables.ops] for names in (_ADDS, _BEHIND, ("convolution",))
    )

    def ends(product: int, members: Sequence[int]) -> bool:
        if alone[product] or (rows | costly)[list(members)].any():
            return False
        if convolutions[graph.op[product]] and not all(behind[graph.op[node]] for node in members):
            return False
        inside = {product, *members}
        size = elements[graph.result_type[graph.result_ptr[product]]]
        large = {
            value
            for node in members
            for value in graph.operand[
                graph.operand_ptr[node] : graph.operand_ptr[node + 1]
            ].tolist()
            if int(graph.producer[value]) not in inside
            and elements[graph.value_type[value]] >= size
        }
        return not large or (len(large) == 1 and all(adds[graph.op[node]] for node in members))

    return ends
