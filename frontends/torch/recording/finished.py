"""A recording from a recorder: inputs with names and roles, results, evidence.

recording = finished(recorder, names, rank=0, mesh=(("dp", 64), ("tp", 8)), result=loss)
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch

from flint.errors import FlintError
from flint.frontends.torch import context
from flint.frontends.torch.cluster import device
from flint.frontends.torch.recording.lifetimes import has_expandable_segments, held
from flint.frontends.torch.recording.naming import Named, Names, local, roots
from flint.frontends.torch.recording.recorder import Recorder
from flint.frontends.torch.recording.recording import Input, Recording
from flint.frontends.torch.recording.schemas import tensors_in
from flint.graph.allocations import BEFORE, FIRST_STEP


def finished(
    recorder: Recorder,
    names: Names,
    *,
    rank: int,
    mesh: tuple[tuple[str, int], ...],
    result: Any = None,
) -> Recording:
    """The recording of a step that has run.

    Args:
        recorder: the recorder of the step.
        names: names of the tensors that exist before the step.
        rank: the recorded rank, in the mesh.
        mesh: ((axis, size), ...).
        result: the result of the step.

    Raises:
        FlintError: the step ran nothing on the device.
    """
    if not recorder.ops and (rank == 0 or recorder.host):
        raise FlintError(_nothing_ran(recorder))
    storages, known = recorder.storages, context.capture()
    if known.compiles and not known.has_compiled:
        known.notice("nothing is compiled (torch.compile): all of the step is eager code")
    results = tuple(
        storages.view(item) for item in _result_tensors(result) if item.device.type == device.NAME
    )
    inputs = tuple(_inputs(recorder, names))
    before = dict.fromkeys(storages.host - storages.made - recorder.host.keys(), BEFORE)
    before |= {item.view.storage: _since(item) for item in inputs}
    updates = [number for number, op in enumerate(recorder.ops) if op.phase == "optimizer"]
    return Recording(
        rank=rank,
        world_size=math.prod(size for _, size in mesh),
        ops=tuple(recorder.ops),
        storage_bytes=tuple(storages.bytes),
        inputs=inputs,
        results=results,
        groups=tuple(recorder.groups.used),
        mesh=mesh,
        constants=dict(storages.constants),
        host=tuple(sorted(storages.host)),
        lives=held(storages.lifetimes.finished(before), updates),
        expandable=has_expandable_segments(),
        warnings=dict(recorder.warnings + known.assumed + known.not_compiled),
        evidence=known.evidence.all(),
        unseen=tuple(sorted(known.unseen)),
    )


def _since(item: Input) -> int:
    """When an input begins to take memory: optimizers create their state in the first step."""
    return FIRST_STEP if item.role == "optimizer state" else BEFORE


def _nothing_ran(recorder: Recorder) -> str:
    at = next(iter(recorder.host.values()), None)
    if at is None:
        return "the step ran no op on any tensor: there is nothing to capture"
    return (
        f"the whole step ran on CPU tensors, first at {at}: none of it is work for the mesh. "
        'Create model and batch on the device (torch.device(mesh.device_type), "cuda" is the same) '
        "or move them there: .to(mesh.device_type)"
    )


def _result_tensors(result: Any) -> Iterator[torch.Tensor]:
    for _, item in roots({"result": result}):
        if isinstance(item, torch.Tensor):
            for tensor in tensors_in(item):
                yield local(tensor)


def _inputs(recorder: Recorder, names: Names) -> Iterator[Input]:
    """Storages whose value from before the step is read, and named ones that are written."""
    storages = recorder.storages
    known: dict[int, Named] = {}
    for item in names.tensors:
        number = storages.known_number(item.tensor)
        if number is not None:
            known.setdefault(number, item)
    batches = set(storages.numbers_of(context.capture().batches))
    for number in sorted({*storages.exposed, *storages.written} - storages.made):
        named = known.get(number)
        if named is not None:
            role = named.role
            if role == "constant" and number in storages.written:
                role = "unknown"  # a buffer that the step changes, such as running statistics
            yield Input(storages.view(named.tensor), role, named.name)
        elif number in storages.exposed:
            where = recorder.host.get(number)
            if number in batches or number in recorder.read_from_host:
                yield Input(storages.exposed[number], "batch", f"batch {number}")
            elif where is not None:
                yield Input(storages.exposed[number], "constant", f"made by {where}")
            else:
                yield Input(storages.exposed[number], "unknown", f"storage {number}")
