"""Functions of PyTorch that a tracker observes: modules, the engine, optimizers, FSDP.

with watching(tracker): step()
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

from flint.frontends.torch.patching import around
from flint.frontends.torch.recording.naming import PIPELINING
from flint.frontends.torch.recording.tracking import Tracker
from flint.host.imports import after_import


@contextlib.contextmanager
def watching(tracker: Tracker) -> Iterator[Tracker]:
    """Let a tracker observe the code that runs in this process."""
    running: list[contextlib.ExitStack] = []

    def starts(optimizer: torch.optim.Optimizer, *_: Any) -> None:
        if not any(optimizer is item for item in tracker.optimizers):
            tracker.optimizers.append(optimizer)
        running.append(contextlib.ExitStack())
        running[-1].enter_context(tracker.during("optimizer"))

    def ends(*_: Any) -> None:
        running.pop().close()

    with contextlib.ExitStack() as stack:
        for owner, name, watched in _watched(tracker):
            stack.callback(around(owner, name, watched))
        watch_stages = functools.partial(_watch_stages, tracker, stack)
        stack.enter_context(after_import({PIPELINING: watch_stages}))
        stack.callback(register_optimizer_step_pre_hook(starts).remove)
        stack.callback(register_optimizer_step_post_hook(ends).remove)
        yield tracker


#: Called instead of a function, with the function and its arguments.
_Watched = Callable[..., Any]


def _watched(tracker: Tracker) -> Iterator[tuple[Any, str, _Watched]]:
    """Functions of PyTorch that are watched: owner, name, what is called instead (torch 2.13)."""
    from torch.distributed.fsdp._fully_shard._fsdp_param_group import FSDPParamGroup
    from torch.utils import checkpoint

    def called(original: Any, module: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
        with tracker.call_module(module):
            return original(module, *args, **kwargs)

    def backward(original: Any, *args: Any, **kwargs: Any) -> Any:
        with tracker.during("backward"):
            return original(*args, **kwargs)

    def recompute_begins(original: Any, hook: Any) -> Any:
        hook.flint_recompute = tracker.during("recompute")
        hook.flint_recompute.__enter__()
        return original(hook)

    def recompute_ends(original: Any, hook: Any, *error: Any) -> Any:
        hook.flint_recompute.__exit__(None, None, None)
        return original(hook, *error)

    def for_group(original: Any, group: Any, *args: Any, **kwargs: Any) -> Any:
        """FSDP gathers one layer's parameters while another computes: the op is the former's."""
        with tracker.owner(tracker.names.get(group.modules[0])):
            return original(group, *args, **kwargs)

    def group_ends_backward(original: Any, group: Any, *args: Any, **kwargs: Any) -> Any:
        """Pipeline schedules reduce gradients themselves, after the engine's last run."""
        with tracker.during("backward"):
            return for_group(original, group, *args, **kwargs)

    yield torch.nn.Module, "__call__", called
    yield torch.autograd, "_engine_run_backward", backward
    yield torch.autograd.graph, "_engine_run_backward", backward
    yield checkpoint._recomputation_hook, "__enter__", recompute_begins
    yield checkpoint._recomputation_hook, "__exit__", recompute_ends
    for name in ("unshard", "wait_for_unshard", "reshard"):
        yield FSDPParamGroup, name, for_group
    yield FSDPParamGroup, "post_backward", group_ends_backward


def _watch_stages(tracker: Tracker, stack: contextlib.ExitStack) -> None:
    """Watch the messages of pipeline stages; their import takes as long as half of PyTorch's."""
    from torch.distributed.pipelining.stage import _PipelineStageBase

    def exchanged(original: Any, stage: Any, *args: Any, **kwargs: Any) -> Any:
        messages = original(stage, *args, **kwargs)
        tracker.exchanges(item.tensor for item in messages)
        return messages

    for name in ("get_bwd_send_ops", "get_bwd_recv_ops"):
        stack.callback(around(_PipelineStageBase, name, exchanged))
