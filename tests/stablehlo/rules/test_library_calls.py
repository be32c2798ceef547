"""Library calls behind custom_call: counts derived by hand or by running the algorithm.

Longer than 300 lines because each routine has its algorithm or its derivation beside the count.
"""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flint.cost import op_work
from flint.graph.tensor_types import TensorType, tensor_type
from flint.graph.work import Unit, Work, WorkItem
from flint.stablehlo.read.records import COST_ESTIMATE, Op
from flint.stablehlo.rules import flops_known, work_of
from flint.stablehlo.rules.causal_masks import causal_share

Shape = tuple[int, ...]


def _types(shapes: list[Shape], dtype: str) -> list[TensorType]:
    return [tensor_type(shape, dtype) for shape in shapes]


def _call(
    target: str,
    ins: list[Shape],
    outs: list[Shape],
    config: Any = None,
    dtype: str = "bf16",
    **attrs: Any,
) -> Work:
    given_attrs = {"target": target, **attrs}
    if config is not None:
        given_attrs["backend_config"] = config
    op = Op("custom_call", tuple(range(len(ins))), (len(ins),), given_attrs)
    types = _types(ins, dtype), _types(outs, dtype)
    work = work_of(op, *types)
    assert flops_known(op, *types) or not work.items
    return work


def _known(target: str, ins: list[Shape], outs: list[Shape], config: Any = None) -> bool:
    op = Op("custom_call", (), (), {"target": target, "backend_config": config})
    return flops_known(op, _types(ins, "f32"), _types(outs, "f32"))


def _gemm_config(batch: list[str]) -> dict[str, Any]:
    numbers = {
        "lhs_contracting_dimensions": ["1"],
        "rhs_contracting_dimensions": ["1"],
        "lhs_batch_dimensions": batch,
        "rhs_batch_dimensions": batch,
    }
    return {"gemm_backend_config": {"alpha_real": 1, "dot_dimension_numbers": numbers}}


@pytest.mark.parametrize("target", ["__cublas$gemm", "__cublas$lt$matmul", "__onednn$matmul"])
@pytest.mark.parametrize("config", [None, "opaque bytes", "{not json"])
def test_gemm_dims_come_from_sizes_without_a_configuration(target: str, config: Any) -> None:
    # [32, 128] x [128, 64]: 2 * 32 * 64 * 128; the second result is a workspace
    work = _call(target, [(32, 128), (128, 64)], [(32, 64), (4096,)], config)
    assert work.items[0].dims == (1, 32, 64, 128)
    assert work.flops == 2 * 32 * 64 * 128
    assert work.read == 2 * (32 * 128 + 128 * 64)
    assert work.written == 2 * (32 * 64 + 4096)


def test_batched_gemm_dims_come_from_the_configuration() -> None:
    # Batch 4, both contracting their second dim: [4, 128, 32] x [4, 128, 64] -> [4, 32, 64]
    config = json.dumps(_gemm_config(["0"]))
    shapes: list[Shape] = [(4, 128, 32), (4, 128, 64), (64,)]
    work = _call("__cublas$lt$matmul", shapes, [(4, 32, 64)], config)
    assert work.items[0].dims == (4, 32, 64, 128)


def test_gemm_whose_sizes_do_not_fit_is_unknown() -> None:
    assert not _known("__cublas$gemm", [(8, 4), (5, 3)], [(8, 3)])


CONV_ATTRS: dict[str, Any] = {
    "input_batch": 0, "input_feature": 1, "input_spatial": (2, 3),
    "kernel_output_feature": 0, "kernel_input_feature": 1, "kernel_spatial": (2, 3),
    "output_batch": 0, "output_feature": 1, "output_spatial": (2, 3),
    "feature_group_count": 1, "batch_group_count": 1,
}  # fmt: skip


@pytest.mark.parametrize(
    ("target", "ins", "out"),
    [
        ("__cudnn$convForward", ["image", "kernel"], "result"),
        ("__cudnn$convBiasActivationForward", ["image", "kernel"], "result"),
        ("__cudnn$convBackwardInput", ["result", "kernel"], "image"),
        ("__cudnn$convBackwardFilter", ["image", "result"], "kernel"),
    ],
)
def test_backward_convolutions_do_the_multiply_adds_of_the_forward_one(
    target: str, ins: list[str], out: str
) -> None:
    shapes: dict[str, Shape] = {
        "image": (2, 3, 8, 8),
        "kernel": (5, 3, 3, 3),
        "result": (2, 5, 6, 6),
    }
    work = _call(target, [shapes[name] for name in ins], [shapes[out], (64,)], **CONV_ATTRS)
    assert work.flops == 2 * (2 * 6 * 6) * 5 * (3 * 3 * 3)


def test_convolution_without_dimension_numbers_is_unknown() -> None:
    assert not _known("__cudnn$convForward", [(2, 3, 8, 8), (5, 3, 3, 3)], [(2, 5, 6, 6)])


@pytest.mark.parametrize(
    ("target", "gemms"), [("__cudnn$fmhaSoftmax", 2), ("__cudnn$fmhaSoftmaxBackward", 5)]
)
@pytest.mark.parametrize("as_text", [True, False])
def test_attention_is_two_gemms_forward_and_five_backward(
    target: str, gemms: int, as_text: bool
) -> None:
    # batch 2, 8 heads, 128 queries, 256 keys, head size 64, 2 key-value heads (grouped queries)
    scores = {"intermediate_tensor_shape": {"dimensions": ["2", "8", "128", "256"]}}
    config: Any = {"operation_queue_id": "0", "cudnn_fmha_backend_config": scores}
    shapes: list[Shape] = [(2, 128, 8, 64), (2, 256, 2, 64), (2, 256, 2, 64)]
    work = _call(target, shapes, [(2, 128, 8, 64)], json.dumps(config) if as_text else config)
    assert work.flops == gemms * 2 * (2 * 8) * 128 * 256 * 64
    assert work.transcendentals == 2 * 8 * 128 * 256


@pytest.mark.parametrize("mask", ["CAUSAL", "PADDING_CAUSAL"])
def test_scores_that_a_causal_mask_hides_are_not_computed(mask: str) -> None:
    # Query i sees keys 0 to i: 1 + 2 + 3 + 4 of 4 x 4 scores, and 4 more for each query beyond.
    shape = {"intermediate_tensor_shape": {"dimensions": ["2", "8", "6", "4"]}, "mask_type": mask}
    config = json.dumps({"cudnn_fmha_backend_config": shape})
    shapes: list[Shape] = [(2, 6, 8, 64), (2, 4, 8, 64), (2, 4, 8, 64)]
    work = _call("__cudnn$fmhaSoftmax", shapes, [(2, 6, 8, 64)], config)
    assert work.flops == 2 * 2 * (2 * 8) * (10 + 2 * 4) * 64
    assert work.transcendentals == (2 * 8) * (10 + 2 * 4)


def test_a_sliding_window_hides_what_is_further_back() -> None:
    # JAX: query i sees keys in (i - 3, i]: 1 + 2 + 3 + 3, then keys 2 and 3, then key 3 alone.
    shape = {
        "intermediate_tensor_shape": {"dimensions": ["2", "8", "6", "4"]},
        "mask_type": "CAUSAL",
        "sliding_window_length": 3,
    }
    config = json.dumps({"cudnn_fmha_backend_config": shape})
    shapes: list[Shape] = [(2, 6, 8, 64), (2, 4, 8, 64), (2, 4, 8, 64)]
    work = _call("__cudnn$fmhaSoftmax", shapes, [(2, 6, 8, 64)], config)
    assert work.transcendentals == (2 * 8) * (1 + 2 + 3 + 3 + 2 + 1)


#: As a published profile of an MI300X has it (TraceLens), with smaller sizes.
ENGINE = {
    "attn_heads": 8, "input_batch": 2, "kv_max_seqlen": 4, "mask_type": 2, "q_max_seqlen": 4,
    "qk_head_dim": 64, "v_head_dim": 32, "window_size_left": -1,
}  # fmt: skip


@pytest.mark.parametrize("as_text", [True, False])
@pytest.mark.parametrize(
    ("target", "by_query", "by_value"),
    [("te_fused_attn_forward_ffi", 1, 1), ("te_fused_attn_backward_ffi", 3, 2)],
)
@pytest.mark.parametrize(
    ("changed", "seen"),
    [({}, 1 + 2 + 3 + 4), ({"mask_type": 0}, 16), ({"window_size_left": 1}, 1 + 2 + 2 + 2)],
)
def test_transformer_engines_attention_has_its_sizes_in_its_configuration(
    target: str, by_query: int, by_value: int, as_text: bool, changed: dict[str, int], seen: int
) -> None:
    config: Any = ENGINE | changed
    if as_text:
        config = "{" + ", ".join(f"{name} = {value} : i64" for name, value in config.items()) + "}"
    shapes: list[Shape] = [(2, 4, 8, 64), (2, 4, 8, 64), (2, 4, 8, 32)]
    work = _call(target, shapes, [(2, 4, 8, 32)], config)
    assert work.flops == 2 * (2 * 8) * seen * (by_query * 64 + by_value * 32)
    assert work.transcendentals == (2 * 8) * seen


@given(st.integers(1, 12), st.integers(1, 12), st.integers(1, 14))
def test_visible_scores_are_those_of_every_query_counted(q: int, k: int, window: int) -> None:
    seen = [(i, j) for i in range(q) for j in range(k) if j <= i]
    assert causal_share(q, k).visible == len(seen)
    assert causal_share(q, k, window).visible == sum(i - j < window for i, j in seen)


@pytest.mark.parametrize("window", ["Infinity", '"wide"', "[]", "-1"])
def test_a_window_that_is_none_hides_nothing_more(window: str) -> None:
    config = (
        '{"cudnn_fmha_backend_config": {"intermediate_tensor_shape": {"dimensions": [1, 1, 4, 4]},'
        f' "mask_type": "CAUSAL", "sliding_window_length": {window}}}}}'
    )
    work = _call("__cudnn$fmhaSoftmax", [(1, 4, 1, 8)] * 3, [(1, 4, 1, 8)], config)
    assert work.transcendentals == 1 + 2 + 3 + 4


def test_kernel_that_states_its_cost_is_believed() -> None:
    estimate = {"flops": 1000, "transcendentals": 10, "bytes_accessed": 5}
    config = json.dumps({"custom_call_config": {"body": "TUzv", "cost_estimate": estimate}})
    work = _call("tpu_custom_call", [(8, 8)], [(8, 8)], config)
    assert (work.flops, work.transcendentals) == (1000, 10)
    assert _known("tpu_custom_call", [(8, 8)], [(8, 8)], config)


@pytest.mark.parametrize(
    "target",
    ["triton_kernel_call", "tpu_custom_call", "mosaic_gpu", "xla_ffi_python_cpu_callback", "mine"],
)
def test_kernel_of_unknown_arithmetic_keeps_its_boundary_bytes_and_reports_it(target: str) -> None:
    work = _call(target, [(8, 8)], [(8,)])
    assert (work.items, work.read, work.written) == ((), 128, 16)
    assert not _known(target, [(8, 8)], [(8,)])


@pytest.mark.parametrize("target", ["__gpu$xla.gpu.triton", "tpu_custom_call", "mosaic_gpu_v2"])
def test_what_a_frontend_attaches_to_a_kernel_counts_by_unit_and_type(target: str) -> None:
    stated = {"items": [["matmul", "bf16", 1000], ["vector", "f32", 10]]}
    op = Op("custom_call", (0,), (1,), {"target": target, COST_ESTIMATE: json.dumps(stated)})
    ins = [tensor_type((8, 8), "f32")]
    items = (WorkItem(Unit.MATMUL, "bf16", 1000), WorkItem(Unit.VECTOR, "f32", 10))
    assert work_of(op, ins, ins).items == items
    assert flops_known(op, ins, ins)


@pytest.mark.parametrize(
    "items", [None, 3, [3], [["matmul", "bf16"]], [["matmul", "bf16", -1]], [["disk", "bf16", 1]]]
)
def test_a_malformed_estimate_states_nothing(items: object) -> None:
    attrs = {"target": "tpu_custom_call", COST_ESTIMATE: json.dumps({"items": items})}
    ins = [tensor_type((8, 8), "f32")]
    assert not flops_known(Op("custom_call", (0,), (1,), attrs), ins, ins)


def _cholesky_by_loops(n: int) -> int:
    """Multiplications, additions, quotients and square roots of the textbook algorithm."""
    count = 0
    for j in range(n):
        count += 2 * j + 1  # a_jj minus j squares, a root
        for _i in range(j + 1, n):
            count += 2 * j + 1  # a_ij minus j products, a quotient
    return count


def _lu_by_loops(m: int, n: int) -> int:
    """Multiplications, additions and quotients of right-looking elimination without pivoting."""
    count = 0
    for k in range(min(m, n)):
        count += (m - k - 1) + 2 * (m - k - 1) * (n - k - 1)
    return count


@given(st.integers(1, 40))
def test_cholesky_count_is_that_of_the_algorithm(n: int) -> None:
    assert op_work.cholesky_flops(n) == _cholesky_by_loops(n)


@given(st.integers(1, 30), st.integers(1, 30))
def test_lu_count_is_that_of_the_algorithm_to_the_leading_order(m: int, n: int) -> None:
    # LAWN 41 counts a reciprocal and products instead of the quotients: a difference of order n.
    assert abs(op_work.lu_flops(max(m, n), min(m, n)) - _lu_by_loops(max(m, n), min(m, n))) <= m + n


@given(st.integers(1, 12), st.integers(1, 12))
def test_triangular_solve_count_is_that_of_substitution(n: int, columns: int) -> None:
    # Row i: i products, i differences, one quotient, for each column.
    assert op_work.triangular_flops(n, n * columns) == columns * sum(2 * i + 1 for i in range(n))


@given(st.integers(0, 12), st.integers(1, 5))
def test_tridiagonal_solve_count_is_that_of_the_thomas_algorithm(n: int, columns: int) -> None:
    factor = substitute = 0
    for _row in range(n):
        factor += 1 + 2  # w = l / d; d -= w u
        substitute += 2 + 2 + 1  # b -= w b_previous; then x = (b - u x_next) / d
    assert op_work.tridiagonal_solve_flops(n, columns) == factor + columns * substitute


@given(st.integers(1, 12), st.integers(1, 5), st.sampled_from(["Lower", "Upper"]))
def test_inverse_of_a_triangle_has_the_count_of_substitution(
    n: int, count: int, which: str
) -> None:
    """Column j of the inverse: its reciprocal, then row after row below."""
    flops = 0
    for j in range(n):
        flops += 1
        for i in range(j + 1, n):
            flops += (i - j) + (i - j - 1) + 1  # products, sums, by the row's reciprocal
    shape = (count, n, n)
    call = _call(f"InvertDiagBlocks{which}Triangular", [shape], [shape], dtype="f32")
    assert call.flops == count * flops


def test_qr_and_its_q_cost_the_householder_counts() -> None:
    # Square: 4/3 n^3 to factor and as much to form Q.
    assert op_work.qr_flops(30, 30) == 4 * 30**3 // 3
    assert op_work.q_from_reflectors_flops(30, 30, 30) == 4 * 30**3 // 3
    assert op_work.qr_flops(20, 50) == op_work.qr_flops(50, 20)


@pytest.mark.parametrize(
    ("target", "ins", "flops"),
    [
        ("lapack_spotrf_ffi", [(3, 6, 6)], 3 * (6**3 / 3 + 6**2 / 2 + 1)),
        ("cusolver_potrf_ffi", [(6, 6)], 6**3 / 3 + 6**2 / 2 + 1),
        ("lapack_dgetrf_ffi", [(6, 6)], 2 * 6**3 / 3 - 6**2 / 2 + 5),
        ("cublas_getrf_batched_ffi", [(2, 6, 6)], 2 * (2 * 6**3 / 3 - 6**2 / 2 + 5)),
        ("LuDecomposition", [(6, 6)], 2 * 6**3 / 3 - 6**2 / 2 + 5),
        ("LuDecompositionBlock", [(6, 6)], 2 * 6**3 / 3 - 6**2 / 2 + 5),
        ("lapack_sgeqrf_ffi", [(9, 6)], 2 * 9 * 36 - 2 * 216 / 3),
        ("lapack_sorgqr_ffi", [(9, 6), (6,)], 4 * 9 * 36 - 2 * 15 * 36 + 4 * 216 / 3),
        ("lapack_ssyevd_ffi", [(6, 6)], 9 * 216),
        ("cusolver_syevd_ffi", [(6, 6)], 9 * 216),
        ("lapack_sgesdd_ffi", [(9, 6)], 14 * 9 * 36 + 8 * 216),
        ("lapack_sgeev_ffi", [(6, 6)], 25 * 216),
        ("lapack_sgehrd_ffi", [(6, 6)], 10 * 216 / 3),
        ("lapack_ssytrd_ffi", [(6, 6)], 4 * 216 / 3),
        ("lapack_strsyl_ffi", [(4, 4), (6, 6), (4, 6)], 4 * 6 * 10),
        ("blas_strsm", [(), (6, 6), (6, 5)], 36 * 5),
        ("lapack_sgtsv_ffi", [(6,), (6,), (6,), (6, 2)], 6 * (3 + 5 * 2)),
    ],
)
def test_lapack_call_has_the_standard_count(target: str, ins: list[Shape], flops: float) -> None:
    assert _call(target, ins, [ins[-1]], dtype="f32").flops == flops


def test_complex_factorisation_is_four_times_the_real_one() -> None:
    real = _call("lapack_dpotrf_ffi", [(6, 6)], [(6, 6)], dtype="f64").flops
    assert _call("lapack_zpotrf_ffi", [(6, 6)], [(6, 6)], dtype="complex<f64>").flops == 4 * real


@pytest.mark.parametrize("config", [{"mode": ord("N")}, {"mode": "N"}, '{"mode": 78}'])
def test_eigenvalues_alone_cost_the_tridiagonalisation(config: Any) -> None:
    work = _call("lapack_ssyevd_ffi", [(6, 6)], [(6, 6), (6,)], config, dtype="f32")
    assert work.flops == 4 * 6**3 // 3


def test_threefry_costs_its_rounds_per_pair_of_words() -> None:
    # 20 rounds of (add, shift, shift, or, xor); third key word: 2 xors; keys in: 2 adds; after
    # every 4 rounds 2 key adds and a counter add
    per_pair = 20 * 5 + 2 + 2 + 5 * 3
    shapes: list[Shape] = [(64,)] * 4
    work = _call("cu_threefry2x32_ffi", shapes, [(64,), (64,)], dtype="ui32")
    assert work.flops == 64 * per_pair


@pytest.mark.parametrize("target", ["TopK", "mhlo.topk", "__gpu$TopK"])
def test_top_k_call_is_a_selection(target: str) -> None:
    # 8 x 64 elements: one comparison with the smallest kept, 3 levels of a heap of 5
    assert _call(target, [(8, 64)], [(8, 5), (8, 5)]).flops == 8 * 64 * 4


def test_sharding_marker_moves_nothing() -> None:
    work = _call("Sharding", [(8, 4)], [(8, 4)])
    assert (work.items, work.read, work.written, work.aliased) == ((), 0, 0, 64)


def test_units_of_a_factorisation_are_not_the_matrix_unit() -> None:
    (item,) = _call("lapack_spotrf_ffi", [(6, 6)], [(6, 6)], dtype="f32").items
    assert item.unit == Unit.VECTOR
