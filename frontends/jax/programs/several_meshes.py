"""A step whose functions run on different devices: pipelines of meshes, actors and learners.

The idea: every function is compiled for its own devices.  An array that goes from one function's
devices to another's, by ``jax.device_put`` or because no one has placed it, becomes messages
between ranks (``rank_sequences.py``).

    homes = homes_of(recording)
    if len(device_lists(homes)) > 1:
        capture_meshes(recording, homes, prepared_on, kept)
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding

from flint.capturing.sequences import workload_of_sequences
from flint.errors import FlintError
from flint.frontends.jax.called_modules import Site, called_modules
from flint.frontends.jax.compiled import Compilers, Kept
from flint.frontends.jax.host.calls import Called, Operand, Recording
from flint.frontends.jax.internals.avals import stored
from flint.frontends.jax.lower.prepared import Prepared
from flint.frontends.jax.operand_shardings import argument_shardings
from flint.frontends.jax.origin import origin
from flint.frontends.jax.programs.host_waits import device_ids
from flint.frontends.jax.programs.placing import is_single, mesh_of, mesh_of_sharding, on_all
from flint.frontends.jax.programs.rank_sequences import Move, RankSequences
from flint.passes.in_sequence import Origin
from flint.workload.programs import DEVICES
from flint.workload.workload import Workload


def homes_of(recording: Recording) -> list[Mesh | None]:
    """For each call of a step the devices that it runs on; None if nothing says."""
    where = argument_shardings(recording)
    homes: list[Mesh | None] = []
    for call in recording.calls:
        origins = [item.origin for item in call.operands if item.origin is not None]
        mesh = mesh_of(call, [where.get(origin) for origin in origins])
        made = [homes[origin.program] for origin in origins if origin.program >= 0]
        homes.append(mesh or next((home for home in made if home is not None), None))
    return homes


def device_lists(recording: Recording, homes: Sequence[Mesh | None]) -> dict[tuple[int, ...], Mesh]:
    """The lists of devices of a step's calls and arguments, each with the first mesh over them.

    Jitted functions that no one has placed run on the first device: that counts where it has no
    part in the only mesh.
    """
    found: dict[tuple[int, ...], Mesh] = {}
    placed = [getattr(leaf, "sharding", None) for leaf in recording.arguments]
    given = [mesh_of_sharding(place) for place in placed if place is not None]
    for home in (*homes, *given):
        if home is not None:
            found.setdefault(device_ids(home), home)
    first = first_device()
    unplaced = any(
        home is None and call.jitted for call, home in zip(recording.calls, homes, strict=True)
    )
    several = len(found) > 1 or (found and jax.devices()[0].id not in next(iter(found)))
    if unplaced and several:
        found.setdefault(device_ids(first), first)
    return found


def first_device() -> Mesh:
    """The device that arrays are on that no one has placed."""
    return Mesh(np.array(jax.devices()[:1]), ("device",))


def capture_meshes(
    recording: Recording,
    homes: Sequence[Mesh | None],
    prepare: Callable[[Mesh], Prepared],
    kept: Kept | None,
) -> Workload:
    """The workload of a step whose calls run on several lists of devices.

    Args:
        recording: the step.
        homes: of ``homes_of``.
        prepare: the data for lowering on a mesh.
        kept: what the partitioner has made of the program's functions so far.

    Raises:
        FlintError: a call cannot be lowered or compiled, or would fail in a run.
    """
    with ExitStack() as stack:
        sites = _Sites(recording, homes, prepare, kept, stack)
        request = sites.prepared(sites.home(0)).request
        called = called_modules(recording, request.options, sites)
    ranks = RankSequences(
        called, recording.outputs, [*map(sites.home, range(len(homes)))], sites.moves
    )
    workload = workload_of_sequences(
        ranks.sequences(),
        ranks.mesh,
        options=request.options.walk.with_choices(called.by_values),
        read_seconds=request.options.read_seconds,
        source=origin(request.name, called.sha256),
        warnings=called.warnings | ranks.warnings,
    )
    options = workload.options | {DEVICES: ranks.devices}
    return replace(workload, options=options, compiled=called.compiled)


class _Sites:
    """The devices of calls, and the arrays that move to them."""

    def __init__(
        self,
        recording: Recording,
        homes: Sequence[Mesh | None],
        prepare: Callable[[Mesh], Prepared],
        kept: Kept | None,
        stack: ExitStack,
    ) -> None:
        self.moves: dict[tuple[int, Origin], Move] = {}
        self._calls, self._homes = recording.calls, homes
        self._prepare, self._kept, self._stack = prepare, kept, stack
        self._prepared: dict[tuple[int, ...], Prepared] = {}
        self._compilers: dict[tuple[int, ...], Compilers] = {}

    def __call__(self, number: int, where: Mapping[Origin, Any]) -> Site:
        call, home = self._calls[number], self.home(number)
        here: dict[Origin, Any] = {}
        for place, operand in enumerate(call.operands):
            origin = operand.origin
            if origin is None:
                continue
            has = self._sharding(origin, where)
            here[origin] = where.get(origin)
            if device_ids(has) != device_ids(home):
                self._check(call, operand, origin, where)
                here[origin] = _wanted(call, place, home)
                self.moves[number, origin] = Move(
                    stored(operand.aval), has, here[origin], _is_put(call)
                )
        prepared = self.prepared(home)
        return Site(prepared, self._ready(prepared), ChainMap(here, dict(where)))

    def home(self, number: int) -> Mesh:
        """The devices of a call."""
        return self._homes[number] or first_device()

    def prepared(self, home: Mesh) -> Prepared:
        """The data for lowering on a mesh: the first one over its devices."""
        return self._prepared.setdefault(device_ids(home), self._prepare(home))

    def _ready(self, prepared: Prepared) -> Compilers:
        shape = prepared.request.shape
        if shape not in self._compilers:
            started = self._stack.enter_context(Compilers(prepared.request, self._kept))
            self._compilers[shape] = started
        return self._compilers[shape]

    def _sharding(self, origin: Origin, where: Mapping[Origin, Any]) -> Any:
        """Where an array lies; whole on every device of its program if nothing says."""
        found = where.get(origin)
        if found is not None:
            return found
        home = first_device() if origin.program < 0 else self.home(origin.program)
        return on_all(home)

    def _check(
        self, call: Called, operand: Operand, origin: Origin, where: Mapping[Origin, Any]
    ) -> None:
        """Refuse a call that a run refuses, with an array that lies elsewhere."""
        placed = where.get(origin) is not None
        if origin.program >= 0:
            placed = self._homes[origin.program] is not None
        if placed and not _is_put(call):
            raise FlintError(
                f"{call.place}: {call.name} is called with an array of shape "
                f"{tuple(operand.aval.shape)} that lies on other devices: a run stops here with "
                "'Received incompatible devices for jitted computation'; jax.device_put moves it"
            )


def _is_put(call: Called) -> bool:
    """Whether a call only moves an array."""
    return not call.jitted and call.name == "device_put"


def _wanted(call: Called, place: int, home: Mesh) -> Any:
    """Where a call takes an operand from elsewhere."""
    found = call.parameters["in_shardings"][place]
    if _is_put(call):
        [found] = call.parameters["out_shardings"]
    if isinstance(found, NamedSharding) or is_single(found):
        return found
    return on_all(home)
