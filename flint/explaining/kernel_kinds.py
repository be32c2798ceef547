"""Kinds of a device's kernels, as HolisticTraceAnalysis counts them.

kind_of("ncclDevKernel_AllReduce_Sum_f32") is Kind.COMMUNICATION
"""

from __future__ import annotations

import re
from enum import IntEnum
from typing import Final

_COMMUNICATION: Final = re.compile(r"nccl.*Kernel")
_MEMORY: Final = re.compile(r"Memcpy|Memset|dma")
_NO_COMPUTE: Final = re.compile(r"(nccl.*Kernel)|(.*(Memcpy)|(Memset))|(.*Sync)")


class Kind(IntEnum):
    """Kinds of kernels, with HTA's names."""

    COMPUTATION = 0
    COMMUNICATION = 1
    MEMORY = 2
    OTHER = 3


def kind_of(name: str) -> Kind:
    """The kind of a kernel by its name alone, as in HTA."""
    if _COMMUNICATION.match(name):
        return Kind.COMMUNICATION
    if _MEMORY.match(name):
        return Kind.MEMORY
    return Kind.OTHER if _NO_COMPUTE.match(name) else Kind.COMPUTATION
