"""ATen ops as StableHLO: a table from "aten.op.overload" to functions that build the ops.

The idea: one small file per family; importing the package fills the table.

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
    logic,
    loss,
    matmul,
    movement,
    normalisation,
    optimizer,
    pointwise,
    pooling,
    random,
    reduction,
    resampling,
    sorting,
    synchronised,
)
from flint.frontends.torch.lowerings.table import TABLE, lowering_of

__all__ = ["TABLE", "lowering_of"]
