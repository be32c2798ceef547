"""Communication of a recorded step: bytes, groups of every rank, pairs of messages."""

from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from flint.errors import FlintError
from flint.frontends.torch.emission import emitted
from flint.frontends.torch.ranks.replica_groups import full_groups, full_pairs
from flint.frontends.torch.recording.recording import Group, Input, Op, views_in
from flint.graph.graph import NodeKind
from tests.frontends.torch.own_recordings import A, X, graph_of, recording, view

# Communication.


def communicated(name, args, results, writes=(), ranks=(0, 1), rank=0, **fields):
    op = Op(name=name, args=args, kwargs={}, results=results, writes=writes, group=0, **fields)
    inputs = [Input(item, "batch", "") for item in views_in(args)]
    made = recording(
        [op], inputs, [], groups=(Group("g", "tp", ranks),), rank=rank,
        storage_bytes=(1024,) * 8,
    )  # fmt: skip
    (node,) = (node for node in graph_of(made) if node.kind == NodeKind.COMMUNICATION)
    return node.communication


def members(communication):
    return sorted(map(tuple, communication.groups.table().tolist()))


@pytest.mark.parametrize(
    ("name", "args", "results", "kind", "bytes_"),
    [
        ("c10d.allreduce_.default", (X,), (X,), "all_reduce", (64, 64)),
        ("c10d._allgather_base_.default", (view(1, 8, 4), X), (), "all_gather", (64, 128)),
        ("c10d._reduce_scatter_base_.default", (view(1, 2, 4), X), (), "reduce_scatter", (64, 32)),
        ("c10d.alltoall_base_.default", (A, X, "group", (), ()), (), "all_to_all", (64, 64)),
        ("c10d.broadcast_.default", (X, "group", 0, 0), (X,), "collective_broadcast", (64, 64)),
        ("_c10d_functional.all_reduce.default", (X, "sum", "0"), (A,), "all_reduce", (64, 64)),
        (
            "_c10d_functional.all_gather_into_tensor.default", (X, 2, "0"), (view(1, 8, 4),),
            "all_gather", (64, 128),
        ),
        (
            "_c10d_functional.reduce_scatter_tensor.default", (X, "sum", 2, "0"),
            (view(1, 2, 4),), "reduce_scatter", (64, 32),
        ),
        (
            "_c10d_functional.all_to_all_single.default", (X, (2, 2), (2, 2), "0"), (A,),
            "all_to_all", (64, 64),
        ),
        (
            "_c10d_functional.all_to_all_single.default", (X, (1, 2), (3, 1), "0"),
            (view(1, 3, 4),), "ragged_all_to_all", (64, 48),
        ),
        (
            "_dtensor.shard_dim_alltoall.default", (X, 0, 1, "0"), (view(1, 8, 2),),
            "all_to_all", (64, 64),
        ),
        ("c10d.barrier.default", (X,), (), "all_reduce", (4, 4)),
    ],
)  # fmt: skip
def test_a_communication_has_the_bytes_and_every_ranks_group(name, args, results, kind, bytes_):
    found = communicated(name, args, results, reduction="sum")
    assert found.kind == kind
    assert (sum(found.operand_bytes), sum(found.result_bytes)) == bytes_
    assert [tuple(row) for row in np.array(found.groups.table()).tolist()] == [(0, 1), (2, 3)]


def test_a_coalesced_all_reduce_is_one_of_several_operands():
    found = communicated(
        "c10d.allreduce_coalesced_.default", ((X, view(1, 2, 4)),), (), reduction="sum"
    )
    assert (found.kind, found.operand_bytes) == ("all_reduce", (64, 32))


@pytest.mark.parametrize("side", ["send", "receive"])
def test_both_sides_of_a_message_write_the_same_pairs(side):
    # From the first row of a 2 x 2 mesh to the second, rank 0 to 2; its neighbour's beside it.
    if side == "send":
        found = communicated("c10d.send.default", (X, "group", 2, 7), (), rank=0, peer=2)
    else:
        found = communicated("c10d.recv_.default", (X, "group", 0, 7), (), rank=2, peer=0)
    assert found.kind == "collective_permute"
    assert found.permutation.target.tolist() == [2, 3, -1, -1]


def test_an_unknown_communication_is_refused():
    op = Op(name="c10d.unknown_.default", args=(X,), kwargs={}, results=(), group=0)
    made = recording([op], [Input(X, "batch", "")], [], groups=(Group("g", "", (0, 1)),))
    with pytest.raises(FlintError, match="cannot be written as a StableHLO collective"):
        emitted(made)


@st.composite
def boxes(draw):
    """A mesh, and a group along some whole axes of it through some rank."""
    shape = tuple(draw(st.lists(st.integers(1, 4), min_size=1, max_size=4)))
    along = [axis for axis in range(len(shape)) if draw(st.booleans())]
    rank = draw(st.integers(0, int(np.prod(shape)) - 1))
    return shape, along, rank


@given(boxes(), st.booleans())
def test_groups_along_mesh_axes_are_all_groups_along_them(case, flat):
    """Against reshape and transpose of all ranks; also where the mesh is not known as one."""
    shape, along, rank = case
    world = np.arange(np.prod(shape)).reshape(shape)
    rest = [axis for axis in range(len(shape)) if axis not in along]
    size = int(np.prod([shape[axis] for axis in along], initial=1))
    truth = world.transpose(rest + along).reshape(-1, size)
    (own,) = (row for row in truth if rank in row)
    found = full_groups(own.tolist(), (world.size,) if flat else shape)
    assert sorted(map(tuple, found.tolist())) == sorted(map(tuple, truth.tolist()))


@given(boxes(), st.randoms(use_true_random=False))
def test_the_order_of_a_group_is_kept(case, random):
    shape, along, rank = case
    world = np.arange(np.prod(shape)).reshape(shape)
    rest = [axis for axis in range(len(shape)) if axis not in along]
    rows = world.transpose(rest + along).reshape(-1, int(np.prod([shape[a] for a in along])))
    (own,) = (row.tolist() for row in rows if rank in row)
    random.shuffle(own)
    assert own in full_groups(own, shape).tolist()


def test_ranks_beside_a_group_that_does_not_tile_are_alone():
    # First and last stage of three, two ranks each.
    table = full_groups((0, 4), (3, 2))
    assert table.tolist() == [[0, 4], [1, 5], [2, -1], [3, -1]]


def test_pairs_are_shifted_along_the_axes_that_a_message_does_not_cross():
    assert full_pairs(1, 3, (3, 2)).tolist() == [[0, 2], [1, 3]]


@pytest.mark.parametrize("ranks", [(0, 9), (0, 0), ()])
def test_a_group_outside_the_world_is_refused(ranks):
    with pytest.raises(FlintError, match="process group"):
        full_groups(ranks, (2, 2))


def test_what_is_assumed_of_an_uneven_exchange_is_a_warning():
    op = Op(
        name="_c10d_functional.all_to_all_single.default", args=(X, (1, 2), (3, 1), "0"),
        kwargs={}, results=(view(1, 3, 4),), group=0,
    )  # fmt: skip
    made = recording(
        [op], [Input(X, "batch", "")], [], groups=(Group("g", "", (0, 1)),),
        storage_bytes=(64, 48),
    )  # fmt: skip
    assert sum(emitted(made).warnings.values()) == 1
