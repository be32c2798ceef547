"""Programs that start their ranks: ``torch.multiprocessing.spawn``, ``torch.distributed.run.main``,
``Process(...).start()``.

This process is already one rank: what would run in each of the processes runs here, as that rank.
Other processes (of data loaders, environments, servers) really start.  A process is a rank if its
function, or one of the program's that this calls, names ``init_process_group``.

    for rank in range(8):
        mp.Process(target=main, args=(rank, 8)).start()     # the eighth one runs main(own rank, 8)
"""

from __future__ import annotations

import functools
import multiprocessing.process
import os
import sys
from collections.abc import Iterator, Sequence
from multiprocessing.reduction import ForkingPickler
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any, NoReturn

import numpy as np
import torch.distributed as dist
import torch.multiprocessing
from torch._subclasses.fake_tensor import FakeTensor
from torch.distributed.launcher import api

from flint.capturing.user_frames import is_programs, own_line
from flint.errors import FlintError
from flint.frontends.torch.context import capture
from flint.frontends.torch.patching import around, replace
from flint.frontends.torch.programs import new_processes, submitted
from flint.frontends.torch.shims.over_ranks import world
from flint.frontends.torch.shims.own_values import OwnRank
from flint.launching.code_behind import begins_process
from flint.launching.launched import fits
from flint.launching.own import Own
from flint.launching.program import Cluster, Program
from flint.launching.running import run

_JOINS = "init_process_group"
#: Types of arguments that are compared by value.
_PLAIN = {int, float, bool, str, type(None)}
#: The processes that are ranks, in the order of their starts, and where the last one was started.
_ranks: list[Any] = []
_line: list[str] = []


def apply(cluster: Cluster, own: Own, device: str | None) -> None:
    """Make functions and programs of ranks run in this process.

    Args:
        cluster: which the program sees.
        own: this process.
        device: of which processes that start anew are told.
    """
    own.anew.append(functools.partial(new_processes.answer, device, cluster.per_node))

    def spawn(fn: Any, args: tuple[Any, ...] = (), nprocs: int = 1, *_: Any, **__: Any) -> None:
        fits(nprocs, cluster)
        fn(_of_ranks(range(nprocs)), *args)

    def launch(config: Any, entrypoint: Any, args: Sequence[Any], **_: Any) -> dict[int, Any]:
        fits(config.nproc_per_node, cluster)
        if callable(entrypoint):
            return {0: entrypoint(*args)}
        run(_program([entrypoint, *args]))
        return {0: None}

    replace(torch.multiprocessing, "spawn", spawn)
    replace(torch.multiprocessing, "start_processes", spawn)
    replace(api, "launch_agent", launch)
    around(multiprocessing.process.BaseProcess, "start", functools.partial(_start, cluster))
    around(multiprocessing.process.BaseProcess, "join", functools.partial(_join, cluster))
    ForkingPickler.register(FakeTensor, _refuse)
    submitted.apply(cluster)


def _refuse(tensor: FakeTensor) -> NoReturn:
    """A tensor without values, on its way to another process."""
    raise FlintError(
        f"another process gets a tensor of the device ({own_line()}): the work of processes that a "
        "program starts is not captured; start one rank for each device, or train in this process"
    )


def _of_ranks(numbers: Sequence[int]) -> OwnRank:
    """The number of this rank, of those of a host's ranks."""
    each = len(numbers)
    every = np.asarray(numbers)[np.arange(world()) % each]
    return OwnRank(numbers[capture().rank() % each], every)


def _program(words: Sequence[str]) -> Program:
    """Of the command that torchrun makes for a process."""
    if words[0] == sys.executable:
        words = [word for word in words[1:] if word != "-u"]
    is_module = words[0] == "-m"
    target, *arguments = words[1:] if is_module else words
    return Program(target=target, is_module=is_module, arguments=tuple(arguments))


def check(cluster: Cluster) -> None:
    """Refuse a program that has started some ranks, but not one for each device of a host."""
    if _ranks:
        fits(len(_ranks), cluster, _line[0])


class _Here:
    """What ``multiprocessing`` asks about a started process, of a rank that runs in this one.

    Attributes:
        pid: this process's.
        returncode: how it has ended; None before.
    """

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.returncode: int | None = None

    def poll(self, *_: Any) -> int | None:
        """How the rank has ended."""
        return self.returncode

    wait = poll

    def terminate(self) -> None:
        """It has no process of its own."""

    kill = close = terminate


def _start(cluster: Cluster, start: Any, process: Any) -> None:
    target = process._target
    if target is None or dist.is_initialized() or not _joins(target, set()):
        start(process)
        return
    _line[:] = [own_line()]
    _ranks.append(process)
    process._popen, process._sentinel = _Here(), None
    if len(_ranks) == min(cluster.per_node, cluster.world):
        args = [_own(items) for items in zip(*(item._args for item in _ranks), strict=True)]
        kwargs = {
            name: _own([item._kwargs.get(name) for item in _ranks]) for name in process._kwargs
        }
        _run(target, args, kwargs)
        for item in _ranks:
            item._popen.returncode, item._parent_pid = 0, os.getpid()


def _run(target: Any, args: list[Any], kwargs: dict[str, Any]) -> None:
    target(*args, **kwargs)


begins_process(_run.__code__)


def _own(items: Sequence[Any]) -> Any:
    """This rank's argument, of those of a host's ranks."""
    first, kinds = items[0], set(map(type, items))
    if all(item is first for item in items) or (kinds <= _PLAIN and len(set(items)) == 1):
        return first
    if kinds == {int}:
        return _of_ranks(items)
    raise FlintError(
        f"the processes started at {_line[0]} get different arguments ({type(first).__name__}): a "
        "capture follows numbers only; let each process make its own from its number"
    )


def _join(cluster: Cluster, join: Any, process: Any, *args: Any, **kwargs: Any) -> None:
    if process in _ranks:  # it has run, in this process
        check(cluster)
    else:
        join(process, *args, **kwargs)


def _joins(item: Any, seen: set[CodeType]) -> bool:
    """Whether a function of the program's joins a process group."""
    if isinstance(item, type):
        parts = [part for part in vars(item).values() if isinstance(part, FunctionType)]
        return any(_joins(part, seen) for part in parts)
    function = item.__func__ if isinstance(item, MethodType) else item
    if not isinstance(function, FunctionType) or not is_programs(function.__code__.co_filename):
        return False
    if function.__code__ in seen:
        return False
    seen.add(function.__code__)
    names = set(_names(function.__code__))
    if _JOINS in names:
        return True
    used = [function.__globals__.get(name) for name in names]
    for module in [item for item in used if isinstance(item, ModuleType)]:
        used += [vars(module).get(name) for name in names]
    return any(_joins(part, seen) for part in used)


def _names(code: CodeType) -> Iterator[str]:
    """Names of globals and attributes in a function, and in the functions within it."""
    yield from code.co_names
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _names(inner)
