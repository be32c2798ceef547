"""Quantised types: read in every form of MLIR, counted as what they are stored as."""

from __future__ import annotations

import io

import pytest

from flint.graph.work import Unit
from flint.stablehlo.read.bindings import parse, stablehlo
from flint.stablehlo.read.reader import read_mlir
from flint.stablehlo.walker import walk

A = "tensor<4x8x!quant.uniform<i8:f32, 0.5:3>>"
#: Per channel, with a narrow range of stored values.
W = f"tensor<8x2x!quant.uniform<i8<-127:127>:f32:1, {{{', '.join(['0.1'] * 2)}}}>>"
SUM = "tensor<4x2x!quant.uniform<i32:f32, 0.05>>"
U = "tensor<3x!quant.uniform<u8:f32, 0.5:128>>"
TEXT = f"""
  func.func @main(%w: {W}, %x: tensor<4x8xf32>, %u: {U}) -> (tensor<4x2xf32>, {U}) {{
    %b = stablehlo.constant() {{value = dense<1> : tensor<4x8xi8>}} : () -> {A}
    %q = stablehlo.uniform_quantize %x : (tensor<4x8xf32>) -> {A}
    %s = stablehlo.add %q, %b : {A}
    %0 = stablehlo.dot_general %s, %w, contracting_dims = [1] x [0] : ({A}, {W}) -> {SUM}
    %1 = stablehlo.uniform_dequantize %0 : ({SUM}) -> tensor<4x2xf32>
    return %1, %u : tensor<4x2xf32>, {U}
  }}"""


def bytecode(text: str) -> bytes:
    written = io.BytesIO()
    parse(text.encode()).operation.write_bytecode(written)
    return written.getvalue()


def portable(text: str) -> bytes:
    return bytes(stablehlo.serialize_portable_artifact_str(str(parse(text.encode())), "1.8.0"))


@pytest.mark.parametrize("form", [str.encode, bytecode, portable])
def test_every_form_of_mlir_with_quantised_types_is_read(form) -> None:
    graph = walk(read_mlir(form(TEXT))).graph
    product = next(node for node in graph if node.op == "dot_general")
    # 4x8 and 8x2 bytes in, 4x2 words of 32 bits out; 2 * 4 * 2 * 8 operations on i8.
    assert (product.work.read, product.work.written) == (32 + 16, 32)
    assert [(item.unit, item.dtype, item.flops) for item in product.work.items] == [
        (Unit.MATMUL, "i8", 128)
    ]


def test_a_quantised_parameter_takes_the_bytes_of_what_it_is_stored_as() -> None:
    graph = walk(read_mlir(TEXT.encode())).graph
    assert [graph.type_of(value).bytes for value in range(3)] == [16, 128, 3]
    assert graph.type_of(2).dtype == "ui8"


def test_to_quantise_and_back_costs_what_it_reads_and_writes() -> None:
    nodes = {node.op: node for node in walk(read_mlir(TEXT.encode())).graph}
    there, back = nodes["uniform_quantize"].work, nodes["uniform_dequantize"].work
    assert (there.read, there.written, back.read, back.written) == (128, 32, 32, 32)


@pytest.mark.parametrize("stored", ["u8", "ui8"])
def test_unsigned_storage_is_read_in_both_spellings(stored: str) -> None:
    tensor = f"tensor<3x!quant.uniform<{stored}:f32, 0.5:128>>"
    text = f"func.func @main(%u: {tensor}) -> {tensor} {{ return %u : {tensor} }}"
    assert walk(read_mlir(text.encode())).graph.type_of(0).dtype == "ui8"
