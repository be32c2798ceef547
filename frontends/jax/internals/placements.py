"""The placement of a compiled program's results: XLA's shardings as those of arrays on the mesh.

The idea: JAX reads the shardings of results from the executable and makes NamedShardings of them
over the mesh of its arguments; here they are read from the module that the compiler has written.
A sharding that no PartitionSpec over that mesh expresses (half of an axis on each of two dims) is
expressed over the same devices with smaller axes.

    placements(proto, (mesh, mesh))        # [NamedSharding(mesh, PartitionSpec('data')), None]
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from jax._src import op_shardings, sharding
from jax._src.sharding_impls import parse_flatten_op_sharding
from jax.sharding import AbstractMesh, Mesh, NamedSharding
from jaxlib import xla_client

from flint.frontends.jax.internals.traced_calls import is_stated
from flint.hlo import hlo_pb2 as pb
from flint.hlo.messages import parse_module
from flint.hlo.tiles import tiled


class _Never(Exception):
    """What no version raises."""


#: JAX's error for a sharding that splits an axis; older versions keep such results as they are.
SplitAxisError: type[Exception] = getattr(sharding, "IndivisibleError", _Never)
#: JAX's errors for a sharding without matching axes of a mesh.
_NO_AXES = (ValueError, LookupError, StopIteration, NotImplementedError, AssertionError)


def placements(
    proto: bytes, known: Sequence[AbstractMesh | Mesh | NamedSharding]
) -> list[NamedSharding | None]:
    """Shardings of a program's results; None if the module does not state it, or no axes match.

    Args:
        proto: the compiled module.
        known: for each result its sharding if it is known, else the mesh on which it is named.

    Raises:
        SplitAxisError: as in a run, one splits an axis of a mesh of devices.
    """
    module = parse_module(proto)
    whole = module.spmd_output_sharding
    parts = list(whole.tuple_shardings) or [whole] * len(known)
    stated = module.HasField("spmd_output_sharding")
    return [
        item if isinstance(item, NamedSharding) else _named(part, item) if stated else None
        for part, item in zip(parts, known, strict=False)
    ]


def taken(proto: bytes, mesh: AbstractMesh | Mesh) -> list[Any]:
    """Shardings of a program's parameters, if the module states them; None as in ``placements``."""
    return [_named(part, mesh) for part in parse_module(proto).spmd_parameters_shardings]


def in_hlo(wanted: Any, has: NamedSharding, dims: int) -> bool:
    """Whether the sharding given to jit for an operand is the operand's.

    Args:
        wanted: of ``in_shardings``; any sharding matches if none was stated.
        has: of the operand.
        dims: of the operand.
    """
    if not is_stated(wanted) or not isinstance(wanted, NamedSharding):
        return True
    return cut_alike(wanted, has, dims)


def cut_alike(one: Any, other: Any, dims: int) -> bool:
    """Whether two shardings cut an array of some dims alike, on whatever devices."""
    return op_shardings.are_hlo_shardings_equal(
        one._to_xla_hlo_sharding(dims), other._to_xla_hlo_sharding(dims)
    )


def _named(part: pb.OpSharding, mesh: AbstractMesh | Mesh) -> NamedSharding | None:
    """A sharding over the mesh or over a finer one of the same devices; None for any other.

    Raises:
        SplitAxisError: it splits an axis of a mesh of devices.
    """
    proto: Any = xla_client.OpSharding()
    try:
        proto.ParseFromString(tiled(part).SerializeToString())
    except NotImplementedError:
        return None
    for grid in (mesh, _finer(mesh, False), _finer(mesh, True)):
        try:
            return NamedSharding(grid, parse_flatten_op_sharding(proto, grid)[0])
        except SplitAxisError:
            if isinstance(grid, Mesh):
                raise
        except _NO_AXES:
            continue
    return None


def _finer(mesh: AbstractMesh | Mesh, descending: bool) -> AbstractMesh:
    """The mesh with each axis split into several of prime sizes, ascending or descending."""
    axes = {
        f"{name}_{number}": factor
        for name, size in mesh.shape.items()
        for number, factor in enumerate(sorted(_primes(size), reverse=descending))
    }
    return AbstractMesh(tuple(axes.values()), tuple(axes))


def _primes(number: int) -> Iterator[int]:
    divisor = 2
    while divisor * divisor <= number:
        while number % divisor == 0:
            yield divisor
            number //= divisor
        divisor += 1
    if number > 1:
        yield number
