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
    """Kernels whose fused attention reaches a share of the peak."""

    def seconds(graph: WorkloadGraph, system: System) -> NDArray[np.float64]:
        accelerator = system.accelerator
        model = accelerator.kernel
        slower = replace(model, attention_efficiency=share / model.matmul_efficiency)
        return kernel_seconds(
            graph, replace(system, accelerator=replace(accelerator, kernel=slower))
        )

    return seconds
