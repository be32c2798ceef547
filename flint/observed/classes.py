"""Classes of ops, and the class of an op of PyTorch, StableHLO or HLO.

The idea: ops are compared class by class, and the class decides how important a difference is.
Every collective, GEMM, convolution and attention must be accounted for; element-wise work,
reductions and copies may be fused by compilers and split by libraries.

    aten_class("aten::addmm")        # OpClass.GEMM
    hlo_class("all-reduce-start")    # OpClass.ALL_REDUCE
"""

from __future__ import annotations

import re
from enum import StrEnum

from flint.graph.work import Role


class OpClass(StrEnum):
    """Classes that a comparison counts."""

    GEMM = "GEMM"
    CONVOLUTION = "convolution"
    ATTENTION = "attention"
    ELEMENTWISE = "elementwise"
    REDUCTION = "reduction"
    COPY = "copy"
    OTHER = "other"
    FREE = "free"  # no separate kernel: views, allocations, bookkeeping of the profiler
    ALL_REDUCE = "all-reduce"
    ALL_GATHER = "all-gather"
    REDUCE_SCATTER = "reduce-scatter"
    ALL_TO_ALL = "all-to-all"
    BROADCAST = "broadcast"
    COLLECTIVE_PERMUTE = "collective-permute"
    SEND = "send"
    RECV = "recv"
    OTHER_COLLECTIVE = "other collective"  # gather, scatter: captures have their messages

    @property
    def collective(self) -> bool:
        """Whether ranks communicate."""
        return self in _COLLECTIVES

    @property
    def weight(self) -> int:
        """Weight: an op includes lighter ops that it calls: a sum fills, a cast copies."""
        return _WEIGHTS.get(self, 4)

    @property
    def must_match(self) -> bool:
        """Whether each op of the class must be accounted for one by one."""
        return self in _COLLECTIVES or self in (
            OpClass.GEMM,
            OpClass.CONVOLUTION,
            OpClass.ATTENTION,
            OpClass.OTHER_COLLECTIVE,
        )


_COLLECTIVES = frozenset(
    {
        OpClass.ALL_REDUCE, OpClass.ALL_GATHER, OpClass.REDUCE_SCATTER, OpClass.ALL_TO_ALL,
        OpClass.BROADCAST, OpClass.COLLECTIVE_PERMUTE, OpClass.SEND, OpClass.RECV,
    }
)  # fmt: skip

_WEIGHTS = {
    OpClass.FREE: 0, OpClass.OTHER: 0, OpClass.COPY: 1, OpClass.ELEMENTWISE: 2,
    OpClass.REDUCTION: 3,
}  # fmt: skip

#: StableHLO communications, as ``flint.graph.communication.COLLECTIVES`` names them.
COMMUNICATIONS: dict[str, OpClass] = {
    "all_reduce": OpClass.ALL_REDUCE,
    "all_gather": OpClass.ALL_GATHER,
    "reduce_scatter": OpClass.REDUCE_SCATTER,
    "all_to_all": OpClass.ALL_TO_ALL,
    "ragged_all_to_all": OpClass.ALL_TO_ALL,
    "collective_broadcast": OpClass.BROADCAST,
    "collective_permute": OpClass.COLLECTIVE_PERMUTE,
    "send": OpClass.SEND,
    "recv": OpClass.RECV,
}

#: ``Collective name`` of PyTorch's ``record_param_comms`` and names of c10d ops, without their
#: underscores (torch/csrc/distributed/c10d: ProcessGroupNCCL.cpp and Ops.cpp).
_C10D: dict[str, OpClass] = {
    "allreduce": OpClass.ALL_REDUCE,
    "allreducecoalesced": OpClass.ALL_REDUCE,
    "allreducesparse": OpClass.ALL_REDUCE,
    "reduce": OpClass.ALL_REDUCE,  # StableHLO's counterpart
    "reduceoop": OpClass.ALL_REDUCE,
    "allgather": OpClass.ALL_GATHER,
    "allgatherbase": OpClass.ALL_GATHER,
    "allgatherintotensor": OpClass.ALL_GATHER,
    "allgatherintotensorcoalesced": OpClass.ALL_GATHER,
    "allgathercoalesced": OpClass.ALL_GATHER,
    "reducescatter": OpClass.REDUCE_SCATTER,
    "reducescatterbase": OpClass.REDUCE_SCATTER,
    "reducescattertensor": OpClass.REDUCE_SCATTER,
    "reducescattertensorcoalesced": OpClass.REDUCE_SCATTER,
    "alltoall": OpClass.ALL_TO_ALL,
    "alltoallv": OpClass.ALL_TO_ALL,
    "alltoallbase": OpClass.ALL_TO_ALL,
    "alltoallsingle": OpClass.ALL_TO_ALL,
    "broadcast": OpClass.BROADCAST,
    "broadcastoop": OpClass.BROADCAST,
    "send": OpClass.SEND,
    "recv": OpClass.RECV,
    "recvanysource": OpClass.RECV,
    "gather": OpClass.OTHER_COLLECTIVE,
    "scatter": OpClass.OTHER_COLLECTIVE,
}


def c10d_class(name: str) -> OpClass | None:
    """The class of a collective by PyTorch's name; None for a barrier, a wait and other names."""
    return _C10D.get(name.replace("_", "").lower())


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


_GEMMS = _names(
    "mm addmm bmm baddbmm addbmm linear matmul mv addmv dot vdot _scaled_mm _grouped_mm"
)
_REDUCTIONS = _names(
    "sum mean amax amin max min argmax argmin norm linalg_vector_norm _foreach_norm cumsum "
    "cumprod logsumexp all any var std var_mean prod _softmax _log_softmax _softmax_backward_data "
    "_log_softmax_backward_data native_layer_norm native_layer_norm_backward native_group_norm "
    "native_group_norm_backward native_batch_norm native_batch_norm_backward cudnn_batch_norm "
    "cudnn_batch_norm_backward miopen_batch_norm miopen_batch_norm_backward _fused_rms_norm "
    "_fused_rms_norm_backward nll_loss_forward nll_loss_backward _adaptive_avg_pool2d "
    "_adaptive_avg_pool2d_backward avg_pool2d avg_pool2d_backward max_pool2d_with_indices "
    "max_pool2d_with_indices_backward topk sort histc bincount adaptive_max_pool2d "
    "adaptive_max_pool2d_backward mse_loss smooth_l1_loss huber_loss binary_cross_entropy aminmax "
    "logcumsumexp kthvalue mode median _cdist_forward norm_except_dim embedding_dense_backward "
    "scatter_add scatter_reduce index_add index_reduce _weight_norm_interface "
    "_weight_norm_interface_backward"
)
_COPIES = _names(
    "copy clone contiguous _to_copy cat stack index index_select index_put _index_put_impl gather "
    "scatter embedding slice_scatter slice_backward "
    "select_backward split_with_sizes_copy _foreach_copy fill zero ones zeros ones_like zeros_like "
    "full full_like new_zeros new_full _foreach_zero constant_pad_nd roll flip repeat tril triu "
    "arange all_gather_copy_in chunk_cat _chunk_cat scalar_tensor masked_fill"
)
_FREE = _names(
    "empty empty_like empty_strided new_empty new_empty_strided view _unsafe_view reshape "
    "_reshape_alias as_strided expand t transpose permute squeeze unsqueeze slice select narrow "
    "detach alias split split_with_sizes chunk unbind flatten unflatten lift_fresh "
    "flatten_dense_tensors unflatten_dense_tensors result_type is_same_size item "
    "_local_scalar_dense set resize is_nonzero resolve_conj resolve_neg view_as to lift "
    "record_stream is_pinned view_as_real view_as_complex _conj _neg_view diagonal unfold movedim "
    "swapaxes swapdims "
    # Ops that call others, and dropouts that drop nothing, and queries.
    "dropout feature_dropout alpha_dropout feature_alpha_dropout cudnn_is_acceptable is_complex "
    "is_floating_point _nnpack_available resize_as"
)
_ELEMENTWISE = _names(
    "add sub rsub mul div neg abs exp log log1p expm1 sqrt rsqrt pow square reciprocal sin cos "
    "tanh sigmoid relu clamp clamp_min clamp_max clip silu gelu threshold threshold_backward "
    "silu_backward gelu_backward tanh_backward sigmoid_backward where eq ne lt le gt ge maximum "
    "minimum lerp addcmul addcdiv bitwise_and bitwise_or bitwise_not logical_and logical_or "
    "logical_not sign floor ceil round native_dropout native_dropout_backward bernoulli isnan "
    "isinf isfinite erf hardtanh hardtanh_backward leaky_relu elu softplus remainder fmod "
    "leaky_relu_backward elu_backward softplus_backward mish mish_backward hardswish "
    "hardswish_backward hardsigmoid hardsigmoid_backward softshrink softshrink_backward hardshrink "
    "hardshrink_backward celu selu _prelu_kernel _prelu_kernel_backward rrelu_with_noise glu "
    "glu_backward log_sigmoid_forward log_sigmoid_backward logit logit_backward exp2 log2 log10 "
    "sinh cosh tan asin acos atan asinh acosh atanh atan2 erfc erfinv sgn trunc frac hypot "
    "nan_to_num logaddexp logaddexp2 logical_xor bitwise_xor xlogy copysign heaviside fmax fmin "
    "mse_loss_backward smooth_l1_loss_backward huber_loss_backward binary_cross_entropy_backward "
    "_fused_adamw _fused_adam _fused_sgd _amp_foreach_non_finite_check_and_unscale "
    "_amp_update_scale"
)
#: Prefix of a library's op for a recurrent layer in one direction, and of that for its gradients.
RECURRENT_LIBRARY = "mkldnn_rnn_layer"
#: Prefix of Inductor's C++ kernels, which profilers name if that is enabled
#: (``torch._inductor.config.cpp.enable_kernel_profile``).
_FUSED_IN_CPP = re.compile(r"(graph_\d+_)?(kernel_)?cpp_fused_")
_ATTENTION = re.compile(r"^_?(scaled_dot_product|flash|efficient|cudnn|flex)_?.*attention")
_CONVOLUTION = re.compile(r"conv(olution|\dd|_transpose)")


def base_name(name: str) -> str:
    """``aten::add_`` and ``aten.add.out`` both as ``add``: no namespace, overload or in-place mark.

    An in-place op is the same kernel with another place for its result.
    """
    head = name.rsplit("::", 1)[-1] if "::" in name else name
    if "::" not in name and "." in name:
        parts = name.split(".")
        head = parts[1] if len(parts) > 2 or parts[0] in ("aten", "c10d", "fsdp") else parts[0]
    return head.rstrip("_") if not head.endswith("__") else head


def is_fused_in_cpp(name: str) -> bool:
    """Whether a profiled op is a kernel of Inductor's on a CPU, whose name lists what it fuses."""
    return _FUSED_IN_CPP.match(name) is not None


def aten_class(name: str) -> OpClass:
    """The class of a PyTorch op, by its name with or without namespace and overload."""
    if is_fused_in_cpp(name):
        return OpClass.ELEMENTWISE
    base = base_name(name)
    for names, found in (
        (_GEMMS, OpClass.GEMM),
        (_FREE, OpClass.FREE),
        (_COPIES, OpClass.COPY),
        (_REDUCTIONS, OpClass.REDUCTION),
        (_ELEMENTWISE, OpClass.ELEMENTWISE),
    ):
        if base in names:
            return found
    if base.startswith(RECURRENT_LIBRARY):
        return OpClass.GEMM
    if _ATTENTION.search(base):
        return OpClass.ATTENTION
    if _CONVOLUTION.search(base):
        return OpClass.CONVOLUTION
    if base.removeprefix("_foreach_") in _ELEMENTWISE:
        return OpClass.ELEMENTWISE
    return OpClass.OTHER


def stablehlo_class(op: str, role: Role) -> OpClass:
    """The class of a compute node that is written in StableHLO."""
    if role == Role.CONTRACTION:
        return OpClass.CONVOLUTION if "conv" in op else OpClass.GEMM
    return _ROLES.get(role, OpClass.OTHER)


_ROLES = {
    Role.ALIAS: OpClass.FREE,
    Role.GENERATE: OpClass.FREE,
    Role.CONTROL: OpClass.FREE,
    Role.ELEMENTWISE: OpClass.ELEMENTWISE,
    Role.MOVEMENT: OpClass.COPY,
    Role.UPDATE: OpClass.COPY,
    Role.REDUCTION: OpClass.REDUCTION,
}

_HLO: dict[str, OpClass] = {
    "dot": OpClass.GEMM,
    "ragged-dot": OpClass.GEMM,
    "convolution": OpClass.CONVOLUTION,
    "all-reduce": OpClass.ALL_REDUCE,
    "all-gather": OpClass.ALL_GATHER,
    "reduce-scatter": OpClass.REDUCE_SCATTER,
    "all-to-all": OpClass.ALL_TO_ALL,
    "ragged-all-to-all": OpClass.ALL_TO_ALL,
    "collective-broadcast": OpClass.BROADCAST,
    "collective-permute": OpClass.COLLECTIVE_PERMUTE,
    "send": OpClass.SEND,
    "recv": OpClass.RECV,
    "reduce": OpClass.REDUCTION,
    "reduce-window": OpClass.REDUCTION,
    "select-and-scatter": OpClass.REDUCTION,
} | dict.fromkeys(
    (
        "copy", "broadcast", "transpose", "slice", "dynamic-slice", "dynamic-update-slice",
        "gather", "scatter", "pad", "concatenate", "reverse",
    ),
    OpClass.COPY,
) | dict.fromkeys(
    (
        "parameter", "constant", "tuple", "get-tuple-element", "bitcast", "reshape", "while",
        "conditional", "call", "partition-id", "replica-id", "iota", "after-all", "domain",
        "opt-barrier", "add-dependency",
    ),
    OpClass.FREE,
)  # fmt: skip


#: Opcodes that move data, for which a compiler has a use only where the program has one.
_MOVED = frozenset(opcode for opcode, kind in _HLO.items() if kind is OpClass.COPY)
_PLACED = (_MOVED - {"copy", "broadcast"}) | {"sort", "fft"}


def hlo_says(opcode: str) -> bool:
    """Whether an HLO instruction that ran bears the name of a light op of the program."""
    kind = hlo_class(opcode)
    return kind in (OpClass.ELEMENTWISE, OpClass.REDUCTION) or opcode in _PLACED


def hlo_class(opcode: str) -> OpClass:
    """The class of an HLO instruction by its opcode; the ``-done`` of a pair is free."""
    if opcode.endswith(("-done", "-update")):
        return OpClass.FREE
    opcode = opcode.removesuffix("-start")
    if opcode in ("custom-call", "sort", "fft", "rng", "rng-bit-generator", "fusion", "async"):
        return OpClass.OTHER
    return _HLO.get(opcode, OpClass.ELEMENTWISE)
