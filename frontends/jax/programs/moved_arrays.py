"""Which device sends which part of an array that is put on other devices.

The idea: as JAX does it.  Between two shardings that cut the array alike, the devices are paired in
order.  Otherwise a device gets its part from the last one that has just this part, unless it has it
already.  If no device has it, the whole array goes through the host, from where each device gets
its part; here, messages of the pieces stand for that.

    plan = plan_of((8, 16), 4, NamedSharding(left, P("data")), NamedSharding(right, P("data")))
    plan.pieces                         # [Piece(source=0, target=4, bytes=128), ...]
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from flint.capturing.messages import Piece
from flint.frontends.jax.internals.placements import cut_alike

#: For each dim its first element and the one past the last.
Index = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Plan:
    """How an array moves.

    Attributes:
        pieces: messages between devices, by their ids.
        through_host: whether it goes through the host in a run.
    """

    pieces: tuple[Piece, ...]
    through_host: bool = False


def plan_of(shape: Sequence[int], bits: int, source: Any, target: Any) -> Plan:
    """How an array moves from one sharding to another.

    Args:
        shape: of the whole array.
        bits: of an element.
        source: JAX's sharding of it.
        target: its sharding afterwards.
    """
    has, gets = _indices(source, shape), _indices(target, shape)

    def piece(one: int, other: int, index: Index) -> Piece:
        return Piece(one, other, (math.prod(b - a for a, b in index) * bits + 7) // 8)

    reordered = has.keys() == gets.keys()  # one program, in which nobody sends what it has
    if len(has) == len(gets) and not reordered and cut_alike(source, target, len(shape)):
        pairs = zip(has, gets.items(), strict=True)
        return Plan(tuple(piece(one, to, part) for one, (to, part) in pairs if one != to))
    if len(has) == 1:
        [one] = has
        return Plan(tuple(piece(one, to, part) for to, part in gets.items() if one != to))
    last = {part: device for device, part in has.items()}
    if all(part in last for part in gets.values()):
        return Plan(
            tuple(piece(last[part], to, part) for to, part in gets.items() if has.get(to) != part)
        )
    first = {part: device for device, part in reversed(has.items())}
    return Plan(
        tuple(
            piece(device, to, both)
            for to, part in gets.items()
            for other, device in first.items()
            for both in _common(part, other)
            if device != to
        ),
        through_host=True,
    )


def _indices(sharding: Any, shape: Sequence[int]) -> dict[int, Index]:
    """The part of an array on each device, by the device's id, in the sharding's order."""
    return {
        device.id: tuple(part.indices(size)[:2] for part, size in zip(index, shape, strict=True))
        for device, index in sharding.devices_indices_map(tuple(shape)).items()
    }


def _common(one: Index, other: Index) -> Iterator[Index]:
    """What two parts have in common, if anything."""
    both = tuple((max(a, c), min(b, d)) for (a, b), (c, d) in zip(one, other, strict=True))
    if all(start < stop for start, stop in both):
        yield both
