"""FLOPs of Fourier transforms and of dense linear algebra, by shapes.

The idea: a factorisation of a matrix has a number of FLOPs by its two sides, of which the leading
terms are in Golub and Van Loan, Matrix Computations, 4th ed.: Cholesky (4.2.5), LU (3.2.8), QR
(5.2.2), symmetric eigenvalues with vectors (8.3.5), SVD with thin factors (8.6.4).  Captures and
recorded ops use the same numbers; a transform counts as in ``flint.cost.op_work``, dim by dim.

    FACTORISATIONS["linalg_lu_factor_ex"](30, 30)       # 18000 = 2 / 3 x 30^3
    FORMULAS["_fft_r2c"]([[((4, 8), "f32")]], [None, [1]])
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any, Final

from flint.cost.op_work import fft_flops
from flint.cost.recorded_op import Arguments, Formula, Items
from flint.graph.work import Unit, WorkItem

#: FLOPs of one matrix by its longer side m and its shorter side n.
FACTORISATIONS: Final[dict[str, Callable[[int, int], float]]] = {
    **dict.fromkeys(("linalg_cholesky_ex", "cholesky"), lambda _, n: n**3 / 3),
    # The inverse of the factor (n^3 / 3), and its product with its transpose (LAPACK's potri).
    "cholesky_inverse": lambda _, n: 2 * n**3 / 3,
    "linalg_inv_ex": lambda _, n: 2 * n**3,
    **dict.fromkeys(
        ("linalg_lu_factor_ex", "_linalg_slogdet", "_linalg_det"),
        lambda m, n: m * n**2 - n**3 / 3,
    ),
    # The factor R, and as much again for the columns of Q.
    "linalg_qr": lambda m, n: 2 * (2 * m * n**2 - 2 * n**3 / 3),
    "_linalg_eigh": lambda _, n: 9 * n**3,
    "_linalg_svd": lambda m, n: 6 * m * n**2 + 20 * n**3,
}


def of_matrices(formula: Callable[[int, int], float], shape: Sequence[int]) -> float:
    """FLOPs of a batch of matrices."""
    *lead, rows, columns = shape
    return prod(lead) * formula(max(rows, columns), min(rows, columns))


def _factorised(formula: Callable[[int, int], float]) -> Formula:
    def work(arguments: Arguments, values: Sequence[Any]) -> Items | None:
        shape, dtype = arguments[0][0]
        return (WorkItem(Unit.VECTOR, dtype or "f32", round(of_matrices(formula, shape))),)

    return work


def _transformed(arguments: Arguments, values: Sequence[Any]) -> Items | None:
    """A transform over the dims of the second argument, between real or complex numbers.

    One from real numbers begins with the last dim, of which it keeps half; one to real numbers
    ends with it, and its length is that of the result.
    """
    shape, dtype = list(arguments[0][0][0]), arguments[0][0][1]
    dims = [dim % len(shape) for dim in values[1]]
    from_real, to_real = not dtype.startswith("complex"), isinstance(values[3], int)
    to_real &= not isinstance(values[3], bool)
    flops = 0
    for dim in dims[::-1] if from_real else dims:
        length = values[3] if to_real and dim == dims[-1] else shape[dim]
        flops += fft_flops(prod(shape), (length,))
        if from_real and dim == dims[-1] and values[3]:
            shape[dim] = shape[dim] // 2 + 1
    return (WorkItem(Unit.VECTOR, dtype or "f32", flops),)


#: Transforms, whose dims are values.
TRANSFORMS: Final = frozenset({"_fft_c2c", "_fft_r2c", "_fft_c2r"})

FORMULAS: Final[dict[str, Formula]] = {
    **{name: _factorised(formula) for name, formula in FACTORISATIONS.items()},
    **dict.fromkeys(TRANSFORMS, _transformed),
}
