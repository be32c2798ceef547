"""Programs that start their ranks by a function of PyTorch: ``torch.multiprocessing.spawn``,
``torch.distributed.run.main``.

This process is already one rank: what would run in each of the processes runs here, as that rank.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch.multiprocessing
from torch.distributed.launcher import api

from flint.frontends.torch.context import capture
from flint.frontends.torch.patching import replace
from flint.frontends.torch.shims.over_ranks import world
from flint.frontends.torch.shims.own_values import OwnRank
from flint.launching.launched import fits
from flint.launching.program import Cluster, Program
from flint.launching.running import run


def apply(cluster: Cluster) -> None:
    """Make functions and programs of ranks run in this process."""

    def spawn(fn: Any, args: tuple[Any, ...] = (), nprocs: int = 1, *_: Any, **__: Any) -> None:
        fits(nprocs, cluster)
        fn(OwnRank(capture().rank() % nprocs, np.arange(world()) % nprocs), *args)

    def launch(config: Any, entrypoint: Any, args: Sequence[Any], **_: Any) -> dict[int, Any]:
        fits(config.nproc_per_node, cluster)
        if callable(entrypoint):
            return {0: entrypoint(*args)}
        run(_program([entrypoint, *args]))
        return {0: None}

    replace(torch.multiprocessing, "spawn", spawn)
    replace(torch.multiprocessing, "start_processes", spawn)
    replace(api, "launch_agent", launch)


def _program(words: Sequence[str]) -> Program:
    """Of the command that torchrun makes for a process."""
    if words[0] == sys.executable:
        words = [word for word in words[1:] if word != "-u"]
    is_module = words[0] == "-m"
    target, *arguments = words[1:] if is_module else words
    return Program(target=target, is_module=is_module, arguments=tuple(arguments))
