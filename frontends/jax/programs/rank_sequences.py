"""What each rank runs of a step whose functions run on different devices.

The idea: ranks that take part in the same functions run one sequence of programs.  Before a
function that takes an array from other devices, those that have it send it and those that need it
receive it.

    ranks = RankSequences(called, outputs, homes, moves)
    workload_of_sequences(ranks.sequences(), ranks.mesh, ...)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh as DeviceMesh

from flint.capturing.messages import exchanges_of, message_graph
from flint.capturing.sequences import Moved, RankSequence
from flint.frontends.jax.called_modules import CalledModules
from flint.frontends.jax.programs.host_waits import device_ids, told
from flint.frontends.jax.programs.moved_arrays import Plan, plan_of
from flint.frontends.jax.programs.own_numbers import SequenceInMaking
from flint.graph.communication import Communication
from flint.graph.graph import Ints
from flint.graph.tensor_types import DTYPE_BITS, tensor_type
from flint.host.readable import counted
from flint.mesh.mesh import Mesh
from flint.mesh.ranks import RankSet, from_mask
from flint.passes.in_sequence import Origin
from flint.passes.on_ranks import on_ranks
from flint.workload.programs import Call, ProgramInput

THROUGH_HOST = (
    "arrays that are cut otherwise on their next devices: in a run they go through the host, here "
    "as messages between devices"
)
READ_ELSEWHERE = (
    "values that the host reads before it calls functions on other devices: messages of their size "
    "stand for its waiting"
)


@dataclass(frozen=True, slots=True)
class Move:
    """An array that a call takes from other devices.

    Attributes:
        aval: JAX's type of the whole array.
        source: its sharding.
        target: its sharding on the call's devices.
        is_put: whether the call does nothing else (``jax.device_put``): no program runs.
    """

    aval: Any
    source: Any
    target: Any
    is_put: bool


class RankSequences:
    """The sequences of all ranks.

    Args:
        called: the step's calls, each compiled for its devices.
        outputs: what the step returns.
        homes: the devices of each call.
        moves: arrays that move, by the number of the call that takes them, and their origin.

    Attributes:
        warnings: text -> count.
        devices: the id of each rank's device.
    """

    def __init__(
        self,
        called: CalledModules,
        outputs: Sequence[Origin],
        homes: Sequence[DeviceMesh],
        moves: Mapping[tuple[int, Origin], Move],
    ) -> None:
        self._called, self._outputs, self._homes = called, outputs, homes
        self._moves = {
            (number, origin): moves[number, origin]
            for number, item in enumerate(called.modules)
            for origin in item.call.operands
            if (number, origin) in moves
        }
        self._puts = {number for (number, _), move in self._moves.items() if move.is_put}
        ids = {id for home in homes for id in device_ids(home)}
        ids |= {id for move in self._moves.values() for id in device_ids(move.source)}
        self.devices = sorted(ids)
        self._rank = {id: rank for rank, id in enumerate(self.devices)}
        self.warnings: dict[str, int] = {}
        if len(ids) != jax.device_count():
            text = (
                f"the step uses {counted(len(ids), 'device')}, and the cluster has "
                f"{jax.device_count():,}: the others take no part in it"
            )
            self.warnings[text] = 1
        self._exchanges = {key: self._exchanged(*key) for key in self._moves}
        self._told = told(called.modules, homes, self._moves, self._rank)
        if self._told:
            self.warnings[READ_ELSEWHERE] = sum(map(len, self._told.values()))

    @cached_property
    def mesh(self) -> Mesh:
        """The ranks as a mesh: of equal meshes one after another, else in a row."""
        meshes = {device_ids(home): home for home in self._homes}
        shapes = {(tuple(home.devices.shape), tuple(home.axis_names)) for home in meshes.values()}
        in_row = tuple(self._rank[id] for ids in sorted(meshes) for id in ids)
        [(shape, axes), *others] = shapes
        if (
            others
            or np.prod(shape) == 1
            or in_row != tuple(range(len(self._rank)))
            or "submesh" in axes
        ):
            return Mesh((len(self._rank),), ("device",))
        return Mesh((len(meshes), *shape), ("submesh", *map(str, axes)))

    def sequences(self) -> list[RankSequence]:
        """One per class of ranks that take part in the same functions."""
        world = len(self._rank)
        member = np.zeros((world, len(self._homes)), bool)
        for number, home in enumerate(self._homes):
            member[self._ranks(home), number] = True
        sends = np.zeros((world, len(self._moves)), bool)
        for number, move in enumerate(self._moves.values()):
            sends[self._ranks(move.source), number] = True
        _, kinds = np.unique(np.concatenate([member, sends], 1), axis=0, return_inverse=True)
        kinds = kinds.reshape(-1)
        return [
            self._sequence(from_mask(kinds == kind), int(np.argmax(kinds == kind)))
            for kind in dict.fromkeys(kinds.tolist())
        ]

    def _ranks(self, place: Any) -> Ints:
        return np.array([self._rank[id] for id in device_ids(place)], np.int64)

    def _has(self, place: Any, rank: int) -> bool:
        return bool((self._ranks(place) == rank).any())

    def _sequence(self, ranks: RankSet, one: int) -> RankSequence:
        """What some ranks run, of which ``one`` is any."""
        made = SequenceInMaking(self._called.inputs.all())
        for number, item in enumerate(self._called.modules):
            for origin in dict.fromkeys(item.call.operands):
                move = self._moves.get((number, origin))
                if move is not None:
                    sends, gets = self._has(move.source, one), self._has(self._homes[number], one)
                    if sends or gets:
                        message = self._message(number, origin, ranks, sends, gets)
                        made.move(message, number, origin, is_put=move.is_put)
            if self._has(self._homes[number], one) and number not in self._puts:
                own = self._ranks(self._homes[number])
                graph = on_ranks(item.walked.graph, own, len(self._rank))
                call = replace(item.call, ranks=tuple(own.tolist()))
                walked = replace(item.walked, graph=graph)
                made.call(number, replace(item, call=call, walked=walked))
            made.reads(item.call)
            for read in self._told.get(number, ()):
                if read.concerns(ranks):
                    made.tell(read.seen_by(ranks))
        return RankSequence(ranks, made.items, made.inputs(), made.outputs(self._outputs))

    def _message(
        self, number: int, origin: Origin, ranks: RankSet, sends: bool, gets: bool
    ) -> Moved:
        """An array that moves to a call, as some ranks see it."""
        move, taken = self._moves[number, origin], self._taken(number, origin)
        has = None
        if sends:
            shape = move.source.shard_shape(move.aval.shape)
            has = replace(taken, type=tensor_type(tuple(shape), taken.type.dtype), donated=-1)
        call = self._called.modules[number].call
        return Moved(
            Call(
                name=call.name if move.is_put else f"{call.name}_operand_{origin.number}",
                inputs=() if has is None else (has,),
                operands=() if has is None else (origin,),
                outputs=int(gets),
                file=call.file,
                line=call.line,
                jitted=False,
            ),
            message_graph(
                self._exchanges[number, origin],
                ranks,
                None if has is None else has.type,
                taken.type if gets else None,
            ),
        )

    def _taken(self, number: int, origin: Origin) -> ProgramInput:
        """The operand of a call that comes from an origin."""
        call = self._called.modules[number].call
        return call.inputs[call.operands.index(origin)]

    def _exchanged(self, number: int, origin: Origin) -> tuple[Communication, ...]:
        move, dtype = self._moves[number, origin], self._taken(number, origin).type.dtype
        plan: Plan = plan_of(move.aval.shape, DTYPE_BITS[dtype], move.source, move.target)
        if plan.through_host:
            self.warnings[THROUGH_HOST] = self.warnings.get(THROUGH_HOST, 0) + 1
        pieces = [
            item._replace(source=self._rank[item.source], target=self._rank[item.target])
            for item in plan.pieces
        ]
        return exchanges_of(pieces, world=len(self._rank), dtype=dtype)
