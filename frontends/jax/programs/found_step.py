"""The found step of a program, as a recording for a capture.

The idea: the calls of one period are a step.  Arrays from before that they take are the step's
arguments, with their placement when the step begins; the arrays that are held when it ends are its
results.

    workload = captured(watcher, places, period.calls_of(2), request)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh

from flint.capturing.request import CaptureOptions, Request
from flint.frontends.jax.capturing import capture_recording
from flint.frontends.jax.compiled import Compilers, Kept
from flint.frontends.jax.host.calls import Called, Recording
from flint.frontends.jax.internals.device_attributes import shown_layout
from flint.frontends.jax.lower.prepared import ANY_GPU, Prepared
from flint.frontends.jax.platforms import PLATFORMS
from flint.frontends.jax.programs.placing import Compiled, Places
from flint.frontends.jax.programs.settling import settled
from flint.frontends.jax.programs.several_meshes import (
    capture_meshes,
    device_lists,
    first_device,
    homes_of,
)
from flint.frontends.jax.sequence import partitioned_call
from flint.frontends.jax.targets.table import table
from flint.host.readable import counted
from flint.passes.in_sequence import Origin
from flint.workload.programs import Level
from flint.workload.workload import Workload


def captured(
    calls: Sequence[Called],
    numbers: Sequence[int],
    places: Places,
    warnings: dict[str, int],
    name: str,
    options: CaptureOptions,
    target: str | None = None,
    *,
    one_round: bool = False,
    before: Sequence[int] = (),
    kept: Kept | None = None,
) -> Workload:
    """The workload of a stretch of a program's calls.

    Args:
        calls: calls of the program.
        numbers: numbers of the step's calls.
        places: placements of arrays.
        warnings: warnings of the program, text -> count.
        name: name of the step.
        options: limits, and choices of the walk.
        target: the target to compile for; None for the partitioned level.
        one_round: the step is one iteration of the only call's main loop.
        before: numbers of the first step's calls, if it is the second one that is captured for all
            later ones.
        kept: what the partitioner has made of the program's functions so far.

    Raises:
        FlintError: a call cannot be lowered or compiled.
    """
    recording, origins = _recording(calls, numbers, places, warnings)
    homes = homes_of(recording)
    meshes = device_lists(recording, homes)
    mesh = next(iter(meshes.values()), first_device())
    if len(meshes) < 2 and mesh == first_device():  # nobody says more: every rank does it
        mesh = Mesh(np.array(jax.devices()), ("device",))
        recording = replace(recording, arguments=tuple(map(_unplaced, recording.arguments)))
    position = {number: place for place, number in enumerate(before)}
    carried = {
        argument: Origin(position[origin.program], origin.number)
        for argument, origin in enumerate(origins)
        if origin.program in position
    }
    recording = settled(recording, carried, places)
    if len(meshes) > 1:
        return capture_meshes(
            recording, homes, lambda mesh: prepared_on(mesh, name, options, target), kept
        )
    world = jax.device_count()
    if mesh.size != world:
        text = (
            f"the step uses {counted(mesh.size, 'device')}, and the cluster has {world:,}: the "
            "others take no part in it"
        )
        recording.warnings[text] = 1
    prepared = prepared_on(mesh, name, options, target)
    with Compilers(prepared.request, kept) as compilers:
        return capture_recording(prepared, recording, compilers, one_round=one_round)


def compiled_alone(kept: Kept, call: Called, mesh: Mesh, given: Sequence[Any]) -> Compiled:
    """What XLA's partitioner makes of a call, which is kept; see ``placing.Compile``."""
    prepared = prepared_on(mesh, call.name, CaptureOptions())
    with Compilers(prepared.request, kept) as compilers:
        return Compiled(*partitioned_call(prepared, call, given, compilers))


def prepared_on(
    mesh: Mesh, name: str, options: CaptureOptions, target: str | None = None
) -> Prepared:
    """The data for lowering and compiling on a mesh of devices."""

    def step() -> None:
        """Never called: it has been."""

    step.__name__ = name
    request = Request(
        function=step,
        shape=tuple(mesh.devices.shape),
        axes=tuple(map(str, mesh.axis_names)),
        setup=None,
        arguments=((), {}),
        settings={},
        level=Level.PARTITIONED if target is None else Level.OPTIMIZED,
        target=target,
        options=options,
    )
    layout = shown_layout()
    own = {"gpu": "cuda"}.get(layout.platform, layout.platform)
    platforms = sorted(PLATFORMS, key=lambda name: (name != PLATFORMS[0], name != own))
    capability = layout.capability
    if target is not None:
        platforms, capability = [table()[target].platform], table()[target].capability
    known = capability or ANY_GPU
    return Prepared(request, mesh.abstract_mesh, (), {}, {}, platforms, known, mesh)


def _recording(
    calls: Sequence[Called], numbers: Sequence[int], places: Places, warnings: dict[str, int]
) -> tuple[Recording, Sequence[Origin]]:
    """A step's calls, and the origins of its arguments among all calls."""
    position = {number: place for place, number in enumerate(numbers)}
    arguments: dict[Origin, Any] = {}
    as_argument: dict[Origin, Origin] = {}

    def own(origin: Origin) -> Origin:
        """The origin of an array of the step's own programs, in the step's numbering."""
        return Origin(position[origin.program], origin.number)

    def given(origin: Origin | None, aval: Any) -> Origin | None:
        """The origin of an operand, in the step's numbering."""
        if origin is None or origin.program in position:
            return None if origin is None else own(origin)
        if origin not in arguments:
            abstract: Any = jax.ShapeDtypeStruct
            found = places.committed(origin)
            as_argument[origin] = Origin(-1, len(arguments))
            arguments[origin] = abstract(aval.shape, aval.dtype, sharding=found)
        return as_argument[origin]

    step = []
    for number in numbers:
        call = calls[number]
        step.append(
            replace(
                call,
                operands=tuple(replace(o, origin=given(o.origin, o.aval)) for o in call.operands),
                compiled_for=tuple(
                    places.committed(item) if isinstance(item, Origin) else item
                    for item in call.compiled_for
                ),
                reads=[
                    replace(read, origin=own(read.origin))
                    for read in call.reads
                    if read.origin.program in position
                ],
                gone={own(origin) for origin in call.gone if origin.program in position},
            )
        )
    gone = {origin for call in step for origin in call.gone}
    made = [Origin(n, result) for n, call in enumerate(step) for result in range(call.results)]
    recording = Recording(
        tuple(step),
        ("",) * len(arguments),
        tuple(arguments.values()),
        tuple(origin for origin in made if origin not in gone),
        dict(warnings),
    )
    return recording, tuple(arguments)


def _unplaced(argument: Any) -> Any:
    abstract: Any = jax.ShapeDtypeStruct
    return abstract(argument.shape, argument.dtype)
