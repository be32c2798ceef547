"""Attention by other kernels than a system's description has.

attending(0.35)(graph, system)         # seconds per node, with FlashAttention 2 on an H100
attending(*flash3(2048))(graph, system)           # with FlashAttention 3, of 2,048 positions
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

import numpy as np
from numpy.typing import NDArray
from recipes import Recipe
from trainers import CHOSE2, EAGER, FLASH2, WINDOWS, first

from flint.cost.classes import named
from flint.cost.hardware import System
from flint.cost.kernels import Estimator, kernel_seconds
from flint.graph.graph import WorkloadGraph

#: Positions -> microseconds that FlashAttention 3 takes forward and backward on an H100, causal, of
#: 4 x 48 heads of 128 elements (meta-pytorch/tritonbench, pull request 1267).
FLASH3: Final[Mapping[int, tuple[float, float]]] = {
    1024: (141.63, 709.66), 2048: (368.35, 1631.26),
    4096: (1236.90, 4643.46), 8192: (4817.44, 15308.16),
}  # fmt: skip
#: Composable Kernel's FlashAttention 2 on an MI300X: 353 TFLOP/s forward and 202 backward, 230
#: together, of 16,384 positions with ROCm 6.3.2 (ROCm/flash-attention, issue 142).
COMPOSABLE: Final = 230 / 1307.4
#: How accelerators' names begin on which torchtitan asks cuDNN for attention, of whatever kind,
#: since its pull request 1196 of May 2025; elsewhere it asks FlashAttention 2.
BLACKWELL: Final = ("B200", "GB200", "B300", "GB300")
#: How frameworks' names begin that leave the choice to a PyTorch which asks cuDNN first: 2.11 in
#: KempnerForge's ``uv.lock``.
CUDNN_FIRST: Final = ("KempnerForge",)
#: Triton's port of FlashAttention 1 on an H100, as in ``accuracy.TRITON``.
TRITON: Final = 0.27 * 0.6


def flash3(positions: int) -> tuple[float, float]:
    """Shares of an H100's peak that FlashAttention 3 reaches forward and backward; beyond 8,192
    positions, where nothing was published with it, as there."""
    lengths, times = np.array([*FLASH3], float), np.array([*FLASH3.values()]) * 1e-6
    flops = 2 * 4 * 48 * 128 * lengths**2  # half of the scores, two products
    shares = flops * [[1.0], [2.5]] / times.T / 989.4e12
    forward, backward = (np.interp(np.log(positions), np.log(lengths), each) for each in shares)
    return float(forward), float(backward)


def stated(recipe: Recipe) -> tuple[Estimator, str]:
    """The estimator of a row of PyTorch's kernels, by the kernel of attention that its recipe
    states, and its name; "" where that is the one that a system's description has.
    """
    library = recipe.compiled or recipe.id.startswith(EAGER)
    blackwell = recipe.accelerator.startswith(BLACKWELL)
    if recipe.framework.startswith("torchtitan") and recipe.compiled and blackwell:
        return _by_cudnn, "cuDNN's attention"
    if (library and recipe.attention == "FlashAttention 2") or recipe.id.startswith(CHOSE2):
        return attending(first(FLASH2, recipe.accelerator), steps=True), "FlashAttention 2"
    if recipe.attention.startswith("FlashAttention 3"):
        seen = first(WINDOWS, recipe.id, 1.0)
        shares = (share / seen for share in flash3(recipe.sequence))
        return attending(*shares), "FlashAttention 3"
    if "riton" in recipe.attention and recipe.accelerator.startswith("H100"):
        return attending(TRITON), "the Triton port of FlashAttention 1"
    if recipe.attention.startswith("FlexAttention"):
        return _by_flex, "FlexAttention as FlashAttention 2"
    if recipe.attention.startswith("FlashAttention 4"):
        return _by_cudnn, "FlashAttention 4 as cuDNN's attention"
    if "(CK)" in recipe.attention and "ROCm 6" in recipe.framework:
        return attending(COMPOSABLE, steps=True), "Composable Kernel's attention"
    if recipe.attention.startswith("SDPA with cuDNN") or recipe.framework.startswith(CUDNN_FIRST):
        return _by_cudnn, "cuDNN's attention"
    return kernel_seconds, ""


def _by_cudnn(graph: WorkloadGraph, system: System) -> NDArray[np.float64]:
    """Kernels of steps whose attention is cuDNN's, where others were captured."""
    model = system.accelerator.kernel
    share = model.attention_efficiency
    faster = replace(
        model, flash_attention_efficiency=share, eager_attention_efficiency=share,
        efficient_attention_efficiency=share,
    )  # fmt: skip
    return kernel_seconds(
        graph, replace(system, accelerator=replace(system.accelerator, kernel=faster))
    )


def _by_flex(graph: WorkloadGraph, system: System) -> NDArray[np.float64]:
    """Kernels of steps whose attention is a template of PyTorch's compiler, which takes all sizes;
    other kernels than FlashAttention were captured where it takes them not."""
    model = system.accelerator.kernel
    share = model.flash_attention_efficiency
    flexible = replace(model, efficient_attention_efficiency=share)
    return kernel_seconds(
        graph, replace(system, accelerator=replace(system.accelerator, kernel=flexible))
    )


def attending(share: float, backward: float = 0.0, steps: bool = False) -> Estimator:
    """Kernels whose fused attention reaches a share of the peak; in 8 bits in proportion.

    Args:
        share: forward, and backward if that is not given.
        backward: backward.
        steps: kernels alone were measured: steps of several devices lose as much of it as of the
            rate of products, where that is known.
    """
    if backward:
        forth, back = attending(share, steps=steps), attending(backward, steps=steps)

        def either(graph: WorkloadGraph, system: System) -> NDArray[np.float64]:
            behind = named(graph, ("backward",))
            return np.where(behind, back(graph, system), forth(graph, system))

        return either

    def seconds(graph: WorkloadGraph, system: System) -> NDArray[np.float64]:
        accelerator = system.accelerator
        model = accelerator.kernel
        lost = steps and model.matmul_alone > 0 and not model.alone
        reached = share / (model.matmul_alone if lost else model.matmul_efficiency)
        # On one device, PyTorch's kernels are a share of what products reach alone.
        pytorchs = share / model.matmul_alone if model.alone else reached
        narrow = model.narrow_attention_efficiency * reached / model.attention_efficiency
        slower = replace(
            model, attention_efficiency=reached, flash_attention_efficiency=pytorchs,
            eager_attention_efficiency=pytorchs, efficient_attention_efficiency=pytorchs,
            narrow_attention_efficiency=min(narrow, 1.0),
        )  # fmt: skip
        return kernel_seconds(
            graph, replace(system, accelerator=replace(accelerator, kernel=slower))
        )

    return seconds
