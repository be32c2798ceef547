"""What the extension answers about its libraries and the device, and classes of its that only name
types.
"""

from __future__ import annotations

from typing import Any

import torch

from flint.errors import FlintError
from flint.frontends.torch.programs.transformer_engine.enums import (
    DType,
    NVTE_Fused_Attn_Backend,
)

_LARGEST_HEAD = 256


def get_cudnn_version() -> int:
    """cuDNN 9.21, as PyTorch's own wheels have it."""
    return 92100


def get_cublasLt_version() -> int:  # the extension's name
    """cuBLASLt 13.1."""
    return 130100


def get_num_cublas_streams() -> int:
    """Streams of grouped products; here they are one kernel."""
    return 4


def get_stream_priority_range(device_id: int = 0) -> tuple[int, int]:
    """Lowest and highest priority."""
    return 0, -5


def device_supports_multicast(device_id: int = -1) -> bool:
    """Whether NVSwitch may multicast."""
    return torch.cuda.get_device_capability()[0] >= 9


def ubuf_built_with_mpi() -> bool:
    """Whether MPI starts the overlapping kernels."""
    return False


def get_fused_attn_backend(*args: Any) -> Any:
    """cuDNN's kernel for half types of any length, if it has one for these heads.

    It has: for heads of a multiple of 8 elements, at most 256 (cuDNN's documentation).  Releases
    before 2.20 pass what they ask about one by one, heads' sizes five places after the dropout.
    """
    if len(args) == 1:
        asked = args[0]
        found = _backend(asked.qkv_dtype, (asked.head_dim_qk, asked.head_dim_v))
        return found, "its kernels have no such heads or types"
    dropout = next(at for at, item in enumerate(args) if isinstance(item, float))
    dtype = next(item for item in args if isinstance(item, DType))
    return _backend(dtype, args[dropout + 5 : dropout + 7])


def _backend(dtype: Any, sizes: tuple[int, ...]) -> NVTE_Fused_Attn_Backend:
    half = int(dtype) in (DType.kFloat16, DType.kBFloat16)
    if half and all(size % 8 == 0 and size <= _LARGEST_HEAD for size in sizes):
        return NVTE_Fused_Attn_Backend.NVTE_F16_arbitrary_seqlen
    return NVTE_Fused_Attn_Backend.NVTE_No_Backend


class _Refused:
    def __init__(self, *_: Any, **__: Any) -> None:
        raise FlintError(
            "Transformer Engine's overlap of products with communication (userbuffers, "
            "ub_tp_comm_overlap, --tp-comm-overlap) has no stand-in: switch it off"
        )


class CommOverlapHelper(_Refused):
    """Starts overlapping kernels."""


class CommOverlap(_Refused):
    """Products that overlap with collectives."""


class CommOverlapP2P(_Refused):
    """The same with a ring."""


class CommOverlapBase(_Refused):
    """What both share."""


class CommOverlapP2PBase(_Refused):
    """The same of rings."""


class FP8TensorMeta:
    """Scales of tensors in FP8, delayed: set by the package."""

    scale: torch.Tensor
    scale_inv: torch.Tensor
    amax_history: torch.Tensor
