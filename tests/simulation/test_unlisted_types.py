"""Element types for which a system states no rate: computed where they can be, and said."""

from __future__ import annotations

import pytest

from flint.capturing.saved_files import convert
from flint.cost.roofline import computed_as
from flint.cost.systems import load_system
from flint.graph.work import Unit
from tests.stablehlo.helpers import all_reduce

N = 4096


def product(folder, dtype: str):
    """A product of two 4096 x 4096 matrices on each of four ranks, and a small all-reduce."""
    kind = f"tensor<{N}x{N}x{dtype}>"
    file = folder / f"{dtype}.mlir"
    file.write_text(
        f"""func.func @main(%a: {kind}, %b: {kind}, %v: tensor<8xf32>) -> ({kind}, tensor<8xf32>) {{
          %c = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0]
            : ({kind}, {kind}) -> {kind}
          {all_reduce("%s", "%v")}
          return %c, %s : {kind}, tensor<8xf32>
        }}"""
    )
    return convert(file)


@pytest.mark.parametrize(
    ("system", "dtype", "unit", "listed"),
    [
        ("tpu-v4-pod", "f16", Unit.MATMUL, "f32"),  # listed there as bf16, XLA's default
        ("dgx-a100", "f8E4M3FN", Unit.MATMUL, "bf16"),
        ("dgx-h100", "i4", Unit.MATMUL, "i8"),
        ("tpu-v7x-pod", "i8", Unit.MATMUL, "bf16"),  # 8 bits of significand: exact
        ("dgx-h100", "i32", Unit.VECTOR, "i32"),
        ("tpu-v5e-pod", "f64", Unit.VECTOR, "f32"),
    ],
)
def test_a_product_is_computed_by_the_unit_that_can(system, dtype, unit, listed) -> None:
    accelerator = load_system(system).accelerator
    computed = computed_as(accelerator, Unit.MATMUL, dtype)
    rates = accelerator.matmul if unit == Unit.MATMUL else accelerator.vector
    assert (computed.unit, computed.dtype, computed.rate) == (unit, listed, rates[listed])


def test_f16_takes_as_long_as_bf16_where_only_that_is_listed(tmp_path) -> None:
    seconds = {
        dtype: product(tmp_path, dtype).simulate("tpu-v4-pod").step_seconds
        for dtype in ("bf16", "f16")
    }
    assert seconds["f16"] == seconds["bf16"]


@pytest.mark.parametrize(
    ("system", "dtype", "text"),
    [
        ("dgx-a100", "f8E5M2", "f8E5M2 products: computed as bf16 (312.0 TFLOP/s)"),
        ("tpu-v5e-pod", "f64", "f64 products: computed as f32 by the vector units (6.1 TFLOP/s)"),
    ],
)
def test_a_type_that_is_not_listed_is_reported_with_its_share(
    tmp_path, system, dtype, text
) -> None:
    (note,) = [n for n in product(tmp_path, dtype).simulate(system).notes if "lists no rate" in n]
    # The product is all but the whole step: 137 GFLOP beside an all-reduce of 32 bytes.
    assert text in note and note.endswith("% of the step is spent in these kernels")
    assert float(note.split("; ")[1].split("%")[0]) > 95


@pytest.mark.parametrize("dtype", ["bf16", "f8E4M3FN", "i8"])
def test_listed_types_are_not_mentioned(tmp_path, dtype) -> None:
    assert not any(
        "lists no rate" in n for n in product(tmp_path, dtype).simulate("dgx-h100").notes
    )


def test_a_type_that_takes_little_of_each_kernel_is_not_mentioned(tmp_path) -> None:
    # 24 exponentials of f32 beside one sum of i64, in one kernel.
    file = tmp_path / "mixed.mlir"
    numbers, places = f"tensor<{N}x{N}xf32>", f"tensor<{N}x{N}xi64>"
    lines = [f"%e{i} = stablehlo.exponential %e{i - 1} : {numbers}" for i in range(1, 25)]
    file.write_text(
        f"""func.func @main(%e0: {numbers}, %p: {places}, %v: tensor<8xf32>)
            -> ({numbers}, tensor<8xf32>) {{
          %q = stablehlo.add %p, %p : {places}
          %zero = stablehlo.constant dense<0> : {places}
          %m = stablehlo.compare GT, %q, %zero : ({places}, {places}) -> tensor<{N}x{N}xi1>
          {chr(10).join(lines)}
          %c = stablehlo.select %m, %e24, %e0 : tensor<{N}x{N}xi1>, {numbers}
          {all_reduce("%r", "%v")}
          return %c, %r : {numbers}, tensor<8xf32>
        }}"""
    )
    found = convert(file).simulate("dgx-h100", granularity="xla").notes
    assert not any("lists no rate" in note for note in found)
