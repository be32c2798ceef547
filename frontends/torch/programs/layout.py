"""Meshes and groups of a program, noted when it creates them.

apply(grid, known)           # DeviceMesh(...) and new_group([0, 2, 4]) cut the grid from now on
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import Any

from torch.distributed import distributed_c10d
from torch.distributed.device_mesh import DeviceMesh

from flint.frontends.torch.context import Capture
from flint.frontends.torch.everywhere import replace_everywhere
from flint.frontends.torch.modes import with_real_tensors
from flint.frontends.torch.patching import around
from flint.frontends.torch.programs.grid import Grid


def apply(grid: Grid, known: Capture) -> None:
    """Make new meshes and groups cut the grid, whose axes become the capture's."""

    def mesh_made(init: Callable[..., None], made: Any, /, *args: Any, **kwargs: Any) -> None:
        init(made, *args, **kwargs)
        ranks = with_real_tensors(lambda: made.mesh.numpy())()
        grid.add_mesh(ranks, made.mesh_dim_names or ())
        _refresh(grid, known)

    def group_made(make: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        made = make(*args, **kwargs)
        ranks = kwargs.get("ranks", args[0] if args else None)
        if ranks is not None and len(ranks) > 1:
            grid.add_ranks(sorted(map(operator.index, ranks)), kwargs.get("group_desc") or "")
            _refresh(grid, known)
        return made

    around(DeviceMesh, "__init__", mesh_made)
    plain = distributed_c10d.new_group
    replace_everywhere(plain, functools.wraps(plain)(functools.partial(group_made, plain)))


def _refresh(grid: Grid, known: Capture) -> None:
    shape = tuple(size for _, size in grid.axes())
    if shape != known.shape:
        known.shape = shape
        known.groups_known.clear()
