"""Device memory that no program can use: CUDA's context, NCCL's buffers, JAX's reserve.

The idea: a step fits if there is enough memory for what its framework takes and for what the
runtime takes in addition.  The second part is a few figures with their sources, in
``reserve.toml``, the same for all programs.

    reserve_of(load_system("dgx-h100").accelerator, communicators=2)       # bytes
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any, Final

from flint.cost.description import read_table
from flint.cost.hardware import Accelerator
from flint.cost.units import parse

_FILE: Final = Path(__file__).with_name("reserve.toml")


def reserve_of(accelerator: Accelerator, communicators: int) -> int:
    """Bytes of a device that the runtime takes in addition to a program.

    It is 0 for TPUs: a TPU program's reserve is known for only a few kinds of chips, and is below
    4%.

    Args:
        accelerator: the device.
        communicators: number of NCCL communicators with more than one rank.
    """
    if accelerator.systolic is not None:
        return 0
    context, buffer = (parse(_figure(name), "bytes") for name in ("context", "buffer"))
    return round(context + communicators * int(_figure("channels")) * buffer)


def preallocated(accelerator: Accelerator) -> float:
    """The share of a device that JAX takes by default."""
    return 1.0 if accelerator.systolic is not None else float(_figure("preallocated"))


def _figure(name: str) -> Any:
    figure, _ = _table()[name]
    return figure


@cache
def _table() -> dict[str, Any]:
    return read_table(_FILE)
