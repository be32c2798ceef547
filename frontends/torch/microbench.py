"""Times of single ops on PyTorch's accelerator, or on the CPU where there is none.

The idea: as in ``frontends/jax/microbench.py``: calls in a row, and the fastest of a few rows.

    device, seconds = time_kernels(benchmarks, repeats=20)
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import torch

from flint.calibration.benchmarks import Benchmark

_OPS: Final[dict[str, Callable[..., Any]]] = {
    "matmul": torch.matmul,
    "add": torch.add,
    "reduce_sum": lambda x: torch.sum(x, dim=-1),
    "copy": torch.clone,
}
_TYPES: Final = {"f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32}
#: Rows of calls.
_ROWS: Final = 3


def device() -> str:
    """The device that the ops run on."""
    if torch.cuda.is_available():
        return str(torch.cuda.get_device_name())
    return "cpu"


def time_kernels(benchmarks: Sequence[Benchmark], repeats: int) -> Iterator[float]:
    """Seconds of each op, one after another.

    Args:
        benchmarks: what to time.
        repeats: calls in a row.
    """
    place = "cuda" if torch.cuda.is_available() else "cpu"
    with torch.inference_mode():
        for item in benchmarks:
            run = _OPS[item.op]
            kind = _TYPES[item.dtype]
            operands = [torch.ones(shape, dtype=kind, device=place) for shape in item.operands]
            run(*operands)
            yield min(_row(run, operands, repeats, place) for _ in range(_ROWS))


def _row(run: Callable[..., Any], operands: list[Any], repeats: int, place: str) -> float:
    _wait(place)
    start = time.perf_counter()
    for _ in range(repeats):
        run(*operands)
    _wait(place)
    return (time.perf_counter() - start) / repeats


def _wait(place: str) -> None:
    if place == "cuda":
        torch.cuda.synchronize()
