"""The extension's enumerations (Transformer Engine 2.x).

The idea: its Python passes them on and compares them; only types of elements mean something here.
Others have whatever members the package asks for, so that any release finds its own.

    torch_dtype(DType.kBFloat16); name_of(NVTE_QKV_Format.NVTE_SBHD) == "NVTE_SBHD"
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any

import torch


class DType(IntEnum):
    """Types of elements (transformer_engine.h)."""

    kByte = 0
    kInt32 = 2
    kFloat32 = 4
    kFloat16 = 5
    kBFloat16 = 6
    kFloat8E4M3 = 7
    kFloat8E5M2 = 8
    kFloat4E2M1 = 10


_TORCH = {
    DType.kByte: torch.uint8,
    DType.kInt32: torch.int32,
    DType.kFloat32: torch.float32,
    DType.kFloat16: torch.float16,
    DType.kBFloat16: torch.bfloat16,
    DType.kFloat8E4M3: torch.float8_e4m3fn,
    DType.kFloat8E5M2: torch.float8_e5m2,
    DType.kFloat4E2M1: torch.float4_e2m1fn_x2,
}


def torch_dtype(given: Any) -> torch.dtype:
    """PyTorch's dtype of either kind of type."""
    return given if isinstance(given, torch.dtype) else _TORCH[DType(int(given))]


_numbered: Any = IntEnum
FP8FwdTensors: Any = _numbered(
    "FP8FwdTensors",
    [f"GEMM{at}_{what}" for at in (1, 2, 3) for what in ("INPUT", "WEIGHT", "OUTPUT")],
    start=0,
)
FP8BwdTensors: Any = _numbered(
    "FP8BwdTensors",
    [f"GRAD_{what}{at}" for at in (1, 2, 3) for what in ("OUTPUT", "INPUT")],
    start=0,
)


class NVTE_Fused_Attn_Backend(IntEnum):  # the extension's name
    """Kernels of fused attention."""

    NVTE_No_Backend = -1
    NVTE_F16_arbitrary_seqlen = 1
    NVTE_FP8 = 2


#: Releases before 2.12 had one more.
NVTE_Fused_Attn_Backend.NVTE_F16_max512_seqlen = 0  # type: ignore[attr-defined]  # no member


class _Names(type):
    """Classes whose every attribute is a member, numbered as they are first asked for."""

    def __getattr__(cls, name: str) -> Member:
        if name.startswith("__"):
            raise AttributeError(name)
        made = Member(len(_members))
        made.name = name
        _members.append(made)
        setattr(cls, name, made)
        return made


class Member(int):
    """A member of an enumeration, which is a number to the package."""

    name: str


_members: list[Member] = []


class Kinds(metaclass=_Names):
    """Any enumeration of which only names matter."""


def name_of(number: int) -> str:
    """The name of a member that the package passes as a number."""
    return _members[int(number)].name


NVTE_Bias_Type = NVTE_Mask_Type = NVTE_Softmax_Type = NVTE_QKV_Format = NVTE_QKV_Layout = Kinds
NVTEScalingMode = NVTERoutingMapFormat = NVTEQBHistogramMode = Kinds
CommOverlapType = CommOverlapAlgo = Float8BlockScaleTensorFormat = Kinds
