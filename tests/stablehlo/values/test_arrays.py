"""Arrays folded from iotas and constants, against the reference interpreter; and who needs them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flint.graph.scalars import Place, constant, evaluate, iteration
from flint.passes.branches import split_by_rank
from flint.stablehlo.read.reader import read_mlir
from flint.stablehlo.values.arrays import Array, array_of, is_array, is_constant
from tests.stablehlo.helpers import executions, interpreted, walked

TYPES = ("i8", "i32", "i64", "ui8", "ui32")
BINARY = ("add", "subtract", "multiply", "minimum", "maximum", "and", "or", "xor")


def tensor(shape: tuple[int, ...], kind: str) -> str:
    return f"tensor<{'x'.join([*map(str, shape), kind])}>"


@st.composite
def programs(draw: st.DrawFn) -> str:
    """A function of nothing that returns every array it makes."""
    made: list[tuple[tuple[int, ...], str]] = []
    lines: list[str] = []
    sides = st.integers(1, 4)

    def emit(shape: tuple[int, ...], kind: str, text: str) -> int:
        lines.append(f"%{len(made)} = stablehlo.{text}")
        made.append((shape, kind))
        return len(made) - 1

    for _ in range(draw(st.integers(2, 10))):
        kind = draw(st.sampled_from(TYPES))
        what = draw(st.sampled_from(("iota", "constant", "splat", *(["more"] * 6 if made else []))))
        shape = (draw(sides), draw(sides))
        if what == "iota":
            emit(shape, kind, f"iota dim = {draw(st.integers(0, 1))} : {tensor(shape, kind)}")
            continue
        if what in ("constant", "splat"):
            low, high = (0, 255) if kind[0] == "u" else (-128, 127)
            numbers = st.integers(low, high)
            row = st.lists(numbers, min_size=shape[1], max_size=shape[1])
            rows = draw(st.lists(row, min_size=shape[0], max_size=shape[0]))
            value = rows if what == "constant" else draw(numbers)
            emit(shape, kind, f"constant dense<{value}> : {tensor(shape, kind)}")
            continue
        x = draw(st.integers(0, len(made) - 1))
        shape, kind = made[x]
        (rows_, columns), source = shape, tensor(shape, kind)
        what = draw(
            st.sampled_from(
                ("reshape", "transpose", "broadcast", "slice", "concatenate", "reverse", "binary",
                 "compare", "convert", "negate")
            )
        )  # fmt: skip
        if what == "reshape":
            new = (columns, rows_)
            emit(new, kind, f"reshape %{x} : ({source}) -> {tensor(new, kind)}")
        elif what == "transpose":
            new = (columns, rows_)
            emit(new, kind, f"transpose %{x}, dims = [1, 0] : ({source}) -> {tensor(new, kind)}")
        elif what == "broadcast" and rows_ * columns <= 16:
            flat, new = (rows_ * columns,), (3, rows_ * columns)
            lines.append(
                f"%f{x}_{len(made)} = stablehlo.reshape %{x} : ({source}) -> {tensor(flat, kind)}"
            )
            text = f"broadcast_in_dim %f{x}_{len(made)}, dims = [1] : "
            emit(new, kind, f"{text}({tensor(flat, kind)}) -> {tensor(new, kind)}")
        elif what == "slice":
            first = draw(st.integers(0, columns - 1))
            new = (rows_, len(range(first, columns, 2)))
            bounds = f"0:{rows_}, {first}:{columns}:2"
            emit(new, kind, f"slice %{x} [{bounds}] : ({source}) -> {tensor(new, kind)}")
        elif what == "concatenate":
            new = (2 * rows_, columns)
            types = f"({source}, {source}) -> {tensor(new, kind)}"
            emit(new, kind, f"concatenate %{x}, %{x}, dim = 0 : {types}")
        elif what == "reverse":
            emit(shape, kind, f"reverse %{x}, dims = [{draw(st.integers(0, 1))}] : {source}")
        elif what == "compare":
            y = draw(st.sampled_from([i for i, item in enumerate(made) if item == made[x]]))
            result = tensor(shape, "i1")
            new = emit((0, 0), "i1", f"compare LT, %{x}, %{y} : ({source}, {source}) -> {result}")
            made[new] = (shape, "i1")
            emit(shape, "i8", f"convert %{new} : ({result}) -> {tensor(shape, 'i8')}")
            made[new] = (shape, "hidden")
        elif what == "convert":
            other = draw(st.sampled_from(TYPES))
            emit(shape, other, f"convert %{x} : ({source}) -> {tensor(shape, other)}")
        elif what == "negate" and kind[0] == "i":
            emit(shape, kind, f"negate %{x} : {source}")
        else:
            y = draw(st.sampled_from([i for i, item in enumerate(made) if item == made[x]]))
            emit(shape, kind, f"{draw(st.sampled_from(BINARY))} %{x}, %{y} : {source}")
    shown = [i for i, (_, kind) in enumerate(made) if kind != "hidden"]
    types = ", ".join(tensor(*made[i]) for i in shown)
    body = "\n".join(lines)
    values = ", ".join(f"%{i}" for i in shown)
    return f"func.func @main() -> ({types}) {{\n{body}\nreturn {values} : {types}\n}}"


@given(programs().filter(lambda text: "hidden" not in text))
def test_arrays_are_what_the_interpreter_computes(text: str) -> None:
    module = read_mlir(text.encode())
    block = module.functions["main"]
    known: dict[int, Array | None] = {}
    for op in block.ops:
        assert is_array(module.type_of(op.results[0]))
        known[op.results[0]] = array_of(op, module, lambda _: None, known.get)
    for value, expected in zip(block.yields, interpreted(text), strict=True):
        array = known[value]
        assert array is not None
        assert np.array_equal(array, expected)


#: A part of a table at a place, computed with, and one element of what comes out at that place.
PART = """func.func @main() -> (tensor<2x2xi32>, tensor<1x1xi32>) {
  %i = stablehlo.constant dense<PLACE> : tensor<i32>
  %j = stablehlo.constant dense<1> : tensor<i32>
  %n = stablehlo.iota dim = 0 : tensor<24xi32>
  %t = stablehlo.reshape %n : (tensor<24xi32>) -> tensor<6x4xi32>
  %p = stablehlo.dynamic_slice %t, %i, %j, sizes = [3, 2] :
    (tensor<6x4xi32>, tensor<i32>, tensor<i32>) -> tensor<3x2xi32>
  %s = stablehlo.slice %p [0:3:2, 0:2] : (tensor<3x2xi32>) -> tensor<2x2xi32>
  %r = stablehlo.reverse %s, dims = [1] : tensor<2x2xi32>
  %b = stablehlo.broadcast_in_dim %i, dims = [] : (tensor<i32>) -> tensor<2x2xi32>
  %m = stablehlo.multiply %r, %b : tensor<2x2xi32>
  %e = stablehlo.dynamic_slice %m, %i, %j, sizes = [1, 1] :
    (tensor<2x2xi32>, tensor<i32>, tensor<i32>) -> tensor<1x1xi32>
  return %m, %e : tensor<2x2xi32>, tensor<1x1xi32>
}"""


@pytest.mark.parametrize("place", [-3, 0, 1, 2, 3, 9])
def test_a_part_at_a_computed_place_is_what_the_interpreter_computes(place: int) -> None:
    """The place is an iteration of a loop, which is known only when expressions are evaluated."""
    text = PART.replace("PLACE", str(place))
    module = read_mlir(text.encode())
    block = module.functions["main"]
    scalars = {block.ops[0].results[0]: iteration(0), block.ops[1].results[0]: constant(1)}
    known: dict[int, Array | None] = {}
    for op in block.ops[2:]:
        known[op.results[0]] = array_of(op, module, scalars.get, known.get)
    for value, expected in zip(block.yields, interpreted(text), strict=True):
        array = known[value]
        assert array is not None and not is_constant(array)
        at = Place(iterations={0: place})
        found = [int(evaluate(item, at)) for item in array.reshape(-1)]
        assert found == np.asarray(expected).reshape(-1).tolist()


@pytest.mark.parametrize(
    "kind",
    [
        "tensor<70000xi32>",
        "tensor<?xi32, #stablehlo.type_extensions<bounds = [4]>>",
        "tensor<0xi32>",
    ],
)
def test_no_large_empty_or_dynamic_array_is_made(kind: str) -> None:
    text = f"""func.func @main(%x: {kind}) -> {kind} {{
      %r = stablehlo.add %x, %x : {kind}
      return %r : {kind}
    }}"""
    module = read_mlir(text.encode())
    assert not is_array(module.type_of(module.functions["main"].yields[0]))


def test_a_large_splat_takes_no_memory() -> None:
    kind = "tensor<1000000x1000000xi32>"
    text = f"""func.func @main() -> {kind} {{
      %r = stablehlo.constant dense<7> : {kind}
      return %r : {kind}
    }}"""
    assert walked(text).graph.type_of(0).elements == 10**12


#: A loop over jnp.arange as JAX writes it: the array is carried, and sliced with the counter.
ARANGE = """module attributes {mhlo.num_partitions = 4 : i32} {
  func.func private @at(%a: tensor<6xi32>, %i: tensor<i32>) -> tensor<i32> {
    %s = stablehlo.dynamic_slice %a, %i, sizes = [1] : (tensor<6xi32>, tensor<i32>) -> tensor<1xi32>
    %r = stablehlo.reshape %s : (tensor<1xi32>) -> tensor<i32>
    return %r : tensor<i32>
  }
  func.func private @body(%i: tensor<i32>, %a: tensor<6xi32>, %v: tensor<8xf32>, %k: tensor<i32>)
      -> (tensor<6xi32>, tensor<8xf32>) {
    %t = func.call @at(%a, %i) : (tensor<6xi32>, tensor<i32>) -> tensor<i32>
    %p = stablehlo.compare GE, %t, %k : (tensor<i32>, tensor<i32>) -> tensor<i1>
    %r = "stablehlo.if"(%p) ({
      %x = stablehlo.tanh %v : tensor<8xf32>
      "stablehlo.return"(%x) : (tensor<8xf32>) -> ()
    }, {
      %x = stablehlo.negate %v : tensor<8xf32>
      "stablehlo.return"(%x) : (tensor<8xf32>) -> ()
    }) : (tensor<i1>) -> tensor<8xf32>
    return %a, %r : tensor<6xi32>, tensor<8xf32>
  }
  func.func @main(%x: tensor<8xf32>, %data: tensor<6xi32>) -> tensor<8xf32> {
    %id = stablehlo.partition_id : tensor<ui32>
    %k = stablehlo.convert %id : (tensor<ui32>) -> tensor<i32>
    %z = stablehlo.constant dense<0> : tensor<i32>
    %a = stablehlo.iota dim = 0 : tensor<6xi32>
    %r:3 = stablehlo.while(%i = %z, %b = ARRAY, %v = %x) :
        tensor<i32>, tensor<6xi32>, tensor<8xf32>
    cond {
      %n = stablehlo.constant dense<6> : tensor<i32>
      %p = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %p : tensor<i1>
    } do {
      %c:2 = func.call @body(%i, %b, %v, %k) :
        (tensor<i32>, tensor<6xi32>, tensor<8xf32>, tensor<i32>) -> (tensor<6xi32>, tensor<8xf32>)
      %o = stablehlo.constant dense<1> : tensor<i32>
      %j = stablehlo.add %i, %o : tensor<i32>
      stablehlo.return %j, %c#0, %c#1 : tensor<i32>, tensor<6xi32>, tensor<8xf32>
    }
    SECOND
    return %r#2 : tensor<8xf32>
  }
}"""


def test_a_loop_over_an_iota_tells_ranks_and_iterations_apart() -> None:
    graph = walked(ARANGE.replace("ARRAY", "%a").replace("SECOND", "")).graph
    splits = split_by_rank(graph, 4)
    assert len(splits) == 4
    for split in splits:
        (rank,) = split.ranks.array().tolist()
        # tanh from iteration `rank` on, negate before.
        assert executions(split.graph, "negate") == rank
        assert executions(split.graph, "tanh") == 6 - rank


def test_an_array_that_an_earlier_call_passed_is_not_taken_for_data() -> None:
    call = """%u:2 = func.call @body(%z, %data, %x, %k) :
      (tensor<i32>, tensor<6xi32>, tensor<8xf32>, tensor<i32>) -> (tensor<6xi32>, tensor<8xf32>)"""
    walk = walked(ARANGE.replace("ARRAY", "%a").replace("SECOND", call))
    assert len(walk.graph.loops[0].body.conditionals) == 1
    assert not walk.graph.conditionals
    assert sum(walk.warnings.values()) == 1
