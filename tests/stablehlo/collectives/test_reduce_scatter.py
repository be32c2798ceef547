"""All-reduces that are reduce-scatters: what is recognised, what must not be, and the bytes.

The world is a mesh (a: 2, b: 4), rank = 4 a + b, written in the groups below.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.stablehlo.helpers import SUM, exchanged, walked

ALONG_A = [[0, 4], [1, 5], [2, 6], [3, 7]]
ALONG_B = [[0, 1, 2, 3], [4, 5, 6, 7]]
EVERYBODY = [list(range(8))]
INT = "tensor<i32>"


def tensor(*shape: int, dtype: str = "f32") -> str:
    return f"tensor<{'x'.join([*map(str, shape), dtype])}>"


def module(
    groups: list[list[int]],
    after: str,
    result: str,
    shape: tuple[int, ...] = (16, 8),
    outputs: str = "%r",
    dtype: str = "f32",
) -> str:
    region = SUM.replace("GROUPS", str(groups)).replace("f32", dtype)
    region = region.replace("SHAPE", f"{len(groups)}x{len(groups[0])}")
    whole = tensor(*shape, dtype=dtype)
    types = ", ".join([result] + [whole] * outputs.count(","))
    return f"""module attributes {{mhlo.num_partitions = 8 : i32}} {{
      func.func @main(%x: {whole}, %data: {INT}) -> ({types}) {{
        %id = stablehlo.partition_id : tensor<ui32>
        %p = stablehlo.convert %id : (tensor<ui32>) -> {INT}
        %zero = stablehlo.constant dense<0> : {INT}
        %two = stablehlo.constant dense<2> : {INT}
        %four = stablehlo.constant dense<4> : {INT}
        %eight = stablehlo.constant dense<8> : {INT}
        %a = stablehlo.divide %p, %four : {INT}
        %b = stablehlo.remainder %p, %four : {INT}
        %sum = "stablehlo.all_reduce"(%x) {region} : ({whole}) -> {whole}
        {after}
        return {outputs} : {types}
      }}
    }}"""


def sliced(
    source: str, shape: tuple[int, ...], shard: tuple[int, ...], *offsets: str, dtype: str = "f32"
) -> str:
    ints = ", ".join([INT] * len(offsets))
    return (
        f"%r = stablehlo.dynamic_slice {source}, {', '.join(offsets)}, sizes = {list(shard)} : "
        f"({tensor(*shape, dtype=dtype)}, {ints}) -> {tensor(*shard, dtype=dtype)}"
    )


def scaled(index: str, by: str, name: str = "%o") -> str:
    return f"{name} = stablehlo.multiply {index}, {by} : {INT}\n"


def looked_up(table: list[int], name: str = "%o") -> str:
    return f"""%t = stablehlo.constant dense<{table}> : tensor<{len(table)}xi32>
        %taken = stablehlo.dynamic_slice %t, %p, sizes = [1] :
          (tensor<{len(table)}xi32>, {INT}) -> tensor<1xi32>
        {name} = stablehlo.reshape %taken : (tensor<1xi32>) -> {INT}
        """


def kinds(text: str) -> dict[str, tuple[int, int, int]]:
    return exchanged(walked(text).graph)


def cut(groups: list[list[int]], before: str, shard: tuple[int, ...], *offsets: str) -> str:
    """The sum of 16 x 8 over ``groups``, of which ``shard`` at ``offsets`` is kept."""
    return module(groups, before + sliced("%sum", (16, 8), shard, *offsets), tensor(*shard))


# 16 x 8 floats are 512 bytes; a quarter of them 128, an eighth 64, a half 256.
POSITIVE: dict[str, tuple[str, int]] = {
    "offset by arithmetic": (cut(ALONG_B, scaled("%b", "%four"), (4, 8), "%o", "%zero"), 128),
    "offset from a table by partition": (
        cut(ALONG_B, looked_up([0, 4, 8, 12] * 2), (4, 8), "%o", "%zero"),
        128,
    ),
    "the outer axis": (cut(ALONG_A, scaled("%a", "%eight"), (8, 8), "%o", "%zero"), 256),
    "another dim": (cut(ALONG_B, scaled("%b", "%two"), (16, 2), "%zero", "%o"), 128),
    "both axes on one dim": (cut(EVERYBODY, scaled("%p", "%two"), (2, 8), "%o", "%zero"), 64),
    "both axes on a dim each": (
        cut(EVERYBODY, scaled("%a", "%eight") + scaled("%b", "%two", "%q"), (8, 2), "%o", "%q"),
        64,
    ),
    "groups along no axis": (
        # Rank 5 is second in its group, and 5 % 4 is 1: everybody's position is b.
        cut([[0, 5, 2, 7], [4, 1, 6, 3]], scaled("%b", "%four"), (4, 8), "%o", "%zero"),
        128,
    ),
    "an offset clamped into the array": (
        # Below 0 it is clamped to 0, beyond 8 to 8: the first and the last half.
        cut(ALONG_A, looked_up([-5] * 4 + [99] * 4), (8, 8), "%o", "%zero"),
        256,
    ),
    "through a reshape, a transpose and a convert": (
        module(
            ALONG_B,
            f"""%h = stablehlo.convert %sum : ({tensor(16, 8)}) -> {tensor(16, 8, dtype="bf16")}
            %v = stablehlo.reshape %h : (tensor<16x8xbf16>) -> tensor<4x4x8xbf16>
            %w = stablehlo.transpose %v, dims = [2, 0, 1] :
              (tensor<4x4x8xbf16>) -> tensor<8x4x4xbf16>
            """
            + sliced("%w", (8, 4, 4), (8, 1, 4), "%zero", "%b", "%zero", dtype="bf16"),
            tensor(8, 1, 4, dtype="bf16"),
        ),
        128,
    ),
    "an offset that stands before the all-reduce in the text": (
        cut(ALONG_B, "", (4, 8), "%o", "%zero").replace(
            "%sum =", scaled("%b", "%four") + "%sum ="
        ),
        128,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", POSITIVE)
def test_recognised(name: str) -> None:
    text, shard = POSITIVE[name]
    walk = walked(text)
    assert exchanged(walk.graph) == {"reduce_scatter": (1, 512, shard)}
    (item,) = walk.graph.tables.communications
    assert (item.reduction, item.origin) == ("add", "all_reduce")
    (output,) = walk.graph.outputs
    # The slice is gone, what stood before it works on the shard, and the result's type is right.
    assert "dynamic_slice" not in {n.op for n in walk.graph if n.result_types[0].dtype != "i32"}
    assert {n.result_types[0].elements for n in walk.graph if n.op in ("convert", "transpose")} <= {
        1,
        shard // 4,
    }
    assert walk.graph.type_of(int(output)).elements == shard // 4
    assert exchanged(walked(text, reduce_scatter=False).graph) == {"all_reduce": (1, 512, 512)}


def test_a_convert_behind_it_reads_and_writes_a_shard() -> None:
    text, _ = POSITIVE["through a reshape, a transpose and a convert"]
    (convert,) = [n for n in walked(text).graph if n.op == "convert" and n.flops > 1]
    # 32 elements: read as f32, written as bf16.
    assert (convert.flops, convert.work.read, convert.work.written) == (32, 128, 64)


def slice_by(after: str, shard: tuple[int, ...] = (4, 8), offset: str = "%o", **more: Any) -> str:
    return module(
        more.pop("groups", ALONG_B),
        after + sliced("%sum", (16, 8), shard, offset, "%zero"),
        tensor(*shard),
        **more,
    )


NEGATIVE: dict[str, str] = {
    "the offset of another axis": slice_by(scaled("%a", "%eight"), (8, 8)),
    "shards in reversed order": slice_by(looked_up([12, 8, 4, 0] * 2)),
    "one rank with another's shard": slice_by(looked_up([0, 4, 8, 12, 0, 4, 12, 8])),
    "half of it on a group of four": slice_by(looked_up([0, 8, 0, 8] * 2), (8, 8)),
    "two ranks with one shard": slice_by(looked_up([0, 4, 8, 8] * 2)),
    "an offset that depends on data": slice_by("", offset="%data"),
    "an offset between shards": slice_by(looked_up([1, 5, 9, 12] * 2)),
    "the same slice on every rank": slice_by("", offset="%four"),
    "a second use of the sum": slice_by(scaled("%b", "%four"), outputs="%r, %sum"),
    "groups of other members": slice_by(
        scaled("%b", "%four"), groups=[[0, 2, 5, 7], [4, 1, 6, 3]]
    ),
    "groups in another order": slice_by(
        scaled("%b", "%four"), groups=[[3, 2, 1, 0], [7, 6, 5, 4]]
    ),
    "a bitwise look at a wider slice": module(
        ALONG_B,
        f"""%o = stablehlo.multiply %b, %four : {INT}
        %u = stablehlo.negate %sum : {tensor(16, 8)}
        """ + sliced("%u", (16, 8), (4, 8), "%o", "%zero"),
        tensor(4, 8),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", NEGATIVE)
def test_not_recognised(name: str) -> None:
    assert kinds(NEGATIVE[name]) == {"all_reduce": (1, 512, 512)}


def test_the_order_of_the_group_decides_which_shard_is_mine() -> None:
    # The same program as a negative control above, with offsets that fit its groups.
    text = slice_by(looked_up([12, 8, 4, 0] * 2), groups=[[3, 2, 1, 0], [7, 6, 5, 4]])
    assert kinds(text) == {"reduce_scatter": (1, 512, 128)}


def test_a_function_called_with_two_offsets_is_recognised_for_the_right_one() -> None:
    # First call: rank b's own quarter.  Second: data.  The second must not inherit the first's.
    region = SUM.replace("GROUPS", str(ALONG_B)).replace("SHAPE", "2x4")
    whole, shard = tensor(16, 8), tensor(4, 8)
    text = f"""module attributes {{mhlo.num_partitions = 8 : i32}} {{
      func.func private @f(%x: {whole}, %i: {INT}) -> {shard} {{
        %zero = stablehlo.constant dense<0> : {INT}
        %sum = "stablehlo.all_reduce"(%x) {region} : ({whole}) -> {whole}
        %four = stablehlo.constant dense<4> : {INT}
        {scaled("%i", "%four")}
        {sliced("%sum", (16, 8), (4, 8), "%o", "%zero")}
        return %r : {shard}
      }}
      func.func @main(%x: {whole}, %data: {INT}) -> ({shard}, {shard}) {{
        %id = stablehlo.partition_id : tensor<ui32>
        %p = stablehlo.convert %id : (tensor<ui32>) -> {INT}
        %four = stablehlo.constant dense<4> : {INT}
        %b = stablehlo.remainder %p, %four : {INT}
        %u = func.call @f(%x, %b) : ({whole}, {INT}) -> {shard}
        %v = func.call @f(%x, %data) : ({whole}, {INT}) -> {shard}
        return %u, %v : {shard}, {shard}
      }}
    }}"""
    assert kinds(text) == {"reduce_scatter": (1, 512, 128), "all_reduce": (1, 512, 512)}


def test_equal_offsets_are_evaluated_once_for_all_ranks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from flint.stablehlo.collectives import reduce_scatter

    calls = []
    original = reduce_scatter.evaluate
    monkeypatch.setattr(
        reduce_scatter, "evaluate", lambda *args: calls.append(1) or original(*args)
    )
    region = SUM.replace("GROUPS", str(ALONG_B)).replace("SHAPE", "2x4")
    many = "\n".join(
        f"""%sum{i} = "stablehlo.all_reduce"(%x) {region}
          : ({tensor(16, 8)}) -> {tensor(16, 8)}
        {sliced(f"%sum{i}", (16, 8), (4, 8), "%o", "%zero").replace("%r", f"%r{i}")}"""
        for i in range(20)
    )
    text = module(ALONG_B, scaled("%b", "%four") + many, tensor(4, 8), outputs="%r0")
    # The module's own first all-reduce is not sliced.
    assert kinds(text)["reduce_scatter"] == (20, 20 * 512, 20 * 128)
    assert len(calls) == 1


def test_positions_of_ragged_groups_are_not_shards() -> None:
    # A group of four and a group of two in a world of six: not the same shards for everybody.
    groups = np.array([[0, 1, 2, 3], [4, 5, -1, -1]]).tolist()
    text = slice_by(looked_up([0, 4, 8, 12, 0, 4]), groups=groups).replace(
        "num_partitions = 8", "num_partitions = 6"
    )
    text = (
        text.replace(", use_global_device_ids", "")
        .replace("use_global_device_ids", "")
        .replace("handle = 1, type = 1>,", "handle = 0, type = 0>")
    )
    assert kinds(text) == {"all_reduce": (1, 512, 512)}
