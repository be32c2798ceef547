"""Launchers of PyTorch programs, read by their own parsers.

The idea: each launcher's package reads its command line, so that every option keeps its meaning;
here only the program that it would start and its arguments are noted.  Packages other than PyTorch
look for devices when they are imported, and the program must not inherit what they find: they are
imported in another process.

    torchrun(["--nproc-per-node=8", "train.py", "--lr=3e-4"])      # Program("train.py", ...)
"""

from __future__ import annotations

import base64
import contextlib
import functools
import io
import json
import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import Any

from flint.errors import UsageError
from flint.host.child_processes import Limits
from flint.host.tasks import run_all
from flint.host.temporary import temporary_folder
from flint.launching.program import Program

#: Where torchrun's parser finds ``--nproc-per-node`` if the command line has none.
_PER_NODE = "PET_NPROC_PER_NODE"
_PROGRAM = "program.json"
#: How argparse begins a message.
_ERROR = re.compile(r"^\S+: error: ")
#: For importing a launcher's package, and reading a command line.
_LIMITS = Limits(seconds=600, memory=8 << 30)

#: Reads a launcher's command line.
_Read = Callable[[Sequence[str]], Program]


def _apart(read: _Read) -> _Read:
    """The same, in a copy of this process."""

    @functools.wraps(read)
    def read_apart(words: Sequence[str]) -> Program:
        with temporary_folder() as folder:
            work = functools.partial(_leave_program, read, words)
            place = run_all(work, [0], folder, _LIMITS)[0] / _PROGRAM
            found = json.loads(place.read_text())
        lists = {name: tuple(item) for name, item in found.items() if isinstance(item, list)}
        return Program(**{**found, **lists})

    return read_apart


def _leave_program(read: _Read, words: Sequence[str], _: int, folder: Path) -> None:
    os.dup2(2, 1)  # what it prints goes with its errors
    (folder / _PROGRAM).write_text(json.dumps(asdict(read(words))))


def torchrun(words: Sequence[str]) -> Program:
    """``torchrun``'s command line."""
    return _torch_launcher("torch.distributed.run", "torchrun", words)


def torch_launch(words: Sequence[str]) -> Program:
    """The command line of ``python -m torch.distributed.launch``, torchrun's predecessor."""
    return _torch_launcher("torch.distributed.launch", "torch.distributed.launch", words)


def _torch_launcher(module: str, name: str, words: Sequence[str]) -> Program:
    launcher = _package(module, name, "the extra torch")
    with _unset_is(_PER_NODE, "unset"):
        found = _parsed(name, lambda: launcher.parse_args(list(words)))
    if found.no_python:
        raise UsageError(f"{name} --no-python starts no Python program: name its program")
    return Program(
        target=found.training_script,
        is_module=found.module,
        arguments=tuple(found.training_script_args),
        per_node=_number(found.nproc_per_node),
        default_per_node=1 if found.nproc_per_node == "unset" else None,
        nodes=_number(str(found.nnodes).partition(":")[0]),
        ranks_one=True,
        local_rank_option="" if getattr(found, "use_env", True) else "--local-rank",
    )


@contextlib.contextmanager
def _unset_is(variable: str, text: str) -> Iterator[None]:
    """Within it, a variable of the environment that is not set is that text."""
    is_set = variable in os.environ
    os.environ.setdefault(variable, text)
    try:
        yield
    finally:
        if not is_set:
            del os.environ[variable]


@_apart
def accelerate(words: Sequence[str]) -> Program:
    """``accelerate launch``'s command line."""
    launch = _package("accelerate.commands.launch", "accelerate", "accelerate")
    if not words or words[0] != "launch":
        raise UsageError("accelerate: only accelerate launch starts a program")
    parser = launch.launch_command_parser()
    given = _parsed("accelerate launch", lambda: parser.parse_args(list(words[1:])))
    before = dict(os.environ)
    given, *_ = launch._validate_launch_command(given)
    variables = import_module("accelerate.utils.launch").prepare_multi_gpu_env(given)
    processes = _number(given.num_processes) or 1
    nodes = _number(given.num_machines) or 1
    return Program(
        target=given.training_script,
        is_module=given.module,
        arguments=tuple(given.training_script_args),
        environment={key: text for key, text in variables.items() if before.get(key) != text},
        per_node=processes // nodes,
        nodes=nodes,
    )


@_apart
def deepspeed(words: Sequence[str]) -> Program:
    """``deepspeed``'s command line."""
    runner = _package("deepspeed.launcher.runner", "deepspeed", "deepspeed")
    found = _parsed("deepspeed", lambda: runner.parse_args(list(words)))
    return Program(
        target=found.user_script,
        is_module=found.module,
        arguments=tuple(found.user_args),
        per_node=found.num_gpus if found.num_gpus > 0 else None,
        nodes=found.num_nodes if found.num_nodes > 0 else None,
        ranks_one=True,
        local_rank_option="" if found.no_local_rank else "--local_rank",
    )


@_apart
def deepspeed_launch(words: Sequence[str]) -> Program:
    """The command line by which ``deepspeed`` starts the ranks of one host."""
    launch = _package("deepspeed.launcher.launch", "deepspeed", "deepspeed")
    sys.argv[1:] = words  # its parser reads nothing else
    found = _parsed("deepspeed.launcher.launch", launch.parse_args)
    if found.no_python:
        raise UsageError("deepspeed --no_python starts no Python program: name its program")
    hosts = json.loads(base64.urlsafe_b64decode(found.world_info))
    return Program(
        target=found.training_script,
        is_module=found.module,
        arguments=tuple(found.training_script_args),
        per_node=len(next(iter(hosts.values()))),
        nodes=len(hosts),
        ranks_one=True,
        local_rank_option="" if found.no_local_rank else "--local_rank",
    )


@_apart
def composer(words: Sequence[str]) -> Program:
    """``composer``'s command line."""
    launcher = _package("composer.cli.launcher", "composer", "mosaicml")
    found = _parsed("composer", lambda: launcher._get_parser().parse_args(list(words)))
    if found.command_mode:
        raise UsageError("composer --command_mode starts a command: name its program")
    hosts = found.world_size // found.nproc if found.world_size and found.nproc else None
    return Program(
        target=found.training_script,
        is_module=found.module_mode,
        arguments=tuple(found.training_script_args),
        launchers=("torchrun", "composer"),
        per_node=found.nproc,
        nodes=hosts,
        ranks_one=True,
    )


def _package(module: str, launcher: str, package: str) -> Any:
    try:
        return import_module(module)
    except ImportError as error:
        raise UsageError(f"{launcher} is not installed here ({error}): install {package}") from None


def _parsed(launcher: str, parse: Callable[[], Any]) -> Any:
    """The result of a parser; its errors become one line."""
    printed = io.StringIO()
    try:
        with contextlib.redirect_stderr(printed), contextlib.redirect_stdout(printed):
            return parse()
    except SystemExit:
        last = printed.getvalue().strip().splitlines()[-1:] or ["cannot be read"]
        # Its parser believes that the command is called as this process is.
        raise UsageError(f"{launcher}: {_ERROR.sub('', last[0])}") from None


def _number(text: Any) -> int | None:
    """A whole number of at least 1; None for "auto", "gpu" and a missing value."""
    return int(text) if str(text).isdecimal() and int(text) > 0 else None
