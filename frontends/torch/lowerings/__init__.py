"""ATen ops as StableHLO: a table from "aten.op.overload" to functions that build the ops.

The idea: one small file per family; importing the package fills the table.  A kernel is written in
StableHLO or, if PyTorch's rules of types and broadcasting cover most of it, in PyTorch's own ops
(``in_torch``); an op that PyTorch itself decomposes in the same way has no row.

    lowering_of("aten.mm.default")(call, operand, operand)
"""

from __future__ import annotations

from flint.frontends.torch.lowerings import (  # noqa: F401
    activations,
    attention,
    bags,
    complex_numbers,
    convolution,
    creation,
    division,
    foreach,
    fourier,
    index_writes,
    indexing,
    jagged,
    logic,
    loss,
    matmul,
    movement,
    normalisation,
    optimizer,
    pointwise,
    pooling,
    random,
    recurrent,
    reduction,
    resampling,
    scheduled_kernels,
    sorting,
    synchronised,
)
from flint.frontends.torch.lowerings.table import TABLE, lowering_of

__all__ = ["TABLE", "lowering_of"]
