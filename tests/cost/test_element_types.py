"""Element types: every accelerator states each, products of narrow ones run on the right unit."""

from __future__ import annotations

import tomllib
from dataclasses import replace
from pathlib import Path

import pytest

import flint.cost
from flint.cost.accelerators import accelerator_names, load_accelerator
from flint.cost.aten_work import work_of as aten_work_of
from flint.cost.kernels import kernel_seconds
from flint.cost.roofline import computed_as
from flint.cost.systems import load_system
from flint.graph.work import Unit
from tests.cost.test_kernels import product
from tests.stablehlo.helpers import walked
from tests.stablehlo.texts import main

FILES = Path(flint.cost.__file__).with_name("accelerators")
#: What training steps multiply in: with a scale per block mxf8, and f4 always.
TYPES = {"f64", "f32", "bf16", "f16", "f8", "mxf8", "f4", "i8", "i4"}


@pytest.mark.parametrize("name", accelerator_names())
def test_every_accelerator_states_each_type_or_that_it_has_none(name):
    table = tomllib.loads((FILES / f"{name}.toml").read_text())["matmul"]
    assert not TYPES - table.keys()
    listed = load_accelerator(name).matmul
    none = {key for key, (figure, _) in table.items() if figure == "none"}
    assert none == table.keys() - listed.keys()


@pytest.mark.parametrize(
    ("name", "dtype", "computed"),
    [
        ("b200", "mxf8", "mxf8"), ("b200", "mxf4", "f4"), ("h100-sxm", "f8E4M3FN", "f8"),
        ("h100-sxm", "mxf8", "bf16"), ("h100-sxm", "mxf4", "bf16"), ("a100-sxm", "f8E5M2", "bf16"),
        ("tpu-v7x", "mxf8", "bf16"), ("tpu-v5e", "f16", "f32"),
    ],
)  # fmt: skip
def test_what_a_product_is_computed_in(name, dtype, computed):
    """Hopper has FP8 and no scales per block: they are multiplied in before a product in bf16."""
    found = computed_as(load_accelerator(name), Unit.MATMUL, dtype)
    assert (found.unit, found.dtype) == (Unit.MATMUL, computed)


@pytest.mark.parametrize(("dtype", "part"), [("complex<f32>", "f32"), ("complex<f64>", "f64")])
def test_a_product_of_complex_numbers_is_four_of_their_parts(dtype, part):
    """(a + bi)(c + di): ac, bd, ad and bc, each added to a sum, as CGEMM counts 8mnk for 2mnk."""
    accelerator = load_accelerator("h100-sxm")
    whole, real = (computed_as(accelerator, Unit.MATMUL, kind) for kind in (dtype, part))
    assert (whole.unit, whole.dtype) == (real.unit, real.dtype)
    assert real.rate / whole.rate == 4


@pytest.mark.parametrize("name", ["dgx-a100", "dgx-h100", "dgx-b200", "mi300x-8"])
@pytest.mark.parametrize(("dtype", "part"), [("complex<f32>", "f32"), ("complex<f64>", "f64")])
def test_it_takes_four_times_as_long_on_either_unit(name, dtype, part):
    system = load_system(name)
    fixed = system.accelerator.kernel.latency + system.accelerator.launch_overhead
    whole, real = (
        kernel_seconds(product(1, 8192, 8192, 8192, dtype=kind), system)[0] - fixed
        for kind in (dtype, part)
    )
    assert whole == pytest.approx(4 * real)


@pytest.mark.parametrize("dtype", ["i16", "ui16", "i32"])
def test_wide_integers_are_multiplied_by_the_vector_units(dtype):
    """TF32 keeps 11 bits of a number."""
    found = computed_as(load_accelerator("h100-sxm"), Unit.MATMUL, dtype)
    assert (found.unit, found.dtype) == (Unit.VECTOR, "i32")


def test_products_of_a_type_reach_the_share_that_is_stated():
    system = load_system("dgx-h100")
    graph = product(1, 8192, 8192, 8192)
    accelerator = system.accelerator
    slower = replace(system, accelerator=replace(accelerator, efficiency={"bf16": 0.5}))
    fixed = accelerator.kernel.latency + accelerator.launch_overhead
    ratio = (kernel_seconds(graph, slower) - fixed) / (kernel_seconds(graph, system) - fixed)
    assert ratio == pytest.approx([2.0])


def scaled(element: str, scale: str, block: int, k: int) -> str:
    """XLA's call for a product of 64 x k and 32 x k with a scale for each block of k."""
    left, right = f"tensor<1x64x{k}x{element}>", f"tensor<1x32x{k}x{element}>"
    scales = f"tensor<1x64x{k // block}x{scale}>, tensor<1x32x{k // block}x{scale}>"
    arguments = ", ".join(
        f"%{name}: {kind}"
        for name, kind in zip("abcd", (left, right, *scales.split(", ")), strict=True)
    )
    return main(
        f"""%r = stablehlo.custom_call @__op$block_scaled_dot(%a, %b, %c, %d)
        : ({left}, {right}, {scales}) -> tensor<1x64x32xbf16>
        return %r : tensor<1x64x32xbf16>""",
        results="tensor<1x64x32xbf16>",
        arguments=arguments,
    )


@pytest.mark.parametrize(
    ("element", "scale", "block", "dtype", "bits"),
    [("f8E4M3FN", "f8E8M0FNU", 32, "mxf8", 8), ("f4E2M1FN", "f8E4M3FN", 16, "mxf4", 4)],
    ids=["MXFP8", "NVFP4"],
)
def test_block_scaled_products_have_their_unit_and_read_their_scales(
    element, scale, block, dtype, bits
):
    """64 x 256 by 32 x 256: operands of 8 or 4 bits, a byte of scale per 32 or 16 of them."""
    [node] = [n for n in walked(scaled(element, scale, block, 256)).graph if n.work.items]
    [item] = node.work.items
    assert (item.unit, item.dtype, item.flops) == (Unit.MATMUL, dtype, 2 * 64 * 32 * 256)
    elements = (64 + 32) * 256
    assert node.work.read == elements * bits // 8 + elements // block
    assert node.work.written == 64 * 32 * 2


def test_a_scaled_product_of_pytorch_with_scales_per_block_is_a_block_scaled_one():
    operands = [[((64, 256), "f8E4M3FN")], [((256, 32), "f8E4M3FN")]]
    scales = {
        "f8E4M3FN": [[((1,), "f32")]] * 2,
        "mxf8": [[((64 * 8,), "f8E8M0FNU")], [((32 * 8,), "f8E8M0FNU")]],
    }
    for dtype, each in scales.items():
        [item] = aten_work_of("_scaled_mm", [*operands, *each], [None] * 4).items
        assert (item.dtype, item.flops) == (dtype, 2 * 64 * 32 * 256)


def test_a_scaled_grouped_product_of_pytorch_multiplies_each_row_once():
    """100 rows of 64 by 8 matrices of 64 x 48."""
    arguments = [[((100, 64), "f8E4M3FN")], [((8, 64, 48), "f8E4M3FN")]]
    [item] = aten_work_of("_scaled_grouped_mm", arguments, [None] * 2).items
    assert item.dims == (1, 100, 48, 64)


def test_a_composite_of_a_scaled_product_is_one_kernel_on_its_unit():
    """64 x 256 by 32 x 256 with a byte of scale for 32 elements; the decomposition's product is in
    bf16, of operands that are cast and scaled."""
    f8, scales = "f8E4M3FN", "8xf8E8M0FNU>"
    kinds = f"tensor<64x256x{f8}>, tensor<32x256x{f8}>, tensor<64x{scales}, tensor<32x{scales}"
    names = [f"%{name}: {kind}" for name, kind in zip("abcd", kinds.split(", "), strict=True)]
    result = "tensor<64x32xf32>"
    inner = f"""func.func private @wide({", ".join(names)}) -> {result} {{
      %l = stablehlo.convert %a : (tensor<64x256x{f8}>) -> tensor<64x256xbf16>
      %r = stablehlo.convert %b : (tensor<32x256x{f8}>) -> tensor<32x256xbf16>
      %p = stablehlo.dot_general %l, %r, contracting_dims = [1] x [1]
        : (tensor<64x256xbf16>, tensor<32x256xbf16>) -> {result}
      return %p : {result}
    }}"""
    text = main(
        f"""%o = stablehlo.composite "xla.scaled_dot" %a, %b, %c, %d {{decomposition = @wide}}
        : ({kinds}) -> {result}
        return %o : {result}""",
        results=result,
        arguments=", ".join(names),
        extra=inner,
    )
    [node] = [n for n in walked(text).graph if n.work.items]
    [item] = node.work.items
    assert (item.dtype, item.dims) == ("mxf8", (1, 64, 32, 256))
    assert node.work.read == (64 + 32) * (256 + 8)


def test_products_in_8_bits_on_an_mi325x_are_not_twice_as_fast_as_in_16():
    """AMD measured 831 and 1,409 TFLOP/s at best, of normally distributed values (Completing the
    GPU Performance Picture, 2026)."""
    system = load_system("mi325x-8")
    wide, narrow = (
        kernel_seconds(product(1, 4096, 4864, 32896, dtype=dtype), system)[0]
        for dtype in ("bf16", "f8E4M3FN")
    )
    assert wide / narrow == pytest.approx(1409 / 831, rel=0.02)
