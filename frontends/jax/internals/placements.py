"""Where a compiled program leaves its results: XLA's shardings as those of arrays on the mesh.

The idea: JAX reads the shardings of results from the executable and makes NamedShardings of them
over the mesh of its arguments; here they are read from the module that the compiler has written.

    placements(proto, mesh, results=2)        # [NamedSharding(mesh, PartitionSpec('data')), None]
"""

from __future__ import annotations

from typing import Any

from jax._src import op_shardings
from jax._src.sharding_impls import parse_flatten_op_sharding
from jax.sharding import AbstractMesh, NamedSharding
from jaxlib import xla_client

from flint.frontends.jax.internals.host_arrays import is_stated
from flint.hlo import hlo_pb2 as pb
from flint.hlo.messages import parse_module


def placements(proto: bytes, mesh: AbstractMesh, results: int) -> list[Any]:
    """Shardings of a program's results; None where the module does not say.

    Args:
        proto: the compiled module.
        mesh: that it is for.
        results: how many there are.
    """
    module = parse_module(proto)
    if not module.HasField("spmd_output_sharding"):
        return [None] * results
    whole = module.spmd_output_sharding
    parts = list(whole.tuple_shardings) or [whole] * results
    return [_named(part, mesh) for part in parts[:results]]


def in_hlo(wanted: Any, has: NamedSharding, dims: int) -> bool:
    """Whether a sharding that jit was given for an operand is the one that it has.

    Args:
        wanted: of ``in_shardings``; anything goes where none was stated.
        has: of the operand.
        dims: of the operand.
    """
    if not is_stated(wanted) or not isinstance(wanted, NamedSharding):
        return True
    return op_shardings.are_hlo_shardings_equal(
        wanted._to_xla_hlo_sharding(dims), has._to_xla_hlo_sharding(dims)
    )


def _named(part: pb.OpSharding, mesh: AbstractMesh) -> NamedSharding:
    proto: Any = xla_client.OpSharding()
    proto.ParseFromString(part.SerializeToString())
    spec = parse_flatten_op_sharding(proto, mesh)[0]
    return NamedSharding(mesh, spec)
