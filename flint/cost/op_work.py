"""FLOP formulas of the ops that need more than a count of elements.

The idea: formulas are plain functions of sizes, separate from op records, so that tests can check
them against loops that count.  Conventions are those of XLA's ``HloCostAnalysis`` for the ops that
it has (dot, convolution, FFT, Cholesky, triangular solve, sort).  The counts of library
factorisations are the standard ones, with their source at each function:

* LAWN 41: Blackford and Dongarra, "Installation Guide for LAPACK", LAPACK Working Note 41,
  appendix C, operation counts (multiplications plus additions).
* GVL: Golub and Van Loan, "Matrix Computations", 4th edition.

    >>> gemm_flops((1, 8, 16, 32))
    8192
"""

from __future__ import annotations

from functools import lru_cache
from math import gcd, isqrt, prod

from flint.errors import FlintError


def gemm_flops(dims: tuple[int, int, int, int]) -> int:
    """FLOPs of a (batch, m, n, k) matrix product, 2 per multiply-add."""
    return 2 * prod(dims)


def block_scaled(dtype: str) -> str:
    """The type that products of narrow floats with a scale per block are computed in."""
    return {"f8": "mxf8", "f6": "mxf8", "f4": "mxf4"}.get(dtype[:2], dtype)


def gemm_dims_from_sizes(
    batch: int, lhs: int, rhs: int, result: int
) -> tuple[int, int, int, int] | None:
    """(batch, m, n, k) of a product known only by its numbers of elements.

    With b = batch: lhs = b m k, rhs = b k n, result = b m n, so that
    k = sqrt(lhs rhs / (result b)), whatever the layouts.

    Returns:
        The dims, or None when no integers fit (the operands are not those of one GEMM).
    """
    if min(batch, lhs, rhs, result) <= 0 or lhs % batch or rhs % batch or result % batch:
        return None
    square, rest = divmod(lhs * rhs, result * batch)
    k = isqrt(square)
    if rest or k * k != square or k == 0 or (lhs // batch) % k or (rhs // batch) % k:
        return None
    return batch, lhs // batch // k, rhs // batch // k, k


@lru_cache(maxsize=4096)
def valid_positions(
    input_size: int,
    kernel_size: int,
    output_size: int,
    stride: int,
    padding_low: int,
    lhs_dilation: int,
    rhs_dilation: int,
) -> int:
    """Pairs (output position, kernel position) of one spatial dim that meet an input element.

    An output position o and a kernel position j meet input element i, 0 <= i < input_size, when
    ``o * stride + j * rhs_dilation - padding_low == i * lhs_dilation``: padding and the holes of a
    dilated input cost nothing.  XLA counts the same with two loops; here the longer one is an
    arithmetic progression, counted at once.
    """
    if min(stride, lhs_dilation, rhs_dilation) <= 0:
        raise FlintError(
            f"strides and dilations of a window must be positive: {stride}, {lhs_dilation}, "
            f"{rhs_dilation}"
        )
    # o * stride and j * rhs_dilation are interchangeable: loop over the shorter.
    inner, inner_step, outer, outer_step = output_size, stride, kernel_size, rhs_dilation
    if inner < outer:
        inner, inner_step, outer, outer_step = outer, outer_step, inner, inner_step
    limit = (input_size - 1) * lhs_dilation
    common = gcd(inner_step, lhs_dilation)
    period = lhs_dilation // common
    # Inner steps after which the position is again on an input element: solve by inverse.
    inverse = pow(inner_step // common, -1, period) if period > 1 else 0
    total = 0
    for position in range(outer):
        offset = position * outer_step - padding_low
        if offset % common:
            continue
        first = max(0, -(offset // inner_step))
        last = min(inner - 1, (limit - offset) // inner_step)
        if last < first:
            continue
        phase = (-(offset // common) * inverse) % period if period > 1 else 0
        total += (last - phase) // period - (first - 1 - phase) // period
    return total


def fft_flops(elements: int, lengths: tuple[int, ...]) -> int:
    """FLOPs of an FFT by XLA's convention.

    For each operand element, 4 multiply-adds (one complex product) times the product over the dims
    of floor(log2(length)).  (The passes of a transform over several dims would add up, not
    multiply; XLA's number is kept so that both agree.)
    """
    return 8 * elements * prod(length.bit_length() - 1 for length in lengths if length > 0)


def sort_flops(elements: int) -> int:
    """Comparisons of a sort by XLA's convention: N ceil(log2 N), N all elements of one operand."""
    return elements * (elements - 1).bit_length() if elements > 1 else 0


def top_k_flops(elements: int, k: int) -> int:
    """Comparisons of a selection of the ``k`` largest: one per element against the smallest kept,
    and ceil(log2 k) to place it in the worst case (a heap of k)."""
    return elements * (1 + (k - 1).bit_length()) if k > 0 else 0


def cholesky_flops(n: int) -> int:
    """LAWN 41, xPOTRF: n^3/3 + n^2/2 + n/6."""
    return (2 * n**3 + 3 * n**2 + n) // 6


def lu_flops(m: int, n: int) -> int:
    """LAWN 41, xGETRF: m n^2 - n^3/3 - n^2/2 + 5n/6 for m >= n, mirrored below."""
    m, n = max(m, n), min(m, n)
    return (6 * m * n**2 - 2 * n**3 - 3 * n**2 + 5 * n) // 6


def qr_flops(m: int, n: int) -> int:
    """LAWN 41, xGEQRF, leading terms: 2 m n^2 - 2/3 n^3 for m >= n, mirrored below."""
    m, n = max(m, n), min(m, n)
    return (6 * m * n**2 - 2 * n**3) // 3


def q_from_reflectors_flops(m: int, n: int, k: int) -> int:
    """LAWN 41, xORGQR, leading terms: 4 m n k - 2 (m + n) k^2 + 4/3 k^3 for k reflectors."""
    return (12 * m * n * k - 6 * (m + n) * k**2 + 4 * k**3) // 3


def symmetric_eigen_flops(n: int, vectors: bool) -> int:
    """GVL section 8.3: symmetric QR about 9 n^3 with vectors, 4/3 n^3 (tridiagonal) without."""
    return 9 * n**3 if vectors else 4 * n**3 // 3


def svd_flops(m: int, n: int, vectors: bool) -> int:
    """GVL section 8.6, Golub-Reinsch: 14 m n^2 + 8 n^3 with thin vectors, 4 m n^2 - 4/3 n^3 without
    (m >= n, mirrored below)."""
    m, n = max(m, n), min(m, n)
    return 14 * m * n**2 + 8 * n**3 if vectors else (12 * m * n**2 - 4 * n**3) // 3


def eigen_flops(n: int, vectors: bool) -> int:
    """GVL section 7.5: real Schur decomposition about 25 n^3, eigenvalues alone 10 n^3."""
    return 25 * n**3 if vectors else 10 * n**3


def hessenberg_flops(n: int) -> int:
    """GVL section 7.4: Hessenberg reduction, 10/3 n^3."""
    return 10 * n**3 // 3


def tridiagonal_flops(n: int) -> int:
    """GVL section 8.3: Householder tridiagonalisation, 4/3 n^3."""
    return 4 * n**3 // 3


def triangular_flops(n: int, elements: int) -> int:
    """LAWN 41, xTRSM: n per right-hand-side element (n^2 times the number of right-hand sides)."""
    return n * elements


def sylvester_flops(m: int, n: int) -> int:
    """GVL section 7.6: triangular Sylvester equation, m n (m + n)."""
    return m * n * (m + n)


def tridiagonal_solve_flops(n: int, right_hand_sides: int) -> int:
    """Elimination of a tridiagonal system: 3 per row (a quotient, a multiply-add), and 5 per row
    and right-hand side (2 forward; multiply-add and quotient backward); no fill by pivoting."""
    return n * (3 + 5 * right_hand_sides)
