"""Bytes of a kernel are found whatever the length of its longest chain of ops."""

from __future__ import annotations

import pytest

from flint.stablehlo.read.reader import read_mlir
from flint.stablehlo.rules.accessed_bytes import accessed_bytes, updated_arguments

#: More than Python's calls may nest.
LENGTH = 3_000
ROW, TABLE = 8 * 4, 64 * 8 * 4

NEGATE = "stablehlo.negate {} : tensor<64x8xf32>"
UPDATE = (
    "stablehlo.dynamic_update_slice {}, %u, %i, %i : (tensor<64x8xf32>, tensor<1x8xf32>, "
    "tensor<i32>, tensor<i32>) -> tensor<64x8xf32>"
)
SAME = "stablehlo.reshape {} : (tensor<64x8xf32>) -> tensor<64x8xf32>"


def chain(op: str):
    """A module, and the body of a function that does an op again and again."""
    names = ["%x", *(f"%v{number}" for number in range(LENGTH))]
    ops = "\n".join(f"{names[at + 1]} = {op.format(names[at])}" for at in range(LENGTH))
    text = (
        "func.func @main(%x: tensor<64x8xf32>, %u: tensor<1x8xf32>, %i: tensor<i32>) -> "
        f"tensor<64x8xf32> {{\n{ops}\nreturn {names[-1]} : tensor<64x8xf32>\n}}"
    )
    module = read_mlir(text.encode(), "chain")
    return module, module.functions["main"]


@pytest.mark.parametrize(
    ("op", "wanted"),
    [
        (NEGATE, (TABLE, TABLE, 0)),
        (SAME, (TABLE, TABLE, 0)),
        (UPDATE, (ROW + 4, TABLE, 0)),  # the rows written are more than the table has
    ],
    ids=["elementwise", "views", "updates"],
)
def test_a_long_chain_reads_its_argument_once_and_writes_its_result(op, wanted):
    assert accessed_bytes(*chain(op)) == wanted


def test_a_table_that_is_updated_often_is_updated_in_place():
    assert updated_arguments(*chain(UPDATE)) == {0: 0}
    assert updated_arguments(*chain(NEGATE)) == {}
