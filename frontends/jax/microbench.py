"""Times of single ops on JAX's default device.

The idea: an op is compiled once and called many times in a row; the device works through the calls
while the host continues, so that the time per call is the kernel's if that is longer than the
host's time for a call.  The fastest of a few such rows counts, as the least disturbed.

    device, seconds = time_kernels(benchmarks, repeats=20)
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import jax
import jax.numpy as jnp

from flint.calibration.benchmarks import Benchmark

_OPS: Final[dict[str, Callable[..., Any]]] = {
    "matmul": jnp.matmul,
    "add": jnp.add,
    "reduce_sum": lambda x: jnp.sum(x, axis=-1),
    "copy": jnp.copy,
}
_TYPES: Final = {"f16": jnp.float16, "bf16": jnp.bfloat16, "f32": jnp.float32}
#: Rows of calls.
_ROWS: Final = 3


def device() -> str:
    """The device that the ops run on."""
    found = jax.devices()[0]
    return f"{found.device_kind} ({found.platform})"


def time_kernels(benchmarks: Sequence[Benchmark], repeats: int) -> Iterator[float]:
    """Seconds of each op, one after another.

    Args:
        benchmarks: what to time.
        repeats: calls in a row.
    """
    for item in benchmarks:
        run = jax.jit(_OPS[item.op])
        operands = [jnp.ones(shape, _TYPES[item.dtype]) for shape in item.operands]
        run(*operands).block_until_ready()
        yield min(_row(run, operands, repeats) for _ in range(_ROWS))


def _row(run: Callable[..., Any], operands: list[Any], repeats: int) -> float:
    start = time.perf_counter()
    for _ in range(repeats):
        result = run(*operands)
    result.block_until_ready()
    return (time.perf_counter() - start) / repeats
