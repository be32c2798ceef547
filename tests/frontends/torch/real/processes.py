"""Ranks that run: forked processes, joined by gloo or each alone on a fake cluster.

Each leaves what its recorder saw as JSON.  Groups are told by their ranks; ops that touch no tensor
of the recording device (the host's own arithmetic) are kept in their places, so that nothing that
was dispatched escapes the comparison.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import json
import math
import os
import warnings
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from flint.frontends.torch.recording.recording import View
from flint.host.child_processes import Limits
from flint.host.tasks import run_all
from flint.host.temporary import temporary_folder

_MODULES = (
    "torch._dynamo",
    "torch.distributed.algorithms._checkpoint.checkpoint_wrapper",
    "torch.distributed.fsdp",
    "torch.distributed.nn.functional",
    "torch.distributed.pipelining",
    "torch.distributed.tensor.experimental",
    "torch.distributed.tensor.parallel",
    "torch.testing._internal.distributed.fake_pg",
    "flint.frontends.torch.session",
)

LIMITS = Limits(seconds=120, memory=2**34)


@dataclass(frozen=True)
class Case:
    """A step and the cluster that it is for.

    Attributes:
        shape, axes: of the mesh.
        setup: ``setup(mesh)`` returns the step's arguments, on ``mesh.device_type``.
        step: returns nothing of interest.
        ranks: that are compared; all run.
        kernels: what real runs need a GPU's kernels for: "attention", "norm".
        warm_up: real steps before the one that is recorded.
    """

    shape: tuple[int, ...]
    axes: tuple[str, ...]
    setup: Any
    step: Any
    ranks: tuple[int, ...]
    kernels: tuple[str, ...] = ()
    warm_up: int = 1

    @property
    def world(self):
        return math.prod(self.shape)


def preload():
    """Import here what every child would import for itself."""
    for name in _MODULES:
        importlib.import_module(name)


def run_really(case):
    """Rank -> what it saw: {"ops": [...], "trace": nodes of the ExecutionTraceObserver}."""
    with temporary_folder() as shared:

        def work(rank, folder):
            seen = _real_rank(case, rank, shared / "store", shared / f"trace{rank}.json")
            (folder / "seen.json").write_text(json.dumps(seen))

        return _results(work, range(case.world), shared, case.world)


def run_faked(case):
    """The same of ``session.record``, for the ranks that are compared; no traces."""
    with temporary_folder() as shared:

        def work(rank, folder):
            import torch

            torch.backends.cuda.enable_cudnn_sdp(False)  # processors have the second choice's
            (folder / "seen.json").write_text(json.dumps(_faked_rank(case, rank)))

        return _results(work, case.ranks, shared, 4)


def _results(work, ranks, shared, jobs):
    folders = run_all(work, list(ranks), shared, LIMITS, jobs=jobs)
    return {rank: json.loads((at / "seen.json").read_text()) for rank, at in folders.items()}


def _real_rank(case, rank, store, trace):
    import torch
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.profiler import ExecutionTraceObserver

    from flint.frontends.torch.cluster import cluster, device
    from flint.frontends.torch.recording.naming import names_of
    from flint.frontends.torch.recording.tracking import Tracker
    from flint.frontends.torch.recording.watching import watching
    from flint.frontends.torch.shims import mesh as meshes
    from flint.frontends.torch.shims import work
    from flint.launching.commands.variables import variables

    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    found = variables("torchrun", rank, world=case.world, per_host=cluster.LOCAL_WORLD_SIZE)
    os.environ.update(found, GLOO_SOCKET_IFNAME="lo")
    dist.init_process_group(
        "gloo",
        store=dist.FileStore(str(store), case.world),
        rank=rank,
        world_size=case.world,
        timeout=timedelta(seconds=600),
    )
    meshes.apply()  # what meshes compute with rank numbers is the host's, not the device's
    mesh = init_device_mesh("cpu", case.shape, mesh_dim_names=case.axes)
    torch.manual_seed(0)
    with contextlib.ExitStack() as stack:
        if case.kernels:
            from tests.frontends.torch.real.kernels import accelerator_kernels

            stack.enter_context(accelerator_kernels(case.kernels))
        tracker = Tracker()
        with watching(tracker):
            args = case.setup(mesh)
            by_name = dict(inspect.signature(case.step).bind(*args).arguments)
            tracker.names.update(names_of(by_name).modules)
            for _ in range(case.warm_up):
                case.step(*args)
        tracker.names.update(names_of(by_name, tracker.roots, tracker.optimizers).modules)
        tracker.restart()
        device.restart()
        seen = []
        recorder = watched(seen)(tracker, "cpu")
        with watching(tracker), work.waiting(recorder.wait_work), recorder:
            case.step(*args)
        observer = ExecutionTraceObserver().register_callback(str(trace))
        observer.start()
        case.step(*args)
        observer.stop()
        dist.barrier()  # a thread of gloo may still be in a function that the observer saw begin
        observer.unregister_callback()
    nodes = json.loads(trace.read_text())["nodes"]
    return {"ops": _plain_ops(seen, recorder.ops, recorder.groups.used), "trace": nodes}


def _faked_rank(case, rank):
    from flint.frontends.torch import session

    seen = []
    session.Recorder = watched(seen)
    recording = session.record(case.step, case.setup, case.shape, case.axes, rank)
    return {
        "ops": _plain_ops(seen, recording.ops, recording.groups),
        "warnings": dict(recording.warnings),
        "recorded": len(recording.ops),
    }


def watched(seen):
    """A Recorder that lists what it records, and the host's ops, waits and reads in between.

    Args:
        seen: filled with numbers of recorded ops, and with plain ops of the others.
    """
    from flint.frontends.torch.recording.recorder import Recorder

    class Watched(Recorder):
        def note(self, func, rule, place, args, kwargs, result):
            before = len(self.ops)
            super().note(func, rule, place, args, kwargs, result)
            if len(self.ops) > before:
                seen.append(before)
            elif "wait_tensor" in rule.name:
                self._waits_for(self._flying.get(self.storages.number(args[0])))
            elif "_local_scalar_dense" in rule.name:
                seen.append(_other("read", args=[_plain(self.storages.view(args[0]))]))
            else:
                seen.extend(_host_op(self, rule, args, kwargs, result))

        def wait_work(self, work):
            super().wait_work(work)
            number = self._works.waited(work)
            if number is not None:
                self._waits_for(number)

        def _waits_for(self, number):
            seen.append(_other("wait", args=[] if number is None else [self.ops[number].name]))

    return Watched


def _other(name, **known):
    return {"name": name, "args": [], "kwargs": {}, "results": [], "writes": [], **known}


def _host_op(recorder, rule, args, kwargs, result):
    """An op on the host that computes, as a plain op; none of views and the device's ops."""
    from flint.frontends.torch.recording.schemas import flat, tensors_in, written_tensors

    given = list(tensors_in(result if isinstance(result, list | tuple) else (result,)))
    taken = [*tensors_in(args), *tensors_in(tuple(kwargs.values()))]
    if any(item.device.type != "cpu" for item in (*taken, *given)) or "lift_fresh" in rule.name:
        return
    known = {item.untyped_storage()._cdata for item in taken}
    written = written_tensors(rule, args, kwargs, given)
    if not written and all(item.untyped_storage()._cdata in known for item in given):
        return
    if given and not any(item.numel() for item in (*given, *written)):
        return  # launches nothing, on either side
    yield _other(
        rule.name,
        args=[_plain(recorder._argument(item)) for item in args],
        kwargs={key: _plain(recorder._argument(item)) for key, item in kwargs.items()},
        results=[_plain(recorder._argument(item)) for item in flat(result)],
        writes=[_plain(recorder.storages.view(item)) for item in written],
    )


def _plain_ops(seen, ops, groups):
    ranks = [list(group.ranks) for group in groups]
    return [_plain_op(ops[item], ranks) if isinstance(item, int) else item for item in seen]


def _plain_op(op, groups):
    plain = {
        "name": op.name,
        "args": [_plain(item) for item in op.args],
        "kwargs": {key: _plain(item) for key, item in op.kwargs.items()},
        "results": [_plain(item) for item in op.results],
        "writes": [_plain(item) for item in op.writes],
        "group": groups[op.group] if op.group >= 0 else None,
        "peer": op.peer,
        "reduction": op.reduction,
        "tag": op.tag,
        "phase": op.phase,
        "module": op.module,
        "file": os.path.basename(op.file),
        "line": op.line,
    }
    if plain["file"] == "kernels.py":  # of these tests, which is nobody's line
        del plain["file"], plain["line"]
    return plain


def _plain(item):
    if isinstance(item, View):
        return {
            "view": [item.storage, item.offset, list(item.shape), list(item.stride), item.dtype]
        }
    if isinstance(item, list | tuple):
        return [_plain(part) for part in item]
    return str(item) if isinstance(item, complex) else item
