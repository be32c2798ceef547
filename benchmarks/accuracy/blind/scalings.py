"""How libraries cast what products narrower than 16 bits multiply: bytes moved per element.

The bytes follow from what the library's kernels do, not from times; of a value that is cast first,
and again for another dim that products sum over:

    tensorwise   read for the largest value, read again and written: 2 + 2 + 1; then 2 + 1
    rowwise      a row is read once, its largest value found and written on the chip: 2 + 1; along
                 the other dim largest values need a pass of their own: 2 + 2 + 1
    torchao      the same two as PyTorch's compiler makes them.  What sums along the other dim is
                 written transposed, by kernels at ``TURNING`` of the others' rate (a fast product
                 wants both operands with the sum in one piece).  Rowwise products of the backward
                 pass, without fast accumulation, are scaled by a kernel of their own: 2 + 2 for
                 each element of their results (``addmm_float8_unwrapped`` in its float8_ops.py).
                 Largest values along the other dim of at least ``WIDE`` columns for each
                 multiprocessor are found, and the values cast, by one kernel that goes down the
                 columns: 2 + 2 + 1 at ``DOWN`` of the rate
    eager        torchao's ``float8nocompile``, tensorwise: no compiler makes one of the casts that
                 products share.  Every product casts its operands: 2 for the largest value, then
                 2 + 1 by a kernel that writes another layout, at ``DOWN`` of the rate.  Such a
                 kernel writes both layouts of a gradient, 2 + 1 + 1, and of an input whose block
                 is not checkpointed; others are cast twice, first as they lie
    delayed      Transformer Engine writes the transpose in the same kernel: 2 + 1 + 1, at
                 ``TRANSPOSING`` of the bandwidth; then nothing
    frozen       delayed, of weights that are not trained: no product sums over tokens, nothing is
                 transposed (``columnwise=backward_needs_input`` in its ``module/linear.py``): 2 + 1
    delayed_xla  one kernel reads, finds the largest value and writes: 2 + 1; another transposes it,
                 as Hopper's products sum over what lies in one piece: 1 + 1
    static       XLA casts where the value is made and writes it beside: 1
    blocks       as rowwise, and a scale for every 32 (MXFP8, MXFP4) or 16 (NVFP4) elements; a block
                 lies in one row or column, so that each dim takes one pass.  Transformer Engine's
                 kernel for MXFP8 writes both dims in one (``cast_mxfp8_2D_kernel`` with rowwise and
                 columnwise scaling): 2 + 1 + 1.  NVFP4's tensor has a scale too, whose largest
                 value takes a pass of its own (Transformer Engine): 2
    torchao nvfp4  Triton kernels that write both dims, of values turned by Hadamard's matrix,
                 rounded at random for gradients, in squares for weights (``nvfp4_linear.py`` at
                 cb76f29): bound by what they compute, not by what they move: ``HADAMARD``
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final


@dataclass(frozen=True, slots=True)
class Scaling:
    """How a library multiplies narrow numbers.

    Attributes:
        dtype: of the products.
        first: bytes moved per element of a value that is cast.
        again: the same for each further dim that products sum over.
        gradients: of weights are narrow too.
        transposes: the kernel that casts writes the transpose too.
        rescaled: bytes moved per element of what the backward pass's products make.
        wide: in the place of ``again`` for a cast down ``WIDE`` columns for each multiprocessor or
            more; 0: as of others.
        gradient: as ``first``, of what the backward pass casts first; None: as ``first``.
        weight: the same of weights, which are what ``tokens`` are multiplied by.
        apart: every product casts its operands by itself; ``again`` is of what a forward product
            cast, and ``gradient`` has both layouts.
    """

    dtype: str
    first: float
    again: float
    gradients: bool = True
    transposes: bool = False
    rescaled: float = 0.0
    wide: float = 0.0
    gradient: float | None = None
    weight: float | None = None
    apart: bool = False


#: Maker -> share of the bandwidth that casts which write the transpose reach.  An H100 takes
#: 51.5 us for 16.8 M elements and 24.6 us for 9.4 M (NVIDIA/TransformerEngine, pull request 101),
#: an MI300X 54.7 us for 25.2 M and 39.5 us for 16.8 M (ROCm/TransformerEngine, pull request 89).
TRANSPOSING: Final = {"NVIDIA": 0.42, "AMD": 0.33}
#: Rate of Inductor's casts to f8 that write the transpose, over that of its other kernels beside
#: products in f8: 1.4 and 2.2 TB/s on an H100 (pytorch/pytorch, issue 133242).
TURNING: Final = 0.64
#: Columns for each multiprocessor from which Inductor reduces along them in one kernel
#: (``num_splits`` in PyTorch's ``_inductor/ir.py``), and the rate of such a kernel that writes the
#: transpose, over that of others: 0.6 to 0.7 and 2.0 to 2.2 TB/s on an H100, since it reads down
#: the columns (pytorch/pytorch, issue 149982).
WIDE: Final = 64
DOWN: Final = 0.31
#: Bytes that other kernels of a GB200 (5.92 TB/s) move while torchao's of NVFP4 cast an element:
#: of activations, gradients and weights.  What 2,048 x 28,672 take longer than 2,048 x 14,336
#: (its ``benchmarks/prototype/nvfp4_training/README.md`` at cb76f29): 14.3 us the largest values,
#: then 51.4 us rounding to nearest, 75.5 us at random; 108.5 us weights, 2 bytes for their largest.
HADAMARD: Final = tuple(
    us * 5.92e6 / (2048 * 14336) + more
    for us, more in ((14.3 + 51.4, 0.0), (14.3 + 75.5, 0.0), (108.5, 2.0))
)
#: ``float8nocompile``'s kernels that write another layout are taken to be as slow.  torchao's
#: benchmark of 16 rows and 4,096 x 4,096 in f32 (pull request 1497) takes 386 us: beside largest
#: values, the sum of gradients and 30 us of others, its two casts of the weight have 0.23 (an H100
#: of 700 W) or 0.39 (500 W) of the rate.
_EAGER: Final = Scaling(
    "f8E4M3FN", 2 + 4 / DOWN, 0, gradient=2 + 4 / DOWN, weight=2 + 3 / DOWN, apart=True
)
#: Rate of torchao's casts to MXFP8 that write the transpose, over that of others, 5.92 TB/s: on a
#: B200 939.5 M elements take 670.7 us (its ``prototype/moe_training/README.md``, dim 1).
DIM1: Final = 0.72
#: Name -> scaling.
SCALINGS: Final = {
    "tensorwise": Scaling("f8E4M3FN", 5, 3),
    "rowwise": Scaling("f8E4M3FN", 3, 5),
    "rowwise_gw_hp": Scaling("f8E4M3FN", 3, 5, gradients=False),
    "torchao tensorwise": Scaling("f8E4M3FN", 5, 3 / TURNING),
    "torchao rowwise": Scaling("f8E4M3FN", 3, 2 + 3 / TURNING, rescaled=4, wide=5 / DOWN),
    "torchao rowwise_gw_hp": Scaling("f8E4M3FN", 3, 2 + 3 / TURNING, gradients=False),
    "eager": replace(_EAGER, first=5, again=2 + 3 / DOWN),
    "eager, kept": _EAGER,
    "delayed": Scaling("f8E4M3FN", 4, 0, transposes=True),
    "delayed_frozen": Scaling("f8E4M3FN", 3, 3),
    "delayed_xla": Scaling("f8E4M3FN", 3, 2),
    "static": Scaling("f8E4M3FN", 1, 1),
    "mxfp8": Scaling("f8E4M3FN", 3 + 1 / 32, 1 + 1 / 32),
    "torchao mxfp8": Scaling("f8E4M3FN", 3 + 1 / 32, (3 + 1 / 32) / DIM1),
    "nvfp4": Scaling("f4E2M1FN", 4.5 + 1 / 16, 2.5 + 1 / 16),
    "torchao nvfp4": Scaling("f4E2M1FN", HADAMARD[0], 0, gradient=HADAMARD[1], weight=HADAMARD[2]),
    "mxfp4": Scaling("f4E2M1FN", 2.5 + 1 / 32, 2.5 + 1 / 32),
    "int8": Scaling("i8", 3, 3),
}
