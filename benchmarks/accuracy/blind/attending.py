"""Attention by other kernels than a system's description has.

attending(0.35)(graph, system)         # seconds per node, with FlashAttention 2 on an H100
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from flint.cost.hardware import System
from flint.cost.kernels import Estimator, kernel_seconds
from flint.graph.graph import WorkloadGraph


def attending(share: float) -> Estimator:
    """Kernels whose fused attention reaches a share of the peak; in 8 bits in proportion."""

    def seconds(graph: WorkloadGraph, system: System) -> NDArray[np.float64]:
        accelerator = system.accelerator
        model = accelerator.kernel
        reached = share / model.matmul_efficiency
        narrow = model.narrow_attention_efficiency * reached / model.attention_efficiency
        slower = replace(
            model, attention_efficiency=reached, narrow_attention_efficiency=min(narrow, 1.0)
        )
        return kernel_seconds(
            graph, replace(system, accelerator=replace(accelerator, kernel=slower))
        )

    return seconds
