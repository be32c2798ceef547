"""Signatures: equal for ranks that do the same from their own place, and for no others."""

from __future__ import annotations

from dataclasses import replace

import pytest

from flint.frontends.torch.ranks import rank_report
from flint.frontends.torch.ranks.signatures import Signed
from flint.frontends.torch.recording.recording import Group, Op, Recording, View

MESH = (("dp", 4), ("tp", 2))


def signature(item):
    return Signed(item).whole


def view(*shape, storage=0, offset=0):
    stride, size = [], 1
    for dim in reversed(shape):
        stride.insert(0, size)
        size *= dim
    return View(storage, offset, shape, tuple(stride), "float32")


def recording(rank, *, op, ranks=None, peer=-1):
    group = Group("g", "dp", ranks or tuple(range(rank % 2, 8, 2)))
    reduce = Op(
        name="c10d.allreduce_.default", args=(view(4, 2),), kwargs={}, results=(view(4, 2),),
        group=0, reduction="sum", peer=peer,
    )  # fmt: skip
    return Recording(
        rank=rank, world_size=8, ops=(op, reduce), storage_bytes=(128, 64), groups=(group,),
        mesh=MESH,
    )  # fmt: skip


def mm(**changes):
    base = Op(name="aten.mm.default", args=(view(4, 8), 3), kwargs={}, results=(view(4, 2),))
    return replace(base, **changes)


def test_members_of_equal_groups_along_an_axis_do_the_same():
    signs = {signature(recording(rank, op=mm())) for rank in range(8)}
    assert len(signs) == 1


def test_values_that_name_a_rank_are_not_behaviour():
    assert signature(recording(0, op=mm(args=(view(4, 8), 3)))) == signature(
        recording(2, op=mm(args=(view(4, 8, offset=64), 5)))
    )


@pytest.mark.parametrize(
    "changes",
    [
        {"name": "aten.mm.out"},
        {"args": (view(4, 16), 3)},
        {"kwargs": {"alpha": True}},
        {"results": (view(4, 3),)},
        {"stream": 1},
        {"after": (0,)},
        {"phase": "backward"},
        {"module": "layers.0"},
        {"reduction": "sum"},
    ],
)
def test_anything_else_is(changes):
    assert signature(recording(0, op=mm())) != signature(recording(0, op=mm(**changes)))


def own_mesh(rank, ranks):
    """A group of a mesh that the program has made itself, of 8 ranks in one axis."""
    name = f"group {ranks[0]}"
    reduce = Op(
        name="c10d.allreduce_.default", args=(view(4, 2), name), kwargs={}, results=(),
        group=0, reduction="sum",
    )  # fmt: skip
    return Recording(
        rank=rank, world_size=8, ops=(reduce,), storage_bytes=(32,),
        groups=(Group(name, "shard", ranks),), mesh=(("dp", 8),),
    )  # fmt: skip


def test_parts_that_tile_an_axis_are_one_behaviour_whatever_their_names():
    halves = [tuple(range(4)), tuple(range(4, 8))]
    strided = [(0, 4), (1, 5), (2, 6), (3, 7)]
    for groups in (halves, strided):
        signs = {signature(own_mesh(ranks[-1], ranks)) for ranks in groups}
        assert len(signs) == 1


def test_parts_that_do_not_tile_an_axis_are_behaviours_of_their_own():
    signs = {signature(own_mesh(rank, ranks)) for rank, ranks in ((0, (0, 1, 3)), (5, (4, 5, 7)))}
    assert len(signs) == 2


def test_another_axis_of_the_group_is_another_behaviour():
    assert signature(recording(0, op=mm())) != signature(recording(0, op=mm(), ranks=(0, 1)))


def test_stages_that_talk_to_different_peers_are_different_programs():
    signs = {signature(recording(rank, op=mm(), peer=rank + 2)) for rank in (0, 2, 4)}
    assert len(signs) == 3
    assert signature(recording(2, op=mm(), peer=4)) == signature(recording(3, op=mm(), peer=5))


def test_the_lowest_rank_represents_all_that_do_the_same(tmp_path):
    def is_known(rank, **changes):
        return rank_report.is_known(tmp_path / "now", Signed(recording(rank, op=mm(**changes))))

    (tmp_path / "first/rank2").mkdir(parents=True)
    rank_report.write(tmp_path / "first/rank2", Signed(recording(2, op=mm())), {})
    assert is_known(4)
    assert not is_known(0)
    assert not is_known(4, name="aten.add.Tensor")


def pieces(*sizes, **changes):
    """A rank that copies pieces of weights, and then runs a layer and reduces."""
    copies = [
        Op(
            name="aten.copy_.default",
            args=(view(size, storage=at),),
            kwargs={},
            results=(),
            phase="forward",
        )
        for at, size in enumerate(sizes)
    ]
    layer = mm(args=(view(4, 8, storage=len(sizes)), 3), module="layer", phase="forward", **changes)
    whole = recording(0, op=layer)
    reduce = replace(whole.ops[1], args=(view(4, 2, storage=len(sizes)),))
    return Signed(replace(whole, ops=(*copies, layer, reduce)))


def test_pieces_of_weights_do_not_change_what_a_rank_does_besides_updates():
    one, other = pieces(3, 5), pieces(8)
    assert one.whole != other.whole
    assert (one.messages, one.besides_updates) == (other.messages, other.besides_updates)
    assert pieces(8, results=(view(4, 3),)).besides_updates != one.besides_updates
