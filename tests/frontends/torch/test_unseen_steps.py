"""Steps that use what language models do not: each was refused or written down wrongly once."""

from __future__ import annotations

import pytest
import torch

from flint.errors import FlintError
from flint.frontends.torch.emission import emitted
from flint.stablehlo.read.reader import read_mlir
from flint.stablehlo.walker import walk
from tests.frontends.torch import real_recording
from tests.frontends.torch.in_child import recorded


def sharded_rows(mesh):
    from torch.distributed.tensor import DTensor, Shard

    local = torch.ones(8, 16, device=mesh.device_type)
    return (DTensor.from_local(local, mesh, [Shard(0)], run_check=False),)


def redistribute(x):
    from torch.distributed.tensor import Shard

    return x.redistribute(placements=[Shard(1)]).to_local()


def test_other_shards_of_a_dtensor_are_an_exchange_among_its_ranks():
    """Of 32 rows of 16 each of 4 ranks has 8 rows, and gets 4 columns: one all-to-all."""
    recording = recorded(redistribute, sharded_rows, (4,), ("x",))
    [op] = [op for op in recording.ops if op.group >= 0]
    assert op.name == "_dtensor.shard_dim_alltoall.default"
    assert recording.groups[op.group].ranks == (0, 1, 2, 3)
    assert [view.shape for view in op.results] == [(32, 4)]


def test_a_bag_of_embeddings_reads_the_rows_that_it_takes():
    """Of a table of 1,000 rows of 4 numbers: 7 rows, 7 indices and 4 offsets."""
    table, indices = torch.ones(1000, 4), torch.arange(7)
    offsets = torch.tensor([0, 2, 2, 5])
    with torch.no_grad():
        recording = real_recording.record(
            lambda *given: torch.ops.aten._embedding_bag.default(*given)[0],
            table, indices, offsets,
        ).recording  # fmt: skip
    [node] = walk(read_mlir(emitted(recording, strict=True).data, "step")).graph
    assert node.work.read == 4 * 7 * 4 + 8 * 7 + 8 * 4


def no_shapes(x):
    return torch.histogram(x, 4)[0]


def test_an_op_whose_shapes_pytorch_does_not_tell_is_named():
    with pytest.raises(FlintError, match=r"aten.histogram.bin_ct cannot be captured at .*:\d+"):
        recorded(no_shapes, lambda mesh: (torch.ones(8, device=mesh.device_type),), (1,), ("x",))


def summed(x):
    return x.square().sum()


def test_a_returned_dtensor_is_what_the_step_computed_of_it():
    """The rank's part of the sum over all ranks, which the last op of the step gives."""
    recording = recorded(summed, sharded_rows, (4,), ("x",))
    [result] = recording.results
    assert result in recording.ops[-1].results
    assert not emitted(recording, strict=True).warnings


def with_given_splits(x):
    sizes = torch.tensor([1, 2, 3, 2], device=x.device)
    counts = sizes.flip(0).tolist()
    given = x.new_empty(4 * counts[1])
    torch.distributed.all_to_all_single(given, x, [counts[1]] * 4, sizes.tolist())
    return given


def test_integers_that_the_program_gives_are_known_when_they_are_read():
    """Rank r of 4 is given 1, 2, 3, 2 rows by everybody; all take 3 here."""
    recording = recorded(with_given_splits, lambda mesh: (torch.ones(8, device=mesh.device_type),),
                         (4,), ("x",))  # fmt: skip
    [op] = [op for op in recording.ops if op.group >= 0]
    assert list(op.args[3:5]) == [(3, 3, 3, 3), (1, 2, 3, 2)]
