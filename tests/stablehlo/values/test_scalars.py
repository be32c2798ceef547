"""Scalar expressions against the StableHLO reference interpreter.

A random straight-line program over the partition id is evaluated for eight partitions at once by
us, and run once per partition by the interpreter with the id put in as a constant.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from flint.graph.scalars import MAX_SIZE, Place, Scalar, combine, evaluate
from flint.stablehlo.read.reader import read_mlir
from flint.stablehlo.values.scalars import block_scalars
from tests.stablehlo.helpers import interpreted

TYPES = ("i8", "i16", "i32", "i64", "ui8", "ui16", "ui32", "ui64")
ANY = ("add", "subtract", "multiply", "minimum", "maximum", "and", "or", "xor")
SHIFTS = ("shift_left", "shift_right_arithmetic", "shift_right_logical")
DIRECTIONS = ("EQ", "NE", "LT", "LE", "GT", "GE")
PARTITIONS = 8


def bits(kind: str) -> int:
    return int(kind.lstrip("ui"))


def extremes(kind: str) -> tuple[int, int]:
    if kind.startswith("u"):
        return 0, 2 ** bits(kind) - 1
    return -(2 ** (bits(kind) - 1)), 2 ** (bits(kind) - 1) - 1


def numbers(kind: str) -> st.SearchStrategy[int]:
    low, high = extremes(kind)
    small = st.integers(max(low, -9), 9)
    edges = st.sampled_from([low, low + 1, high - 1, high, high // 2, high // 2 + 1])
    return small | edges | st.integers(low, high)


@st.composite
def programs(draw: Any) -> tuple[str, list[str]]:
    """(lines of a function body, its values' types); value ``i`` is ``%i``, %0 the partition id."""
    kinds = ["ui32"]
    lines: list[str] = []

    def emit(kind: str, line: str) -> int:
        lines.append(f"    %{len(kinds)} = stablehlo.{line}")
        kinds.append(kind)
        return len(kinds) - 1

    def number(kind: str, value: int) -> int:
        return emit(kind, f"constant dense<{value}> : tensor<{kind}>")

    def value(kind: str) -> int:
        known = [i for i, other in enumerate(kinds) if other == kind]
        if known and draw(st.integers(0, 3)):
            return int(draw(st.sampled_from(known)))
        if kind == "i1":
            other = number("ui32", draw(numbers("ui32")))
            operands = "(tensor<ui32>, tensor<ui32>)"
            way = draw(st.sampled_from(DIRECTIONS))
            return emit(kind, f"compare {way}, %0, %{other} : {operands} -> tensor<i1>")
        if draw(st.booleans()):
            return number(kind, draw(numbers(kind)))
        return convert(kind)

    def convert(kind: str) -> int:
        source = draw(st.sampled_from([i for i, other in enumerate(kinds) if other in TYPES]))
        return emit(kind, f"convert %{source} : (tensor<{kinds[source]}>) -> tensor<{kind}>")

    for _ in range(draw(st.integers(1, 12))):
        kind = draw(st.sampled_from(TYPES))
        shape = f"tensor<{kind}>"
        what = draw(st.sampled_from(
            (*ANY, "divide", "remainder", "shift", "unary", "compare", "select", "clamp", "table",
             "convert", "boolean", "bitcast", "broadcast")
        ))  # fmt: skip
        if what in ANY:
            emit(kind, f"{what} %{value(kind)}, %{value(kind)} : {shape}")
        elif what in ("divide", "remainder"):
            # Neither division by zero nor the one overflow has a defined result.
            divisor = number(kind, draw(numbers(kind).filter(lambda n: n not in (0, -1))))
            emit(kind, f"{what} %{value(kind)}, %{divisor} : {shape}")
        elif what == "shift":
            amount = number(kind, draw(st.integers(0, min(bits(kind) + 1, extremes(kind)[1]))))
            emit(kind, f"{draw(st.sampled_from(SHIFTS))} %{value(kind)}, %{amount} : {shape}")
        elif what == "unary":
            signed = ("abs", "negate", "sign", "not") if kind.startswith("i") else ("not",)
            emit(kind, f"{draw(st.sampled_from(signed))} %{value(kind)} : {shape}")
        elif what == "compare":
            way = draw(st.sampled_from(DIRECTIONS))
            pair = f"({shape}, {shape})"
            emit("i1", f"compare {way}, %{value(kind)}, %{value(kind)} : {pair} -> tensor<i1>")
        elif what == "select":
            picked = f"%{value('i1')}, %{value(kind)}, %{value(kind)}"
            emit(kind, f"select {picked} : tensor<i1>, {shape}")
        elif what == "clamp":
            emit(kind, f"clamp %{value(kind)}, %{value(kind)}, %{value(kind)} : {shape}")
        elif what == "table":
            rows = draw(st.lists(numbers(kind), min_size=2, max_size=6))
            table = emit("table", f"constant dense<{rows}> : tensor<{len(rows)}x{kind}>")
            # The interpreter takes indices for signed; those of half the unsigned range are not.
            index = draw(st.sampled_from([*TYPES[:4], "ui32"]))
            place = 0 if index == "ui32" else value(index)
            taken = emit(
                "one",
                f"dynamic_slice %{table}, %{place}, sizes = [1] : "
                f"(tensor<{len(rows)}x{kind}>, tensor<{index}>) -> tensor<1x{kind}>",
            )
            emit(kind, f"reshape %{taken} : (tensor<1x{kind}>) -> tensor<{kind}>")
        elif what == "convert":
            convert(kind)
        elif what == "boolean":
            op = draw(
                st.sampled_from(("add", "and", "maximum", "minimum", "multiply", "or", "xor"))
            )
            emit("i1", f"{op} %{value('i1')}, %{value('i1')} : tensor<i1>")
            emit("i1", f"not %{len(kinds) - 1} : tensor<i1>")
            emit(kind, f"convert %{len(kinds) - 1} : (tensor<i1>) -> {shape}")
        elif what == "bitcast":
            other = f"{'i' if kind.startswith('u') else 'ui'}{bits(kind)}"
            emit(kind, f"bitcast_convert %{value(other)} : (tensor<{other}>) -> {shape}")
        else:
            one = f"tensor<1x{kind}>"
            wide = emit("one", f"broadcast_in_dim %{value(kind)}, dims = [] : ({shape}) -> {one}")
            emit(kind, f"reshape %{wide} : ({one}) -> {shape}")
    return "\n".join(lines), kinds


def module(first: str, body: str, kinds: list[str]) -> str:
    shown = [i for i, kind in enumerate(kinds) if kind in (*TYPES, "i1")]
    results = ", ".join(f"tensor<{kinds[i]}>" for i in shown)
    values = ", ".join(f"%{i}" for i in shown)
    return (
        f"func.func @main() -> ({results}) {{\n    %0 = stablehlo.{first} : tensor<ui32>\n"
        f"{body}\n    return {values} : {results}\n}}"
    )


@given(programs())
def test_expressions_are_what_the_interpreter_computes(program: tuple[str, list[str]]) -> None:
    body, kinds = program
    read = read_mlir(module("partition_id", body, kinds).encode())
    block = read.functions["main"]
    found = block_scalars(block, read, {}, lambda _: None, lambda _: None)
    runs = [
        [int(value) for value in interpreted(module(f"constant dense<{i}>", body, kinds))]
        for i in range(PARTITIONS)
    ]
    place = Place(partitions=np.arange(PARTITIONS))
    for number, value in enumerate(block.yields):
        scalar = found.get(value)
        kind = read.type_of(value).dtype
        if scalar is None:
            continue
        assert kind != "ui64", "its values do not fit int64"
        ours = np.broadcast_to(np.asarray(evaluate(scalar, place)).astype(np.int64), PARTITIONS)
        assert ours.tolist() == [run[number] for run in runs], (kind, block.ops[number])


def test_nothing_but_ui64_is_given_up() -> None:
    body = """
    %1 = stablehlo.constant dense<3> : tensor<ui32>
    %2 = stablehlo.subtract %0, %1 : tensor<ui32>
    %3 = stablehlo.shift_right_logical %2, %1 : tensor<ui32>
    %4 = stablehlo.convert %3 : (tensor<ui32>) -> tensor<i8>
    %5 = stablehlo.not %4 : tensor<i8>"""
    kinds = ["ui32", "ui32", "ui32", "ui32", "i8", "i8"]
    read = read_mlir(module("partition_id", body, kinds).encode())
    block = read.functions["main"]
    found = block_scalars(block, read, {}, lambda _: None, lambda _: None)
    assert all(value in found for value in block.yields)
    # 0 - 3 wraps to 2**32 - 3; shifted right by 3 that is 2**29 - 1, whose low byte is -1.
    assert evaluate(found[block.yields[2]], Place(partitions=0)) == 2**32 - 3
    assert evaluate(found[block.yields[4]], Place(partitions=0)) == -1


def test_an_expression_that_doubles_is_given_up_before_it_is_evaluated() -> None:
    scalar: Scalar | None = Scalar("partition_id")
    for _ in range(100):
        assert scalar is None or scalar.size <= MAX_SIZE
        scalar = None if scalar is None else combine("add", (scalar, scalar))
    assert scalar is None
