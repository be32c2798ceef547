"""One rank's capture from beginning to end: cluster, setup, warm-up, recorded step.

The idea: the user's setup builds model, optimizer and batch on a rank of a fake cluster, under fake
tensors that take no memory.  The step runs twice: the first time everything is made that is made
once (FSDP's buffers, the optimizer's state, DDP's buckets), the second time is recorded.  All of it
changes the process, which therefore is one that ends afterwards.

    recording = record(train_step, setup, (64, 8), ("dp", "tp"), rank=0)
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from flint.errors import FlintError, UsageError
from flint.frontends.torch import context, shims
from flint.frontends.torch.cluster import cluster, device, registration
from flint.frontends.torch.cluster.cuda import cuda_names
from flint.frontends.torch.context import Capture
from flint.frontends.torch.ranks import stage_shapes
from flint.frontends.torch.recording.following import following
from flint.frontends.torch.recording.naming import Named, Names, local, names_of, roots
from flint.frontends.torch.recording.recorder import Recorder
from flint.frontends.torch.recording.recording import Input, Recording
from flint.frontends.torch.recording.schemas import tensors_in
from flint.frontends.torch.recording.tracking import Tracker
from flint.frontends.torch.recording.watching import watching
from flint.frontends.torch.routing import Routing, routing_of
from flint.frontends.torch.shims import (
    attention,
    missing_shapes,
    own_sizes,
    places,
    shards,
    work,
)
from flint.frontends.torch.step_arguments import Arguments, by_parameter, prepared
from flint.frontends.torch.user_lines import at_line, users_line_of

#: Name of an exception -> what to do about it.
_ADVICE = dict.fromkeys(
    ("DynamicOutputShapeException", "DataDependentOutputException"),
    ": the result's shape depends on values, and a captured step has none: keep shapes fixed "
    "(torch.where, masks, padding to a capacity)",
) | {"MemoryError": "out of memory: build the model on the meta device or raise the memory limit"}


def record(
    function: Callable[..., Any],
    setup: Callable[..., Any] | None,
    shape: tuple[int, ...],
    axes: tuple[str, ...],
    rank: int,
    *,
    arguments: Arguments | None = None,
    settings: Mapping[str, Any] | None = None,
) -> Recording:
    """Record one step of one rank.  Changes this process for good: run it in a child.

    Args:
        function: the step.
        setup: called with the DeviceMesh; returns the step's positional arguments, or
            ``(args, kwargs)``; None when ``arguments`` are given.
        shape, axes: of the mesh.
        rank: of the mesh, row-major.
        arguments: the step's, when there is no setup.
        settings: ``local_world_size``: ranks per host (default 8); ``routing``: which tokens a
            router sends where (``routing.py``; default "balanced").

    Raises:
        UsageError: an unknown setting, a rank outside the mesh.
        FlintError: setup or step cannot run on fake tensors; the text names the user's line.
    """
    given = dict(settings or {})
    per_host = given.pop("local_world_size", cluster.LOCAL_WORLD_SIZE)
    model = routing_of(given.pop("routing", None))
    if given:
        unknown = ", ".join(sorted(given))
        raise UsageError(f"no setting {unknown} for PyTorch; there are: local_world_size, routing")
    return _Session(function, setup, arguments, shape, axes, per_host, model).record(rank)


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

    def record(self, rank: int) -> Recording:
        """The step as one rank runs it."""
        with (
            stage_shapes.waiting(self._run_as_rank, {}) as peers,
            self._cluster(rank, peers, peers.known.__setitem__) as mesh,
        ):
            tracker = Tracker()
            args, kwargs, by_name = self._first_run(mesh, tracker)
            names = names_of(by_name, tracker.roots, tracker.optimizers)
            tracker.names.update(names.modules)
            tracker.restart()
            device.restart()
            recorder = Recorder(tracker, device.NAME, attention.WHOLE)
            with watching(tracker), _users("the step"), work.waiting(recorder.wait_work), recorder:
                result = self.function(*args, **kwargs)
            if not recorder.ops and (rank == 0 or recorder.host):
                raise FlintError(_nothing_ran(recorder))
            return self._recording(rank, recorder, names, result)

    def _run_as_rank(
        self, rank: int, stage: int, known: stage_shapes.Known, tell: Callable[..., None]
    ) -> None:
        """Be another rank until it sends what reaches a pipeline stage."""

        def send(target: int, looks: Any) -> None:
            peers.known[target] = looks
            if target == stage:
                tell(peers.known)

        with (
            stage_shapes.waiting(self._run_as_rank, known) as peers,
            self._cluster(rank, peers, send) as mesh,
        ):
            self._first_run(mesh, Tracker())

    @contextlib.contextmanager
    def _cluster(
        self, rank: int, peers: stage_shapes.Peers, send: Callable[[int, Any], None]
    ) -> Iterator[Any]:
        """This process as a rank of a cluster, under fake tensors: the mesh."""
        warnings.filterwarnings("ignore")
        registration.register()
        shims.apply_all()
        fake = FakeTensorMode(allow_non_fake_inputs=True)
        context.begin(
            Capture(
                self.shape,
                self.per_host,
                self.routing,
                fake_mode=fake,
                ask_stage=peers.ask,
                tell_stage=send,
                watch=shards.note,
            )
        )
        torch.manual_seed(0)
        mesh = cluster.start(rank, self.shape, self.axes, device.NAME, self.per_host)
        # The engine's own threads number nodes anew, and serve only devices that are known.
        one_thread = torch.autograd.set_multithreading_enabled(False)
        modes = fake, following(), missing_shapes.kernels(), cuda_names(), own_sizes.seeing()
        with one_thread, contextlib.ExitStack() as stack:
            for mode in modes:
                stack.enter_context(mode)
            yield mesh

    def _first_run(
        self, mesh: Any, tracker: Tracker
    ) -> tuple[tuple[Any, ...], dict[str, Any], dict[str, Any]]:
        """Set up and run the step once: its arguments, positional, by keyword, and by name."""
        with watching(tracker):
            with _users("setup"):
                args, kwargs = prepared(self.setup, mesh, self.arguments)
            by_name = by_parameter(self.function, args, kwargs)
            tracker.names.update(names_of(by_name).modules)
            of_setup = context.capture().assumed.copy()
            with _users("the step's first run"):
                self.function(*args, **kwargs)
            # The run that is recorded says what the step assumes; what setup did, was just done.
            context.capture().assumed = of_setup
        return args, kwargs, by_name

    def _recording(self, rank: int, recorder: Recorder, names: Names, result: Any) -> Recording:
        storages, known = recorder.storages, context.capture()
        for module in names.modules:
            for parameter in module.parameters(recurse=False):
                shards.note(parameter)
        places.note_families()
        results = tuple(
            storages.view(item)
            for item in _result_tensors(result)
            if item.device.type == device.NAME
        )
        return Recording(
            rank=rank,
            world_size=torch.distributed.get_world_size(),
            ops=tuple(recorder.ops),
            storage_bytes=tuple(storages.bytes),
            inputs=tuple(_inputs(recorder, names)),
            results=results,
            groups=tuple(recorder.groups.used),
            mesh=tuple(zip(self.axes, self.shape, strict=True)),
            constants=dict(storages.constants),
            warnings=dict(recorder.warnings + known.assumed),
            evidence=known.evidence.all(),
            unseen=tuple(sorted(known.unseen)),
        )


@contextlib.contextmanager
def _users(what: str) -> Iterator[None]:
    """Errors of the user's code say where in it."""
    try:
        yield
    except FlintError:
        raise
    except Exception as raised:
        error: BaseException = raised
        if isinstance(raised, SystemError):  # C++ has lost the error
            error = registration.passed_error() or raised
        if isinstance(error, FlintError):
            raise error from None
        at = at_line(*users_line_of(error.__traceback__))
        text = " ".join(str(error).split())[:500]
        advice = _ADVICE.get(type(error).__name__, "")
        raise FlintError(f"{what} failed{at}: {type(error).__name__}: {text}{advice}") from error


def _nothing_ran(recorder: Recorder) -> str:
    at = next(iter(recorder.host.values()), None)
    if at is None:
        return "the step ran no op on any tensor: there is nothing to capture"
    return (
        f"the whole step ran on CPU tensors, first at {at}: none of it is work for the mesh. Make "
        'model and batch on the device (torch.device(mesh.device_type), "cuda" is the same) or '
        "move them there: .to(mesh.device_type)"
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
    for number in sorted({*storages.exposed, *storages.written} - storages.made):
        named = known.get(number)
        if named is not None:
            role = named.role
            if role == "constant" and number in storages.written:
                role = "unknown"  # a buffer that the step changes: running statistics, say
            yield Input(storages.view(named.tensor), role, named.name)
        elif number in storages.exposed:
            where = recorder.host.get(number)
            if where is not None:
                yield Input(storages.exposed[number], "constant", f"made by {where}")
            else:
                yield Input(storages.exposed[number], "unknown", f"storage {number}")
