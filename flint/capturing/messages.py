"""An array that moves to other devices, as messages between ranks.

The idea: each device that gets a part of the array gets it from one or several that have it.
Messages in which no rank sends or receives twice are one exchange, which all ranks take part in by
one rule, as in a collective-permute.

    exchanges = exchanges_of([Piece(0, 4, 1024), Piece(1, 5, 1024)], world=8, dtype="f32")
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from flint.errors import FlintError
from flint.graph.building import GraphBuilder, TableBuilder
from flint.graph.communication import Communication
from flint.graph.graph import WorkloadGraph
from flint.graph.tensor_types import TensorType
from flint.mesh.permutation import permutation
from flint.mesh.ranks import RankSet

#: The most exchanges of one array: a rank that sends it to as many others, one after another.
MAX_EXCHANGES = 4096


class Piece(NamedTuple):
    """A part of an array that goes from one rank to another.

    Attributes:
        source: the rank that has it.
        target: the rank that gets it.
        bytes: its size.
    """

    source: int
    target: int
    bytes: int


def exchanges_of(pieces: Sequence[Piece], *, world: int, dtype: str) -> tuple[Communication, ...]:
    """The exchanges that move these pieces, as the senders issue them.

    Args:
        pieces: in the order in which a rank sends them.
        world: number of ranks.
        dtype: element type.

    Raises:
        FlintError: more than ``MAX_EXCHANGES``.
    """
    rounds: dict[tuple[int, int], list[tuple[int, int]]] = {}
    sent: dict[tuple[int, int], set[int]] = {}
    for source, target, size in pieces:
        busy = sent.setdefault((0, source), set()), sent.setdefault((1, target), set())
        number = next(n for n in range(len(pieces)) if n not in busy[0] and n not in busy[1])
        if number >= MAX_EXCHANGES:
            raise FlintError(
                f"an array moves in more than {MAX_EXCHANGES:,} messages of one rank: not captured"
            )
        for one in busy:
            one.add(number)
        rounds.setdefault((number, size), []).append((source, target))
    return tuple(
        Communication(
            kind="send",
            reduction=None,
            groups=None,
            permutation=permutation(world, np.array(pairs)),
            operand_bytes=(size,),
            result_bytes=(),
            dtypes=(dtype,),
        )
        for (_, size), pairs in sorted(rounds.items())
    )


def message_graph(
    exchanges: Sequence[Communication],
    ranks: RankSet,
    here: TensorType | None,
    arrives: TensorType | None,
) -> WorkloadGraph:
    """The sends and receives of some ranks.

    Args:
        exchanges: of ``exchanges_of``.
        ranks: the ranks.
        here: type of their part of the array before; None if they have none.
        arrives: type of their part afterwards; None if they get none.

    Returns:
        A graph with the array as its input if it is here, and its output if it arrives.
    """
    tables = TableBuilder()
    builder = GraphBuilder(tables)
    own = ranks.array()
    value = None if here is None else builder.input(tables.type(here))
    for item in exchanges:
        assert item.permutation is not None
        if value is not None and (item.permutation.target[own] >= 0).any():
            builder.communication(item, [value], [])
    coming = [
        _received(item)
        for item in exchanges
        if item.permutation is not None and (item.permutation.source[own] >= 0).any()
    ]
    for item in coming[:-1] if arrives is not None else coming:
        builder.communication(item, [], [])
    if arrives is None:
        return builder.finish(())
    if coming:  # the last part completes the array
        value = builder.communication(coming[-1], [], [arrives])[0]
    assert value is not None
    return builder.finish((value,))


def _received(item: Communication) -> Communication:
    """An exchange as the receivers issue it."""
    return Communication(
        kind="recv",
        reduction=None,
        groups=None,
        permutation=item.permutation,
        operand_bytes=(),
        result_bytes=item.operand_bytes,
        dtypes=item.dtypes,
    )
