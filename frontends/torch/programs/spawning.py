"""``torch.multiprocessing.spawn(main, args, nprocs=8)``: a program that starts its ranks itself.

This process is already one rank: the function for each of the processes runs here, as that rank.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch.multiprocessing

from flint.errors import FlintError
from flint.frontends.torch.context import capture
from flint.frontends.torch.patching import replace
from flint.frontends.torch.shims.over_ranks import world
from flint.frontends.torch.shims.own_values import OwnRank
from flint.frontends.torch.user_lines import at_user_line


def apply() -> None:
    """Make spawned functions run in this process."""
    replace(torch.multiprocessing, "spawn", _spawn)
    replace(torch.multiprocessing, "start_processes", _spawn)


def _spawn(fn: Any, args: tuple[Any, ...] = (), nprocs: int = 1, *_: Any, **__: Any) -> None:
    known = capture()
    each = min(known.per_host, world())
    if nprocs != each:
        raise FlintError(
            f"{nprocs} processes are spawned{at_user_line()}, but the cluster has {each} devices "
            f"on each host: use --gpus-per-node {nprocs}"
        )
    fn(OwnRank(known.rank() % each, np.arange(world()) % each), *args)
