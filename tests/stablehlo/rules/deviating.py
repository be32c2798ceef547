"""Single ops that Flint counts otherwise than XLA on purpose, with our count and the reason."""

from typing import NamedTuple

from tests.stablehlo.rules.agreeing import ADD, BOOL, INT, A, dense, reduce_window
from tests.stablehlo.rules.xla_cost import Cost, OneOp, one_op, simple


class Deviation(NamedTuple):
    """Where Flint counts differently on purpose.

    Attributes:
        case: the op.
        ours: what Flint says, counted by hand.
        reason: why.
    """

    case: OneOp
    ours: Cost
    reason: str


_FEATURES = "4xf32"
_NORM = "epsilon = 0.1 : f32, feature_index = 1 : i64"
N, F = 32, 4
VIEW = "the result is the operand's buffer"
RUNNING = "a running sum, which XLA's backends make a scan: 2 * (256 - 1) for each of the 2 rows"
DEVIATIONS: dict[str, Deviation] = {
    "reduce_window cumulative over a long dim": Deviation(
        reduce_window(
            ADD,
            "2x256xf32",
            f"window_dimensions = array<i64: 1, 256>, padding = {dense((0, 0), (255, 0))}",
            "2x256xf32",
        ),
        Cost(2 * 2 * 255, 0, 2048 + 4 + 2048),
        RUNNING,
    ),
    "reduce_window cumulative from the end of a long dim": Deviation(
        reduce_window(
            ADD,
            "256x2xf32",
            f"window_dimensions = array<i64: 256, 1>, padding = {dense((0, 255), (0, 0))}",
            "256x2xf32",
        ),
        Cost(2 * 2 * 255, 0, 2048 + 4 + 2048),
        RUNNING,
    ),
    "reshape": Deviation(simple("stablehlo.reshape", A, "32xf32"), Cost(0, 0, 0), VIEW),
    "bitcast_convert": Deviation(simple("stablehlo.bitcast_convert", A, INT), Cost(0, 0, 0), VIEW),
    "bitcast_convert to narrower": Deviation(
        simple("stablehlo.bitcast_convert", INT, "8x4x4xi8"), Cost(0, 0, 0), VIEW
    ),
    "mhlo.copy": Deviation(simple("mhlo.copy", A, A), Cost(0, 0, 0), VIEW),
    "optimization_barrier": Deviation(
        simple("stablehlo.optimization_barrier", f"{A} {A}", f"{A} {A}"), Cost(0, 0, 0), VIEW
    ),
    "transpose": Deviation(
        one_op(A, "4x8xf32", "stablehlo.transpose %0, dims = [1, 0] : {types}"),
        Cost(0, 0, 256),
        "values are row-major; XLA's conversion gives the result a layout that makes it free",
    ),
    "transpose of a dim of size 1": Deviation(
        one_op("1x8x4xf32", "8x1x4xf32", "stablehlo.transpose %0, dims = [1, 0, 2] : {types}"),
        Cost(0, 0, 0),
        VIEW,
    ),
    "clamp with scalar bounds": Deviation(
        simple("stablehlo.clamp", f"f32 {A} f32", A),
        Cost(N, 0, 4 + 128 + 4 + 128),
        "XLA's conversion broadcasts the bounds first",
    ),
    "select by a scalar": Deviation(
        simple("stablehlo.select", f"i1 {A} {A}", A),
        Cost(N, 0, 1 + 3 * 128),
        "XLA's conversion broadcasts the predicate first",
    ),
    "broadcast_in_dim of a dim of size 1": Deviation(
        one_op("8x1xf32", A, "stablehlo.broadcast_in_dim %0, dims = [0, 1] : {types}"),
        Cost(0, 0, 32 + 128),
        "XLA's conversion makes three ops of it",
    ),
    "iota of rank 2": Deviation(
        one_op("", A, "stablehlo.iota dim = 0 : tensor<8x4xf32>"),
        Cost(0, 0, 128),
        "XLA's conversion makes a vector and a broadcast of it",
    ),
    "constant splat": Deviation(
        one_op("", A, "stablehlo.constant dense<1.0> : tensor<8x4xf32>"),
        Cost(0, 0, 0),
        "XLA's conversion broadcasts a scalar",
    ),
    "convert of a sub-byte type": Deviation(
        simple("stablehlo.convert", "8x3xi4", "8x3xi8"),
        Cost(24, 0, 12 + 24),
        "sub-byte elements are packed",
    ),
    "batch_norm_inference": Deviation(
        simple("stablehlo.batch_norm_inference", " ".join([A, *[_FEATURES] * 4]), A, _NORM),
        Cost(4 * N + F, F, 128 + 4 * 16 + 128),
        "XLA leaves its FLOPs open",
    ),
    "batch_norm_training": Deviation(
        simple("stablehlo.batch_norm_training", f"{A} 4xf32 4xf32", f"{A} 4xf32 4xf32", _NORM),
        # mean: N - F sums, F quotients; variance: N, N, N - F, F; then as inference
        Cost((N - F) + F + (2 * N + (N - F) + F) + (4 * N + F), F, 160 + 160),
        "XLA leaves its FLOPs open",
    ),
    "batch_norm_grad": Deviation(
        simple(
            "stablehlo.batch_norm_grad", f"{A} 4xf32 4xf32 4xf32 {A}", f"{A} 4xf32 4xf32", _NORM
        ),
        # by the specification's lines: centered, variance + epsilon, normalized, i1, i2, i3, i4,
        # i5, i6, grad_operand, grad_scale; grad_offset is i2
        Cost(
            N + F + N + N + (N - F) + (N + N - F) + N + N + 2 * N + (2 * F + N) + (N + N - F),
            F,
            2 * 128 + 3 * 16 + 128 + 2 * 16,
        ),
        "XLA leaves its FLOPs open",
    ),
    "chlo.top_k": Deviation(
        simple("chlo.top_k", "8x64xf32", "8x5xf32 8x5xi32", "k = 5 : i64"),
        Cost(512 * (1 + 3), 0, 2048 + 160 + 160),
        "a selection compares: each element with the smallest kept, then a heap of 5 (depth 3)",
    ),
    "chlo.lgamma": Deviation(
        simple("chlo.lgamma", A, A), Cost(0, N, 256), "one special function, not its expansion"
    ),
    "chlo.acosh": Deviation(
        simple("chlo.acosh", A, A), Cost(0, N, 256), "one special function, not its expansion"
    ),
    "chlo.is_inf": Deviation(
        simple("chlo.is_inf", A, BOOL), Cost(N, 0, 128 + 32), "one op, not its expansion"
    ),
    "all_reduce": Deviation(
        one_op(
            A,
            A,
            f'"stablehlo.all_reduce"({{args}}){ADD} '
            "{replica_groups = dense<[[0]]> : tensor<1x1xi64>} : {types}",
        ),
        Cost(0, 0, 256),
        "the reduction belongs to the communication",
    ),
    "custom_call": Deviation(
        one_op(A, A, "stablehlo.custom_call @my_kernel(%0) : {types}"),
        Cost(0, 0, 256),
        "XLA says -1; boundary bytes are known",
    ),
}
