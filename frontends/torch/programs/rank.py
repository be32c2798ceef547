"""A whole program as one rank of a cluster: from its first tensor to the end of its step.

The idea: when the program imports torch, this process becomes the rank (devices, shims, modes)
until it ends.  The steps (``steps.py``) determine when one begins and ends; the ops dispatched
between are recorded and written into the folder.

    rank = ProgramRank(request, Own(0, folder), Peers(0))
    rank.begin()                        # and the program goes on; at its step, the process ends
"""

from __future__ import annotations

import contextlib
import importlib
from collections import Counter
from dataclasses import replace
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

from flint.errors import FlintError
from flint.frontends.torch.capturing import compiled_for, leave
from flint.frontends.torch.cluster import device, device_module, device_words, memory
from flint.frontends.torch.context import Capture
from flint.frontends.torch.cuda_graphs import CudaGraphs
from flint.frontends.torch.modes import without_modes
from flint.frontends.torch.patching import around
from flint.frontends.torch.programs import (
    host_tensors,
    kernel_packages,
    layout,
    loading,
    loops,
    missing_images,
    missing_states,
    saving,
    spawning,
)
from flint.frontends.torch.programs.grid import Grid
from flint.frontends.torch.programs.own_updates import OwnUpdates
from flint.frontends.torch.programs.repeated_calls import answering
from flint.frontends.torch.programs.steps import LOOP, NO_TRAINING, ONCE, REPEATED, Kind, Steps
from flint.frontends.torch.programs.trainings import Trainings
from flint.frontends.torch.rank_process import fake_device, prepare
from flint.frontends.torch.recording.finished import finished
from flint.frontends.torch.recording.lifetimes import watching_sizes
from flint.frontends.torch.recording.naming import Names, names_of
from flint.frontends.torch.recording.recorder import Recorder
from flint.frontends.torch.recording.tracking import Tracker
from flint.frontends.torch.recording.watching import watching
from flint.frontends.torch.shims import attention, own_rank, shards
from flint.frontends.torch.stage_shapes import Peers
from flint.graph.routing import Routing
from flint.launching import marks, nvidia_smi
from flint.launching.hooks import found
from flint.launching.notes import noted
from flint.launching.own import Own
from flint.launching.program import ProgramRequest, SeenStep, StepChoice
from flint.launching.stand_ins.missing import watch
from flint.launching.unknown import Unknown

_EMISSION = "flint.frontends.torch.emission"
#: Backward passes after which a program without an optimizer has shown what it repeats.
_MANY = 256


class ProgramRank:
    """A program's process.

    Attributes:
        request: the request.
        steps: the steps that the program has run.
    """

    def __init__(self, request: ProgramRequest, own: Own, peers: Peers) -> None:
        """A rank that leaves its recording in its process's folder."""
        self.request, self._own, cluster = request, own, request.cluster
        self._known = Capture(
            (cluster.world,),
            cluster.per_node,
            request.options.walk.routing or Routing(),
            begins_group=True,
            rank=own.ask,
            peers=peers,
            strict_values=False,
            watch=shards.note,
            compiles=request.target is not None,
            lowered=own.folder.parent / "lowered",
            unknown=Unknown(request.step.values, request.numbers),
            mask_shares=request.mask_shares,
            trip_counts=request.options.walk.trip_counts,
        )
        self._grid, self._tracker = Grid(cluster.world), Tracker()
        self._recorder: Recorder | None = None
        self._names = Names()
        self._kept: Recorder | None = None
        self._always, self._guessed = contextlib.ExitStack(), ""
        self._has_optimizer = self._has_stepped = False
        self.steps = Steps(request.step, self._start, self._end)
        self._trainings = Trainings(self.steps, self._leave, request.step.name is None)
        self.caught: Any = lambda: self._trainings.caught(self._tracker)
        self._updates = OwnUpdates(lambda: self.steps.ended(OwnUpdates.NAME, Kind.UPDATE))
        self._ops = loops.Ops(request.step, lambda: self.steps.ended(loops.NAME, Kind.LOOP))

    def import_rest(self) -> None:
        """Import what writes a recording, once for all copies of the process."""
        with without_modes():
            importlib.import_module(_EMISSION)

    def become(self, peers: Peers) -> None:
        """Act as the rank of the process from now on."""
        self._known.peers = peers
        if self._own.is_copy:  # a copy has no threads that a computation might wait for
            torch.set_num_threads(1)

    def begin(self) -> None:
        """Act as the rank from now on."""
        cluster = self.request.cluster
        seen = compiled_for(self.request.target) or cluster.device
        gpu = device_module.describe(seen, cluster.per_node)
        nvidia_smi.provide(
            self._own.folder / "bin", gpu.name, gpu.total_memory, (gpu.major, gpu.minor),
            cluster.per_node,
        )  # fmt: skip
        prepare(self._known)
        device_words.apply(own_rank.device_number)
        host_tensors.apply()
        layout.apply(self._grid, self._known)
        spawning.apply(cluster, self._own, seen)
        saving.apply(files="checkpoints" in self.request.allow)
        loading.apply()
        missing_states.apply()
        kernel_packages.provide(self.request.step.kernels)
        for stand_ins in (missing_states.STAND_INS, missing_images.STAND_INS):
            watch(stand_ins, self.request.fake_data)
        enter = self._always.enter_context
        self._seen = enter(fake_device(self._known, host_tensors.see))
        enter(watching(self._tracker))
        self._graphs = CudaGraphs(self._seen, self._tracker, lambda: self._recorder)
        enter(self._graphs.capturing())
        enter(watching_sizes(self._resized))
        enter(answering(lambda: self._recorder is not None or self._graphs.parts is not None))
        for hook in (self._trainings.stepped, self._trained):
            register_optimizer_step_post_hook(self._graphs.later(hook))
        around(torch.optim.Optimizer, "__init__", self._makes_optimizer)
        self._tracker.entered = self._called
        self._tracker.ran_backward = self._ran_backward
        self._seen.noted, self._seen.made = self._noted, memory.watch()
        self._seen.is_of_host, self._seen.prepared = host_tensors.is_of_host, host_tensors.plain
        marks.listen(self._marked)
        if self.request.step.once:
            self._known.notice(ONCE)
        if self.request.step.mark:
            self._known.notice(REPEATED)

    def _makes_optimizer(self, make: Any, optimizer: Any, *args: Any, **kwargs: Any) -> None:
        self._has_optimizer = True
        self._updates.over()
        make(optimizer, *args, **kwargs)
        self._trainings.made(optimizer)

    def _trained(self, *_: Any) -> None:
        """An optimizer has stepped."""
        self._has_stepped, self._tracker.failed = True, None
        self._known.unknown.trained += 1
        self._ops.over()
        if self._recorder is not None and 0 < self._trainings.only == self.request.step.once:
            self._end(Kind.OPTIMIZER)

    def _ran_backward(self) -> None:
        self._own.has_own_threads = True  # the engine's, which name themselves only later
        self._known.unknown.trained += 1
        self._updates.ran_backward()
        self._ops.ran_backward()
        many = (passes := self._known.unknown.trained) >= _MANY and passes.bit_count() == 1
        free = not self._has_optimizer or self.request.step.name == loops.NAME
        if many and free and self._ops.loop():
            self.ended()  # as good as: such a program may go on forever

    def _marked(self, name: str) -> None:
        self._ops.over()
        self.steps.ended(name, Kind.MARK)

    def _noted(self, op: Any, types: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """An op is about to run; it is the device's if one of its tensors is."""
        if types or getattr(kwargs.get("device"), "type", "cpu") != "cpu":
            is_inside = self._tracker.is_inside()
            self._ops.op(op, is_inside)
            self._updates.op(op, args, is_inside)

    def _called(self, module: torch.nn.Module) -> None:
        """A model is called, not from within another one."""
        if self._graphs.parts is not None:
            return  # it runs only when its graph does
        self._updates.called(module)
        self._ops.called(module)
        if self.request.step.once:
            if torch.is_grad_enabled() and self._recorder is None:
                self._start(Kind.OPTIMIZER)
        elif not torch.is_grad_enabled():
            self.steps.ended(type(module).__name__, Kind.CALL)

    def _start(self, kind: Kind) -> None:
        """A step may begin here: earlier recorded ops do not belong to it."""
        tracker = self._tracker
        self._names = names_of({}, tracker.roots, tracker.optimizers)
        tracker.names.update(self._names.modules)
        tracker.restart()
        device.restart()
        self._known.strict_values = self._is_sure(kind)
        self._known.guessed = ""
        self._recorder = Recorder(tracker, device.NAME, attention.WHOLE, self._seen.follow)
        self._seen.by = self._recorder.see

    def _end(self, kind: Kind) -> None:
        """The step has ended: write its recording and end the process."""
        self._kept, self._recorder = self._recorder, None
        self._guessed = self._known.guessed
        self._seen.by = self._seen.follow
        self._known.strict_values = False
        if self._is_sure(kind) and not self._trainings.goes_on(kind):
            self._leave()

    def _is_sure(self, kind: Kind) -> bool:
        """A call of a model may be an evaluation or a policy's action before the training."""
        return kind is not Kind.CALL or self.request.step.name is not None

    def _resized(self, storage: Any) -> None:
        if self._recorder is not None:
            self._recorder.resized(storage)

    def failed(self, error: BaseException) -> None:
        """The program has failed, behind its step or for want of kernels with stand-ins."""
        self._trainings.failed(error)
        step = self.request.step
        if kernels := kernel_packages.needed(error, step.kernels):
            found(self._own.folder, "torch", again=replace(step, kernels=kernels))

    def ended(self) -> list[SeenStep]:
        """The program has ended: the kept recording is the step; returns the steps that were seen.

        If it infers without calls of a model, or trains without an optimizer, its loop is its step;
        it runs again to record that one.  It also runs again with other values if unknown values
        may have ended its training.
        """
        spawning.check(self.request.cluster)
        asked, seen = self.request, list(self.steps.seen())
        if waits := self._trainings.waits:  # for one that never came
            found(self._own.folder, "torch", seen, replace(asked.step, name=waits))
        if self._trainings.has_step:  # another training never came
            self._leave()
        trains = self._has_stepped or self._ops.runs_backward
        again = self._known.unknown.again(asked.step)
        # A stretch that repeats may be a part of a round whose loop has ended.
        wrong = trains or self._has_optimizer or (self._kept is None and not self._ops.loop())
        if again is not None and not asked.step.mark and wrong:
            found(self._own.folder, "torch", again=again)
        if self._is_whole() and not asked.lists_steps:
            found(self._own.folder, "torch", again=replace(asked.step, once=self._trainings.only))
        loop = self._ops.loop() if self._kept is None or self._ops.runs_backward else None
        if loop is not None and not asked.step.mark:
            step = SeenStep(name=loops.NAME, count=loop.count, place=loop.place, what=LOOP)
            wanted = asked.step.name == loops.NAME or (loop.is_whole and asked.step.name is None)
            if wanted and loop.count >= asked.step.number and not asked.lists_steps:
                again = replace(asked.step, name=loops.NAME, mark=loop.mark)
                found(self._own.folder, "torch", [step], again)
            seen.insert(0, step)
        if self._kept is not None and not asked.lists_steps:
            if trains and again is None and asked.step.values:
                return seen  # the cause of the end of its training is not known
            if trains or self._has_optimizer:
                self._known.notice(NO_TRAINING)
            self._leave()
        return seen

    def _is_whole(self) -> bool:
        """Whether the program has ended well after a single round, which no assumed value ended."""
        is_free = replace(self.request.step, kernels=()) == StepChoice()
        cut = self._own.has_failed or self._known.unknown.is_read
        return is_free and not cut and self._trainings.only > 0

    def _leave(self) -> None:
        recorder, peers = self._kept, self._known.peers
        assert recorder is not None and peers is not None
        if peers.is_asked:
            raise FlintError("it ran its step but sent no result")
        if self._guessed:
            raise FlintError(self._guessed)
        if self.request.lists_steps:
            found(self._own.folder, "torch", self.steps.seen())
        self._trainings.note()
        shards.note_all(self._names.modules)
        recording = finished(recorder, self._names, rank=self._own.rank, mesh=self._grid.axes())
        warnings = Counter(recording.warnings) + noted.of_all_processes(self._own.folder)
        with without_modes():
            strict = self.request.options.walk.strict
            leave(replace(recording, warnings=dict(warnings)), self._own.folder, strict)
            peers.teach(self._own.folder)
        found(self._own.folder, "torch")
