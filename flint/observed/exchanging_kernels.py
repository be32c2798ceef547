"""Kernels that exchange data between ranks, by their names.

COLLECTIVE_KERNEL.search("ncclDevKernel_AllReduce_Sum_f32")
"""

from __future__ import annotations

import re
from typing import Final

#: Libraries whose collectives an op records; custom all-reduces.
COLLECTIVE_KERNEL: Final = re.compile(
    r"nccl|rccl|oneccl|hccl|msccl|multimem_|cross_device_reduce|(one|two)_?shot_?all_?reduce"
    r"|custom_?all_?reduce|all_?reduce_fusion|quick_?reduce",
    re.IGNORECASE,
)
#: Libraries whose kernels exchange data that no op records (DeepEP, NVSHMEM).
EXCHANGING_KERNEL: Final = re.compile(
    r"deep_?ep\b|\b(deep_ep|dpsk::ep)::|\b(inter|intra)node(_ll)?::|(nv|roc)shmem", re.IGNORECASE
)


def exchanges(name: str) -> bool:
    """Whether a kernel's name is of one of these."""
    return bool(COLLECTIVE_KERNEL.search(name) or EXCHANGING_KERNEL.search(name))
