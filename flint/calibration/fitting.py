"""Fitting: an accelerator's curves from measured kernels, half of them held out.

The idea: kernels of one class and type share a curve of at most three numbers (latency, bandwidth,
efficiency), fitted by least squares of log(predicted / measured) with a loss that grows slowly, so
that a few odd kernels do not dominate. The layout of memory and the overlap of loading and
computing are chosen from short lists. Curves are fitted to every other kernel of a class, in the
order of a hash of its description, so that the halves do not depend on the file's order; the other
half shows how good the curve is.

    calibration = calibrate(read_kernels(Path("microbench.csv")), load_accelerator("tpu-v4"))
    calibration.groups[0].held_out.median
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

from flint.calibration.kernels import MeasuredKernel, as_graph
from flint.cost.curves import moved_bytes, seconds_on
from flint.cost.hardware import Accelerator, Curve, System
from flint.cost.kernels import kernel_seconds, product_seconds
from flint.cost.roofline import Seconds
from flint.errors import FlintError

#: Memory tiles that are tried: none, or TPU registers of 8 x 128 words, for half words 16 x 128.
_LAYOUTS: Final = ((1, 1), (8, 128), (16, 128))
#: How far loading and computing overlap: not at all, somewhat, nearly fully.
_OVERLAPS: Final = (1.0, 2.0, 8.0)
#: Errors above this share count less and less.
_ODD: Final = 0.1
#: Kernels that a curve needs per fitted number: fewer are too few when half is held out.
_PER_NUMBER: Final = 4


@dataclass(frozen=True, slots=True)
class Residuals:
    """Errors of predictions, predicted / measured - 1.

    Attributes:
        count: number of kernels.
        median, ninetieth: percentiles of the absolute errors.
        largest: the largest error, with its sign.
    """

    count: int
    median: float
    ninetieth: float
    largest: float


@dataclass(frozen=True, eq=False, slots=True)
class Group:
    """Kernels of one class and type.

    Attributes:
        curve: fitted to half of them.
        kernels: all, in the file's order.
        fitted: which of them it was fitted to, shape [kernels].
        predicted: seconds from the curve, shape [kernels].
        fit, held_out: errors on both halves.
        before: errors on the held-out half with the previous description.
    """

    curve: Curve
    kernels: tuple[MeasuredKernel, ...]
    fitted: NDArray[np.bool_]
    predicted: Seconds
    fit: Residuals
    held_out: Residuals
    before: Residuals


@dataclass(frozen=True, slots=True)
class Calibration:
    """The result of fitting a file of measured kernels.

    Attributes:
        groups: by class and type, in the file's order.
        left_out: (class, type, kernels) with too few kernels.
    """

    groups: tuple[Group, ...]
    left_out: tuple[tuple[str, str, int], ...]


def calibrate(kernels: Sequence[MeasuredKernel], accelerator: Accelerator) -> Calibration:
    """Curves for every class and type with enough kernels.

    Args:
        kernels: measured kernels.
        accelerator: peaks, tiles and units; its own curves are ignored.

    Raises:
        FlintError: no class and type has enough kernels.
    """
    base = replace(accelerator, curves=())
    found: defaultdict[tuple[str, str], list[MeasuredKernel]] = defaultdict(list)
    for kernel in kernels:
        found[kernel.kind, kernel.dtype].append(kernel)
    groups, left_out = [], []
    for (kind, dtype), members in found.items():
        numbers = 3 if kind == "matmul" else 2
        alike = len({_description(kernel) for kernel in members}) == 1  # none is held out
        if len(members) < _PER_NUMBER * numbers or alike:
            left_out.append((kind, dtype, len(members)))
        else:
            groups.append(_group(kind, dtype, members, base))
    if not groups:
        raise FlintError(
            f"too few kernels of every class and type: a curve needs {3 * _PER_NUMBER} products, "
            f"or {2 * _PER_NUMBER} other kernels, of one type; there are {_counted(left_out)}"
        )
    return Calibration(tuple(groups), tuple(left_out))


def _counted(left_out: Sequence[tuple[str, str, int]]) -> str:
    return ", ".join(f"{count} of {kind} in {dtype}" for kind, dtype, count in left_out) or "none"


def _group(kind: str, dtype: str, kernels: Sequence[MeasuredKernel], base: Accelerator) -> Group:
    graph = as_graph(kernels)
    measured = np.array([kernel.seconds for kernel in kernels])
    fitted = _halves(kernels)
    arithmetic = product_seconds(graph, base)
    overlaps = _OVERLAPS if kind == "matmul" else _OVERLAPS[:1]
    best: tuple[float, Curve, Seconds] | None = None
    for layout, overlap in product(_LAYOUTS, overlaps):
        moved = moved_bytes(graph, layout)
        shape = Curve(kind, dtype, 0.0, 1.0, 1.0, overlap, layout)
        cost, curve = _fit(shape, arithmetic[fitted], moved[fitted], measured[fitted], base)
        if best is None or cost < best[0]:
            best = cost, curve, seconds_on(curve, arithmetic, moved)
    assert best is not None
    _, curve, predicted = best
    errors = predicted / measured - 1
    system = System("", "", base, ())
    before = kernel_seconds(graph, system) / measured - 1
    held_out = residuals(errors[~fitted])
    return Group(
        replace(curve, error=held_out.median), tuple(kernels), fitted, predicted,
        residuals(errors[fitted]), held_out, residuals(before[~fitted]),
    )  # fmt: skip


def _description(kernel: MeasuredKernel) -> str:
    return f"{kernel.op} {kernel.shapes} {kernel.result}"


def _halves(kernels: Sequence[MeasuredKernel]) -> NDArray[np.bool_]:
    """Every other kernel in the order of a hash; kernels with the same description are in the same
    half.
    """
    names = [_description(kernel) for kernel in kernels]
    order = sorted(set(names), key=lambda name: hashlib.sha256(name.encode()).digest())
    chosen = set(order[::2])
    return np.array([name in chosen for name in names])


def _fit(
    shape: Curve, arithmetic: Seconds, moved: Seconds, measured: Seconds, base: Accelerator
) -> tuple[float, Curve]:
    """The remaining cost, and the curve with its numbers."""
    multiplies = bool((arithmetic > 0).any())
    start = [measured.min() / 2, base.memory_bandwidth * base.kernel.memory_efficiency]
    start += [base.kernel.matmul_efficiency] * multiplies

    def curve(logarithms: Seconds) -> Curve:
        latency, bandwidth, *efficiency = np.exp(logarithms).tolist()
        return replace(
            shape, latency=latency, bandwidth=bandwidth,
            efficiency=efficiency[0] if efficiency else 1.0,
        )  # fmt: skip

    def errors(logarithms: Seconds) -> Seconds:
        difference: Seconds = np.log(seconds_on(curve(logarithms), arithmetic, moved) / measured)
        return difference

    # Far beyond any device: numbers stay finite if the kernels do not determine one of them.
    low = np.log([1e-12, 1e6, 1e-6][: len(start)])
    high = np.log([1.0, 1e16, 1e3][: len(start)])
    found = least_squares(
        errors, np.clip(np.log(start), low, high), bounds=(low, high), loss="soft_l1", f_scale=_ODD
    )
    return float(found.cost), curve(found.x)


def residuals(errors: Seconds) -> Residuals:
    """Statistics of some errors."""
    sizes = np.abs(errors)
    return Residuals(
        count=len(errors),
        median=float(np.median(sizes)),
        ninetieth=float(np.quantile(sizes, 0.9)),
        largest=float(errors[int(np.argmax(sizes))]),
    )
