"""One rank's capture from beginning to end: cluster, setup, warm-up, recorded step.

The idea: the user's setup builds model, optimizer and batch on a rank of a fake cluster, under fake
tensors that take no memory.  The step runs twice: the first run creates everything that is created
once (FSDP's buffers, the optimizer's state, DDP's buckets), for which one microbatch of a pipeline
is enough; the second run is recorded.  All of this changes the process, which therefore ends
afterwards.

    recording = record(train_step, setup, (64, 8), ("dp", "tp"), rank=0)
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from flint.errors import FlintError, UsageError
from flint.frontends.torch import context, stage_shapes
from flint.frontends.torch.cluster import cluster, device, device_module
from flint.frontends.torch.cluster.cluster import LOCAL_WORLD_SIZE
from flint.frontends.torch.context import Capture
from flint.frontends.torch.cuda_graphs import CudaGraphs
from flint.frontends.torch.failures import users_code
from flint.frontends.torch.rank_process import Seen, fake_device, prepare
from flint.frontends.torch.recording.finished import finished
from flint.frontends.torch.recording.lifetimes import watching_sizes
from flint.frontends.torch.recording.naming import names_of
from flint.frontends.torch.recording.recorder import Recorder
from flint.frontends.torch.recording.recording import Recording
from flint.frontends.torch.recording.tracking import Tracker
from flint.frontends.torch.recording.watching import watching
from flint.frontends.torch.shims import attention, shards
from flint.frontends.torch.step_arguments import Arguments, by_parameter, prepared
from flint.graph.routing import Routing, routing_of


def record(
    function: Callable[..., Any],
    setup: Callable[..., Any] | None,
    shape: tuple[int, ...],
    axes: tuple[str, ...],
    rank: int,
    *,
    arguments: Arguments | None = None,
    settings: Mapping[str, Any] | None = None,
    compile_for: str | None = None,
    lowered: Path | None = None,
    trip_counts: Mapping[str, int] | None = None,
) -> Recording:
    """Record one step of one rank.  Changes this process permanently: run it in a child.

    Args:
        function: the step.
        setup: called with the DeviceMesh; returns the step's positional arguments, or
            ``(args, kwargs)``; None when ``arguments`` are given.
        shape, axes: of the mesh.
        rank: of the mesh, row-major.
        arguments: the step's, when there is no setup.
        settings: ``local_world_size``: ranks per host (default 8); ``routing``: which tokens a
            router sends where (``flint.graph.routing``; default "balanced").
        compile_for: the accelerator that ``torch.compile`` compiles for; None if it does not
            compile.
        lowered: folder of graphs that it has lowered for other ranks of the same capture.
        trip_counts: iterations of loops that end by unknown values: ``file:line`` -> number; "" is
            for every other one.

    Raises:
        UsageError: an unknown setting, a rank outside the mesh.
        FlintError: setup or step cannot run on fake tensors; the text names the user's line.
    """
    given = dict(settings or {})
    per_host = given.pop("local_world_size", LOCAL_WORLD_SIZE)
    model = routing_of(given.pop("routing", None))
    if given:
        unknown = ", ".join(sorted(given))
        raise UsageError(
            f"unknown setting {unknown} for PyTorch; choose from: local_world_size, routing"
        )
    session = _Session(
        function,
        setup,
        arguments,
        shape,
        axes,
        per_host,
        model,
        compile_for,
        lowered,
        trip_counts or {},
    )
    return session.record(rank)


@dataclass(frozen=True, slots=True)
class _Session:
    """A step and the cluster that it is recorded on; see ``record``."""

    function: Callable[..., Any]
    setup: Callable[..., Any] | None
    arguments: Arguments | None
    shape: tuple[int, ...]
    axes: tuple[str, ...]
    per_host: int
    routing: Routing
    compile_for: str | None
    lowered: Path | None
    trip_counts: Mapping[str, int]

    def record(self, rank: int) -> Recording:
        """The step as one rank runs it."""
        with stage_shapes.waiting(rank) as peers, self._cluster(peers) as (mesh, seen):
            tracker, recorders = Tracker(), list[Recorder]()
            graphs = CudaGraphs(seen, tracker, lambda: recorders[0] if recorders else None)
            with graphs.capturing():
                args, kwargs, by_name = self._first_run(mesh, tracker)
                if peers.is_asked:
                    raise FlintError("it ran its step but sent no result")
                names = names_of(by_name, tracker.roots, tracker.optimizers)
                tracker.names.update(names.modules)
                tracker.restart()
                device.restart()
                recorder = Recorder(tracker, device.NAME, attention.WHOLE, seen.follow)
                recorders.append(recorder)
                sized, recorded = watching_sizes(recorder.resized), seen.recorded(recorder.see)
                with watching(tracker), users_code("the step"), sized, recorded:
                    result = self.function(*args, **kwargs)
            shards.note_all(names.modules)
            sizes = tuple(zip(self.axes, self.shape, strict=True))
            return finished(recorder, names, rank=rank, mesh=sizes, result=result)

    @contextlib.contextmanager
    def _cluster(self, peers: stage_shapes.Peers) -> Iterator[tuple[Any, Seen]]:
        """This process as a rank of a cluster, under fake tensors: its mesh and observers."""
        known = Capture(
            self.shape,
            self.per_host,
            self.routing,
            peers=peers,
            watch=shards.note,
            compiles=self.compile_for is not None,
            lowered=self.lowered,
            trip_counts=self.trip_counts,
        )
        if self.compile_for is not None:
            device_module.describe(self.compile_for, self.per_host)
        prepare(known)
        torch.manual_seed(0)
        mesh = cluster.start(peers.rank, self.shape, self.axes, device.NAME, self.per_host)
        with fake_device(known) as seen:
            yield mesh, seen

    def _first_run(
        self, mesh: Any, tracker: Tracker
    ) -> tuple[tuple[Any, ...], dict[str, Any], dict[str, Any]]:
        """Set up and run the step once: its arguments, positional, by keyword, and by name."""
        with watching(tracker):
            with users_code("setup"):
                args, kwargs = prepared(self.setup, mesh, self.arguments)
            by_name = by_parameter(self.function, args, kwargs)
            tracker.names.update(names_of(by_name).modules)
            of_setup = context.capture().assumed.copy()
            with users_code("the step's first run"), _rehearsal():
                self.function(*args, **kwargs)
            # The run that is recorded says what the step assumes; what setup did, was just done.
            context.capture().assumed = of_setup
        return args, kwargs, by_name


@contextlib.contextmanager
def _rehearsal() -> Iterator[None]:
    """The step's first run, which only creates what is created once."""
    context.capture().rehearses = True
    try:
        yield
    finally:
        context.capture().rehearses = False
