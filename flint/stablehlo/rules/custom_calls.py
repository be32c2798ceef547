"""The table of ``custom_call`` targets.

The idea: a target is looked up by its exact name, then by pattern; its entry has the role
and the FLOPs' formula.  A target without an entry is a kernel of unknown arithmetic: its boundary
bytes count, and the walker warns.

    >>> is_known_custom_call("__cublas$gemm"), is_known_custom_call("my_kernel")
    (True, False)
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from flint.graph.tensor_types import TensorType
from flint.graph.transfers import TO_DEVICE, TO_HOST
from flint.graph.work import Role, Work
from flint.stablehlo.read.records import Op
from flint.stablehlo.rules import library_calls as library
from flint.stablehlo.rules.bytes import alias, boundary, nothing, total_bytes
from flint.stablehlo.rules.lapack import LAPACK, triangular_items, tridiagonal_items
from flint.stablehlo.rules.library_calls import ItemRule
from flint.stablehlo.rules.names import names
from flint.stablehlo.rules.rule import Rule


@dataclass(frozen=True, slots=True)
class Target:
    """A known target: its rule, and how FLOPs are found (None: it is not a kernel and has none)."""

    rule: Rule
    items: ItemRule | None = None


def _kernel(items: ItemRule) -> Target:
    """One kernel that reads its operands, writes its results and does ``items``."""

    def work(op: Op, ins: Sequence[TensorType], outs: Sequence[TensorType]) -> Work:
        return Work(items(op, ins, outs) or (), total_bytes(ins), total_bytes(outs))

    return Target(Rule(Role.OPAQUE, work, types_only=False), items)


def _library(items: ItemRule) -> Target:
    """A kernel like those of ``_kernel`` whose further results, vectors of bytes, are scratch
    space: they are never read, and what the kernel stores there is unknown.
    """

    def work(op: Op, ins: Sequence[TensorType], outs: Sequence[TensorType]) -> Work:
        scratch = [out for out in outs[1:] if out.dtype in ("i8", "ui8") and len(out.shape) == 1]
        written = total_bytes(outs) - total_bytes(scratch)
        return Work(items(op, ins, outs) or (), total_bytes(ins), written, total_bytes(scratch))

    return Target(Rule(Role.OPAQUE, work, types_only=False), items)


_ALIAS = Target(Rule(Role.ALIAS, alias, types_only=False))
_GENERATE = Target(Rule(Role.GENERATE, nothing, types_only=False))
_MOVEMENT = Target(Rule(Role.MOVEMENT, boundary, types_only=False))
_COLLECTIVE = Target(Rule(Role.COLLECTIVE, boundary, types_only=False))
_UNKNOWN = _kernel(library.unknown_items)
_STATED = _kernel(library.stated_items)
#: Copies between memories, which are never part of a kernel.
_TRANSFER = Target(Rule(Role.OPAQUE, boundary, types_only=False))
_SORT = _kernel(library.sort_items)
_TOP_K = _kernel(library.top_k_items)

_VIEWS = names(
    "AssumeGatherIndicesInBound PrepareAsyncCallDone",
    "LayoutConstraint Pin Sharding SPMDFullToShardShape SPMDShardToFullShape Unpin X64Combine",
    "X64SplitHigh X64SplitLow annotate_device_placement tpu_annotate_device_placement",
)
_SOURCES = names(
    "AllocateBuffer CreateBuffer PartitionId PrepareAsyncCallStart ReplicaId partition_id",
    "replica_id shape_assertion",
)
_MOVES = names(
    "GatherScatterIndicesBitpacked",
    "PadToStatic SliceToDynamic lu_pivots_to_permutation",
    "cu_lu_pivots_to_permutation hip_lu_pivots_to_permutation",
)

_EXACT: dict[str, Target] = {
    **dict.fromkeys(_VIEWS, _ALIAS),
    **dict.fromkeys(_SOURCES, _GENERATE),
    **dict.fromkeys(_MOVES, _MOVEMENT),
    **dict.fromkeys((TO_HOST, TO_DEVICE), _TRANSFER),
    "ragged_all_to_all": _COLLECTIVE,
    "TopK": _TOP_K,
    "ApproxTopK": _TOP_K,
    "PartialReduce": _TOP_K,
    "__gpu$TopK": _TOP_K,
    "Cholesky": _kernel(LAPACK["potrf"]),
    "LuDecomposition": _kernel(LAPACK["getrf"]),
    "LuDecompositionBlock": _kernel(LAPACK["getrf"]),
    "InvertDiagBlocksLowerTriangular": _kernel(LAPACK["trtri"]),
    "InvertDiagBlocksUpperTriangular": _kernel(LAPACK["trtri"]),
    "Qr": _kernel(LAPACK["geqrf"]),
    "ProductOfElementaryHouseholderReflectors": _kernel(LAPACK["orgqr"]),
    "Eigh": _kernel(LAPACK["syevd"]),
}

_PATTERNS: tuple[tuple[re.Pattern[str], Target], ...] = tuple(
    (re.compile(pattern), target)
    for pattern, target in (
        (r"xla\.sdy\..*", _ALIAS),
        (r"__cublas\$triangularSolve", _library(triangular_items)),
        (r"__cublas\$.*|__cublas\$lt\$.*|__rocblas\$.*", _library(library.gemm_items)),
        (r"__(onednn|eigen|Eigen)\$matmul.*|Eigen.*[Mm]at[Mm]ul.*", _kernel(library.gemm_items)),
        (r"__op\$block_scaled_dot|__cudnn\$blockScaledDot.*", _kernel(library.block_scaled_items)),
        (r"__(cudnn\$conv|onednn\$conv|eigen\$conv|Eigen\$conv).*|Eigen.*[Cc]onv.*",
         _library(library.convolution_items)),
        (r"__cudnn\$fmha.*|cudnn attention", _library(library.attention_items)),
        (r"te_fused_attn_(forward|backward)(_ffi)?", _library(library.transformer_engine_items)),
        (r"tpu_custom_call|mosaic_gpu.*|flint\..*", _STATED),
        (r"triton_kernel_call.*|__gpu\$xla\.gpu\.triton.*", _STATED),
        (r"__cub\$DeviceRadixSort.*", _SORT),
        (r"(cu|hip)_threefry2x32.*", _kernel(library.threefry_items)),
        (r"tridiagonal_solve_perturbed.*", _kernel(tridiagonal_items)),
        (r"__triton.*", _UNKNOWN),
        (r"__cudnn\$.*|__onednn\$.*|__nvidia.*", _UNKNOWN),
        (r"(cudnn|miopen)_rnn.*|(cu|hip)sparse_.*|cusolver_csrlsvqr.*", _UNKNOWN),
        (r"xla_(ffi_)?(partitioned_)?python_.*callback|xla_buffer_python_.*callback", _UNKNOWN),
    )
)  # fmt: skip

_LAPACK = re.compile(
    r"(?:lapack|blas|cusolver|hipsolver|cublas|hipblas|cusparse|hipsparse|magma)_"
    rf"[sdcz]?({'|'.join(sorted(LAPACK, key=len, reverse=True))})"
    r"(?:_?batched)?(?:_(?:hybrid|f32|f64|c64|c128))?(?:_ffi)?"
)
_LAPACK_TARGETS = {name: _kernel(items) for name, items in LAPACK.items()}

_UNLISTED = _kernel(library.unknown_items)


@lru_cache(maxsize=4096)
def _find(target: str) -> Target | None:
    found = _EXACT.get(target)
    if found is not None:
        return found
    lapack = _LAPACK.fullmatch(target)
    if lapack:
        return _LAPACK_TARGETS[lapack[1]]
    for pattern, entry in _PATTERNS:
        if pattern.fullmatch(target):
            return entry
    return None


def is_known_custom_call(target: str) -> bool:
    """Whether ``target`` is in the table (by name or pattern)."""
    return _find(target) is not None


def custom_call_rule(target: str) -> Rule:
    """The rule of a target; for an unknown one, a kernel with boundary bytes."""
    return (_find(target) or _UNLISTED).rule


def custom_call_flops_known(op: Op, ins: Sequence[TensorType], outs: Sequence[TensorType]) -> bool:
    """Whether the FLOPs of a custom call follow from its types and configuration."""
    items = (_find(op.attr("target", "")) or _UNLISTED).items
    return items is None or items(op, ins, outs) is not None


def may_lack_flops(target: str) -> bool:
    """Whether the FLOPs of custom calls of ``target`` may be unknown, as of those not listed."""
    return (_find(target) or _UNLISTED).items is not None
