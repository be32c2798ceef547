"""FLOPs of ops that have no lowering, by formulas.

The idea: the arithmetic of a kernel per window, place or matrix is known though it is not written
as StableHLO.  A formula is a function of the call and its arguments, tensors as ``Operand``; counts
are of elementary operations (an exponential is one).

    FORMULAS["linalg_cholesky_ex"](call, [matrices])    # n^3 / 3 per matrix
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from flint.cost.dense_work import FACTORISATIONS, of_matrices
from flint.frontends.torch.lowerings.calls import Call

#: FLOPs of a call with positional arguments.
Formula = Callable[[Call, list[Any]], float]


def _of_matrices(formula: Callable[[int, int], float]) -> Formula:
    return lambda call, args: float(of_matrices(formula, args[0].shape))


def _solve(call: Call, args: list[Any]) -> float:
    *_, n = args[0].shape
    return float(FORMULAS["linalg_lu_factor_ex"](call, args) + 2 * n * math.prod(args[1].shape))


def _triangular(call: Call, args: list[Any]) -> float:
    return float(args[1].shape[-1] * math.prod(args[0].shape))


def _two_triangular(call: Call, args: list[Any]) -> float:
    """Right-hand sides [..., n, k] first, then the factor [..., n, n]."""
    return float(2 * math.prod(args[0].shape) * args[1].shape[-1])


def _adaptive(call: Call, args: list[Any]) -> float:
    """An addition per element of a window, some being in two; and a division."""
    backward = call.base.endswith("backward")
    whole, windows = (args[1].shape, args[0].shape) if backward else (args[0].shape, call.shape)
    dims = 3 if "3d" in call.base else 2
    sizes = 1
    for size, out in zip(whole[-dims:], windows[-dims:], strict=True):
        sizes *= sum(-(-(at + 1) * size // out) - at * size // out for at in range(out))
    return float(math.prod(whole[:-dims]) * (sizes + math.prod(windows[-dims:])))


def _sampled(call: Call, args: list[Any]) -> float:
    """Bilinear, per channel and corner (GridSampler.cu): a product and a sum into the input's
    gradient, and into that of every coordinate the other weights' products, a product and a sum."""
    grad, grid = args[0].shape, args[2].shape
    dims = grid[-1]
    return float(math.prod(grad) * 2**dims * (2 + dims * (dims + 2)))


def _ctc(call: Call, args: list[Any]) -> float:
    """13 per state of the lattice: a sum of three logarithms (LossCTC.cu)."""
    return 13.0 * math.prod(call.targets[1].shape)


def _ctc_backward(call: Call, args: list[Any]) -> float:
    """13 per state for the other direction, 9 for a sum of logarithms, 6 per class."""
    return float(22 * math.prod(args[6].shape) + 6 * math.prod(args[1].shape))


def _distances(each: int) -> Formula:
    """Per pair of rows and dim: a difference, its power, a sum; backward (rows are the second and
    third argument) a difference, a product, a quotient, a sum (DistanceKernel.cu)."""

    def formula(call: Call, args: list[Any]) -> float:
        first, second = args[each - 3].shape, args[each - 2].shape
        return float(each * math.prod(first) * second[-2])

    return formula


FORMULAS: dict[str, Formula] = {
    "_cdist_forward": _distances(3),
    "_cdist_backward": _distances(4),
    **{name: _of_matrices(formula) for name, formula in FACTORISATIONS.items()},
    "linalg_lu_solve": lambda call, args: _two_triangular(call, [args[2], args[0]]),
    "_linalg_solve_ex": _solve,
    "linalg_solve_triangular": _triangular,
    "cholesky_solve": _two_triangular,
    "_cholesky_solve_helper": _two_triangular,
    **dict.fromkeys(  # only move elements
        (
            "masked_scatter_backward", "diagonal_backward", "diagonal_scatter", "as_strided_copy",
            "as_strided_scatter", "lu_unpack",
        ),
        lambda *_: 0.0,
    ),
    **dict.fromkeys(
        (
            "_adaptive_avg_pool2d", "_adaptive_avg_pool3d", "_adaptive_avg_pool2d_backward",
            "_adaptive_avg_pool3d_backward", "adaptive_max_pool2d", "adaptive_max_pool3d",
        ),
        _adaptive,
    ),
    "grid_sampler_2d_backward": _sampled,
    "grid_sampler_3d_backward": _sampled,
    "_ctc_loss": _ctc,
    "_ctc_loss_backward": _ctc_backward,
}  # fmt: skip
