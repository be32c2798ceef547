"""What kernels in profiles are called, and the classes that their names show."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flint.cost.classes import SHOWN, class_of_kernel
from flint.post_execution import graphs
from flint.post_execution.converting import convert_traces
from flint.post_execution.kernel_names import short_name
from tests.post_execution.traces import Profile


@pytest.mark.parametrize(
    ("name", "label", "kind"),
    [
        ("void at::native::reduce_kernel<512, 1, ReduceOp<float> >(float)", "reduce_kernel", 2),
        (
            "void cutlass::Kernel2<cutlass_80_gemm_bf16>(x::Params)",
            "Kernel2 cutlass_80_gemm_bf16",
            0,
        ),
        ("void cutlass::device_kernel<flash::FlashBwd<1> >(x)", "device_kernel flash::FlashBwd", 1),
        ("void f::kernel<3>(int)", "f::kernel", 5),
        ("std::enable_if<!(a), void>::type internal::gemvx::kernel<int>(x)", "gemvx::kernel", 0),
        (
            "std::enable_if<((8)>(0)), void>::type vllm::rms_norm_kernel<h, 8>(h*)",
            "rms_norm_kernel",
            2,
        ),
        (
            "_ZN5aiter24add_rmsnorm_quant_kernelIDF16bDF16bLi256EEvPT0_",
            "add_rmsnorm_quant_kernel",
            2,
        ),
        ("_Z32paged_attention_ll4mi_QKV_kernelIDF16_hEvPKT", "paged_attention_ll4mi_QKV_kernel", 1),
        ("_ZN7ck_tile6kentryILi2ENS_13FmhaFwdKernelINS_4TileEEEEvT", "kentry FmhaFwdKernel", 1),
        ("_ZN4vllm18act_and_mul_kernelIN3c104HalfEEEvPT_", "act_and_mul_kernel", 3),
        (
            "void multi_tensor_apply_kernel<TensorListMetadata<4> >(x)",
            "multi_tensor_apply_kernel",
            3,
        ),
        ("void deep_gemm::per_token_cast_to_fp8(x)", "per_token_cast_to_fp8", 4),
        ("Memset (Device)", "Memset", 4),
        ("void at::native::max_pool_backward_nchw<float>(x)", "max_pool_backward_nchw", 2),
        ("void permute_pooled_embs_kernel<float>(x)", "permute_pooled_embs_kernel", 4),
        ("ncclDevKernel_AllReduce_Sum_f32(x)", "ncclDevKernel_AllReduce_Sum_f32", 6),
        ("void dpsk::ep::internode::combine<false, 8>(int4*)", "dpsk::ep::internode::combine", 6),
        ("void vllm::cross_device_reduce_1stage<half, 2>(x)", "cross_device_reduce_1stage", 6),
        ("triton_poi_fused_add_0", "triton_poi_fused_add_0", 3),
        ("Memcpy HtoD (Pageable -> Device)", "Memcpy HtoD", 4),
    ],
)
def test_a_kernel_is_called_and_classed_by_what_its_name_says(name, label, kind):
    assert short_name(name) == label
    assert class_of_kernel(f"op: {label}") == SHOWN[kind]


@given(st.text("_Zab:<>(){}[], 1", min_size=1, max_size=40))
def test_any_text_is_a_kernels_name(name):
    assert 0 < len(short_name(name)) <= 60


def test_a_kernel_that_ops_of_many_sizes_launch_is_named_once(tmp_path, monkeypatch):
    named = []
    monkeypatch.setattr(graphs, "short_name", lambda name: named.append(name) or short_name(name))
    profile = Profile(0, 1)
    for number in range(9):
        dims = [[8, number + 1], [number + 1, 8]]
        at = 20 * number
        profile.work(at, at + 5, 3, **{"Input Dims": dims, "Input type": ["float", "float"]})
    [program] = convert_traces([profile.write(tmp_path / "rank0.json")]).programs
    assert set(program.graph.tables.ops) >= {"aten::mm: gemm"}
    assert len(program.graph.tables.gemms) == 9
    assert named == ["gemm"]
