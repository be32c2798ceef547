"""How many devices a module is for, and what a mesh of another size means."""

from __future__ import annotations

import pytest

from flint.errors import UsageError
from flint.mesh.mesh import Mesh
from flint.stablehlo.collectives.world import World
from flint.stablehlo.read.reader import read_mlir
from flint.stablehlo.walker import walk
from tests.stablehlo.texts import F, main

SUM = """%r = "stablehlo.all_reduce"(%x) ({{
          ^bb0(%l: tensor<f32>, %s: tensor<f32>):
            %m = stablehlo.add %l, %s : tensor<f32>
            stablehlo.return %m : tensor<f32>
        }}) {{replica_groups = {groups}}} : ({f}) -> {f}
        return %r : {f}"""
ALONE = "dense<[[0]]> : tensor<1x1xi64>"
ALL = "dense<> : tensor<0x0xi64>"
FOUR = "dense<[[0, 1], [2, 3]]> : tensor<2x2xi64>"


def for_devices(count: int, body: str):
    text = main(body).replace("num_partitions = 4", f"num_partitions = {count}")
    return read_mlir(text.encode())


def module(groups: str, count: int = 1):
    return for_devices(count, SUM.format(groups=groups, f=F))


LOCAL = for_devices(1, f"%r = stablehlo.sine %x : {F} return %r : {F}")


@pytest.mark.parametrize("given", [module(ALONE), LOCAL], ids=["a group of itself", "no group"])
def test_a_module_for_one_device_is_refused_for_a_mesh_of_more(given) -> None:
    with pytest.raises(UsageError, match="has 64 devices; the module is for 1: "):
        walk(given, Mesh((64,)))


def test_a_group_of_all_devices_is_as_large_as_the_mesh() -> None:
    walked = walk(module(ALL), Mesh((64,)))
    (item,) = walked.graph.tables.communications
    assert item.groups is not None and item.groups.members(5).tolist() == list(range(64))


def test_copies_of_a_module_have_groups_of_their_own() -> None:
    walked = walk(module(FOUR, 4), Mesh((3, 4)), replicate=True)
    assert walked.world == World(partitions=4, copies=3)
    (item,) = walked.graph.tables.communications
    assert item.groups is not None
    # Copy 2 is the ranks 8 to 11; its second pair is its ids 2 and 3.
    assert item.groups.members(11).tolist() == [10, 11]


def test_copies_permute_among_themselves() -> None:
    stated = for_devices(
        2,
        f"""%r = "stablehlo.collective_permute"(%x) {{
          source_target_pairs = dense<[[0, 1], [1, 0]]> : tensor<2x2xi64>,
          channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>}} : ({F}) -> {F}
        return %r : {F}""",
    )
    (item,) = walk(stated, Mesh((6,)), replicate=True).graph.tables.communications
    assert item.permutation is not None
    assert item.permutation.target.tolist() == [1, 0, 3, 2, 5, 4]


def test_copies_must_fill_the_mesh() -> None:
    with pytest.raises(UsageError, match="mesh axis_0=6 has 6 devices; the module is for 4, which"):
        walk(module(FOUR, 4), Mesh((6,)), replicate=True)
