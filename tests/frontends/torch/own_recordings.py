"""Recordings that are written by hand: storages of 4 x 4 float32, and what becomes of them."""

from __future__ import annotations

from flint.frontends.torch.emission import emitted
from flint.frontends.torch.recording.recording import Recording, View, views_in
from flint.stablehlo.options import WalkOptions
from flint.stablehlo.read.reader import read_mlir
from flint.stablehlo.walker import walk


def view(storage, *shape, dtype="float32", offset=0):
    stride = [1] * len(shape)
    for dim in reversed(range(len(shape) - 1)):
        stride[dim] = stride[dim + 1] * shape[dim + 1]
    return View(storage, offset, tuple(shape), tuple(stride), dtype)


def recording(ops, inputs, results, **fields):
    """A recording of float32 storages [4, 4]."""
    storages = 1 + max(
        item.storage for op in ops for item in views_in((op.args, op.results, op.writes))
    )
    return Recording(
        **{
            "rank": 0,
            "world_size": 4,
            "mesh": (("dp", 2), ("tp", 2)),
            "storage_bytes": (64,) * storages,
            "inputs": tuple(inputs),
            "results": tuple(results),
            "ops": tuple(ops),
            **fields,
        }
    )


def graph_of(made):
    return walk(read_mlir(emitted(made).data), None, WalkOptions()).graph


X, A, B, C = (view(number, 4, 4) for number in range(4))
