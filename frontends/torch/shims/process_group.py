"""The process group of a fake cluster.

Training programs call ``init_process_group`` (with NCCL, time limits, device ids) themselves.  For
a step with a setup the group exists before they run: a second initialisation returns the same
group.  A whole program begins and ends it.  Groups of other backends are fake, too; gloo's barriers
that report missing ranks report none.

A group's backend determines the communication: the gradient of a gather is a reduce-scatter with
NCCL and an all-to-all otherwise.  Programs, and PyTorch's functions with gradients, see the
requested backend, by default NCCL.
"""

from __future__ import annotations

import functools
import math
import sys
from typing import Any

import torch.distributed as dist
from torch.distributed import device_mesh, distributed_c10d

from flint.errors import UsageError
from flint.frontends.torch.context import capture
from flint.frontends.torch.everywhere import replace_everywhere
from flint.frontends.torch.modes import with_real_tensors
from flint.frontends.torch.patching import around, replace
from flint.frontends.torch.shims.places import note_group
from flint.frontends.torch.user_lines import at_user_line

#: Modules of PyTorch that communicate differently with another backend.
_BY_BACKEND = ("torch.distributed.nn.", "torch.distributed.algorithms.")


def _ask(group: str, backend: Any) -> None:
    """Note the backend that a program requests: a name, or one per kind of device."""
    name = str(backend or "").lower()
    if name and name != "fake":
        capture().backends[group] = name


def _backend(original: Any) -> Any:
    @functools.wraps(original)
    def get_backend(group: Any = None) -> Any:
        found = original(group)
        asker = str(sys._getframe(1).f_globals.get("__name__", ""))
        if found != "fake" or (asker.startswith("torch.") and not asker.startswith(_BY_BACKEND)):
            return found
        backends = capture().backends
        default = backends.get("", "nccl")
        name = default if group is None else backends.get(str(group.group_name), default)
        return dist.Backend(name)

    return get_backend


def apply() -> None:
    """Make programs that create the group get the existing one."""
    replace_everywhere(dist.get_backend, _backend(dist.get_backend))
    for owner in (distributed_c10d, dist.ProcessGroup):
        replace(owner, "monitored_barrier", _monitored_barrier)
    # Of the hosts, if TORCH_DIST_INIT_BARRIER asks for it when a group begins.
    replace(distributed_c10d, "_store_based_barrier", _no_barrier)
    around(distributed_c10d, "new_group", _new_group)
    for name in ("monitored_barrier", "new_group"):
        replace(dist, name, getattr(distributed_c10d, name))
    around(device_mesh, "new_group", _of_backend)
    # Meshes, which begin it if the program has not, have it already.
    begin = distributed_c10d.init_process_group
    around(distributed_c10d, "init_process_group", _init_process_group)
    replace_everywhere(begin, distributed_c10d.init_process_group)


def _init_process_group(original: Any, *args: Any, **kwargs: Any) -> None:
    _ask("", kwargs.get("backend", args[0] if args else None))
    known = capture()
    if not dist.is_initialized() and known.begins_group:
        begin_group(original)
    elif not dist.is_initialized():
        original(*args, **kwargs)
        return
    for word, actual in (("world_size", dist.get_world_size()), ("rank", dist.get_rank())):
        asked = kwargs.get(word, -1)
        if asked not in (-1, actual):
            advice = f" (flint run --world {asked})" if word == "world_size" else ""
            raise UsageError(
                f"init_process_group({word}={asked}){at_user_line()}: the cluster has {actual}"
                f"{advice}"
            )


def begin_group(begin: Any = dist.init_process_group) -> None:
    """Begin the group of the whole cluster, of which this process is one rank."""
    from torch.testing._internal.distributed.fake_pg import FakeStore

    store: Any = FakeStore()
    known = capture()
    begin("fake", rank=known.rank(), world_size=math.prod(known.shape), store=store)


def _new_group(original: Any, *args: Any, **kwargs: Any) -> Any:
    kwargs.pop("device_id", None)
    ranks = kwargs.get("ranks", args[0] if args else None)
    listed = () if ranks is None else tuple(ranks)  # an array has no truth
    if listed and not kwargs.get("use_local_synchronization"):
        note_group(listed)
    return _of_backend(with_real_tensors(original), *args, **kwargs)


def _of_backend(
    original: Any, *args: Any, backend: Any = None, pg_options: Any = None, **kwargs: Any
) -> Any:
    """A fake group, of which the program's backend is noted; its settings are not needed."""
    made = original(*args, **kwargs)
    if isinstance(made, dist.ProcessGroup):
        _ask(str(made.group_name), backend)
    return made


def _monitored_barrier(*_: Any, **__: Any) -> None:
    capture().notice(
        f"monitored_barrier{at_user_line()}: a wait of the hosts, which takes no time here"
    )


def _no_barrier(*_: Any, **__: Any) -> None:
    """All ranks are there."""
