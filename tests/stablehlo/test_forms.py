"""Forms in which a module is saved, and a file's statements of entry and sizes."""

from __future__ import annotations

import gzip
import io
from pathlib import Path

import numpy as np
import pytest

from flint.errors import FlintError, UsageError
from flint.frontends.saved import parsing
from flint.stablehlo.read.bindings import ir, make_context, parse, stablehlo
from flint.stablehlo.read.reader import read_mlir
from flint.stablehlo.walker import walk
from tests.stablehlo.helpers import all_reduce, walked
from tests.stablehlo.texts import F, main, ops


def test_a_constant_of_the_largest_unsigned_number_is_read() -> None:
    text = main(
        f"""%a = stablehlo.constant dense<18446744073709551615> : tensor<ui64>
        %b = stablehlo.constant dense<[1, -3]> : tensor<2xi4>
        return %x : {F}"""
    )
    assert ops(walked(text).graph) == ["constant", "constant"]


FORMS = main(
    f"""%z = stablehlo.constant dense<0> : tensor<i32>
    %r:2 = stablehlo.while(%i = %z, %v = %x) : tensor<i32>, {F}
    cond {{
      %n = stablehlo.constant dense<3> : tensor<i32>
      %p = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %p : tensor<i1>
    }} do {{
      %o = stablehlo.constant dense<1> : tensor<i32>
      %j = stablehlo.add %i, %o : tensor<i32>
      {all_reduce("%w", "%v")}
      stablehlo.return %j, %w : tensor<i32>, {F}
    }}
    return %r#1 : {F}"""
)


def columns(data: bytes) -> list[object]:
    graph = walk(parsing.parse(data)).graph
    names = ("kind", "role", "operand", "operand_ptr", "result_type", "bytes_read", "outputs")
    inner = graph.loops[0].body
    return [
        *[getattr(part, name).tolist() for part in (graph, inner) for name in names],
        graph.tables.communications,
        graph.tables.ops,
    ]


def test_text_bytecode_gzip_and_portable_artifacts_give_the_same_graph() -> None:
    data = FORMS.encode()
    module = parse(data)
    stream = io.BytesIO()
    module.operation.write_bytecode(stream)
    # Portable artifacts know no attributes of other dialects than StableHLO's and MLIR's own.
    plain = data.replace(b"attributes {mhlo.num_partitions = 4 : i32}", b"")
    artifact = stablehlo.serialize_portable_artifact(parse(plain), stablehlo.get_current_version())
    expected = columns(data)
    assert columns(stream.getvalue()) == expected
    assert columns(gzip.compress(data)) == expected
    assert columns(bytes(artifact)) == expected


def test_an_op_of_a_text_without_locations_is_named_by_its_line_in_the_file() -> None:
    text = main(f"%a = stablehlo.sine %x : {F}\nreturn %a : {F}")
    line = text[: text.index("stablehlo.sine")].count("\n") + 1
    sources = walk(read_mlir(text.encode(), "step.mlir")).graph.tables.sources
    assert {(at.file, at.line) for at in sources if at.file} == {("step.mlir", line)}


def test_arrays_of_complex_numbers_are_read() -> None:
    kind = "tensor<2xcomplex<f32>>"
    constant = f"%c = stablehlo.constant dense<[(1.0,2.0),(3.0,4.0)]> : {kind}"
    text = main(f"{constant}\n return %c : {kind}", results=kind)
    assert walked(text).graph.type_of(2).bytes == 16


def test_sizes_beyond_all_machines_are_an_error_that_names_the_op() -> None:
    kind = "tensor<1000000000x1000000000x1000xf32>"
    text = main(f"%c = stablehlo.add %z, %z : {kind}\n return %c : {kind}",
                results=kind, arguments=f"%z: {kind}")  # fmt: skip
    with pytest.raises(FlintError, match=r"add .*more than 2\*\*60"):
        walked(text)


TWO = f"""module {{
  func.func @first(%x: {F}) -> {F} {{
    %r = stablehlo.sine %x : {F}
    return %r : {F}
  }}
  func.func @second(%x: {F}) -> {F} {{
    %r = stablehlo.cosine %x : {F}
    return %r : {F}
  }}
}}"""


def test_a_module_without_main_needs_an_entry() -> None:
    with pytest.raises(FlintError, match=r"--entry: @first, @second"):
        read_mlir(TWO.encode(), "two.mlir")
    graph = walk(read_mlir(TWO.encode(), "two.mlir", "second")).graph
    assert ops(graph) == ["cosine"]
    with pytest.raises(UsageError, match=r"no function @third; choose from @first, @second"):
        read_mlir(TWO.encode(), "two.mlir", "third")


def test_a_text_of_several_modules_is_an_error_that_says_so() -> None:
    with pytest.raises(FlintError, match=r"two.mlir: it holds 2 modules; make a file of the one"):
        read_mlir(f"{TWO}\n// -----\n{TWO}".encode(), "two.mlir")


def test_a_context_is_made_with_every_dialect() -> None:
    with make_context() as context:
        assert all(context.is_registered_operation(name) for name in (
            "stablehlo.add", "chlo.erf", "mhlo.copy", "sdy.mesh", "func.func",
        ))  # fmt: skip
        assert ir.IntegerAttr.parse("3 : i32").value == 3
    assert np.int64(3) == 3


def test_constants_that_torch_mlir_leaves_in_another_dialect_are_constants() -> None:
    """Its StableHLO has ``arith.constant``: a loop's bound, and weights, which cost nothing."""
    text = main(
        f"""%w = arith.constant dense<0.5> : {F}
        %zero = arith.constant dense<0> : tensor<i64>
        %r:2 = stablehlo.while(%i = %zero, %v = %x) : tensor<i64>, {F} cond {{
          %n = arith.constant dense<3> : tensor<i64>
          %c = stablehlo.compare LT, %i, %n : (tensor<i64>, tensor<i64>) -> tensor<i1>
          stablehlo.return %c : tensor<i1>
        }} do {{
          %one = arith.constant dense<1> : tensor<i64>
          %j = stablehlo.add %i, %one : tensor<i64>
          %u = stablehlo.multiply %v, %w : {F}
          stablehlo.return %j, %u : tensor<i64>, {F}
        }}
        return %r#1 : {F}"""
    )
    result = walked(text)
    assert [loop.trip_count for loop in result.graph.loops] == [3]
    assert not result.warnings


def test_an_early_portable_artifact_that_does_not_say_so_is_one() -> None:
    data = Path("tests/data/exported/approx_top_k_2023.mlirbc").read_bytes()
    module = read_mlir(data)
    assert [op.attr("target") for op in module.functions["main"].ops][-1] == "ApproxTopK"
    results = [str(module.type_of(value)) for value in module.functions["main"].yields]
    assert results == ["3xf32", "3xi32"]  # as the text beside it in jax says


def test_a_librarys_own_bytes_are_no_damage() -> None:
    text = main(
        f"""%a = stablehlo.custom_call @hipsolver_syevd(%x) {{backend_config = "\\00\\FF\\9C"}}
          : ({F}) -> {F}
        return %a : {F}"""
    )
    stream = io.BytesIO()
    parse(text.encode()).operation.write_bytecode(stream)
    assert ops(walk(parsing.parse(stream.getvalue())).graph) == ["hipsolver_syevd"]
