"""DistributedDataParallel without other ranks.

When it is made it compares and broadcasts parameters, reading memory that fake tensors do not have.
Its reducer (C++) creates real tensors when it rebuilds its buckets after the first step: this runs
outside of fake mode.  Its handling of unused parameters is in ``reducer.py``.  Buffers are
broadcast in one tensor with others; those whose values are known keep them.

DataParallel, which has one process for several devices, moves a batch by a function of CUDA builds.
"""

from __future__ import annotations

import inspect
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import comm, distributed

from flint.errors import FlintError
from flint.frontends.torch.context import capture
from flint.frontends.torch.patching import around, replace
from flint.frontends.torch.recording.following_messages import keep
from flint.frontends.torch.shims.reducer import Reducer
from flint.frontends.torch.user_lines import at_user_line

#: Position of ``find_unused_parameters`` among a reducer's arguments.
_FINDS = 6

#: Step counts at which hooks begin their actual work: attributes of their states.
_STARTS = ("start_powerSGD_iter", "start_localSGD_iter")


def apply() -> None:
    """Allow DDP to be constructed, to reduce gradients and to rebuild its buckets."""
    replace(distributed, "_verify_param_shape_across_processes", lambda *_, **__: None)
    ddp = distributed.DistributedDataParallel
    around(ddp, "_ddp_init_helper", _make_reducer)
    around(ddp, "_check_comm_hook", _check_hook)
    around(ddp, "register_comm_hook", _register_hook)
    around(comm, "scatter", _scatter)
    around(dist, "_broadcast_coalesced", _broadcast)


def _make_reducer(original: Any, ddp: Any, *args: Any, **kwargs: Any) -> Any:
    """The C++ reducer is constructed not to find unused parameters; Flint's reducer finds them."""
    bound = inspect.signature(original).bind(ddp, *args, **kwargs)
    module: Any = distributed
    made = module.dist.Reducer

    def reducer(*given: Any) -> Any:
        return made(*given[:_FINDS], False, *given[_FINDS + 1 :])

    undo = replace(module.dist, "Reducer", reducer)
    try:
        result = original(ddp, *args, **kwargs)
    finally:
        undo()
    ddp.reducer = Reducer(
        ddp.reducer,
        bound.arguments["parameters"],
        ddp.process_group,
        looks=ddp.find_unused_parameters and not bound.arguments.get("static_graph"),
        views=ddp.gradient_as_bucket_view,
    )
    return result


def _check_hook(original: Any, ddp: Any, hook: Any) -> None:
    """Hooks that send bfloat16 require NCCL's process group, which a capture models."""
    try:
        original(ddp, hook)
    except TypeError as error:
        if not str(error).startswith("BF16 all reduce communication hook required"):
            raise


def _register_hook(original: Any, ddp: Any, state: Any, hook: Any) -> None:
    for name in _STARTS:
        start = getattr(state, name, 0)
        if start > 1:
            # After the first step, which creates the buckets, all steps are like later ones.
            setattr(state, name, 1)
            capture().notice(
                f"{type(state).__name__}{at_user_line()}: the step is one after {name}={start}"
            )
    original(ddp, state, hook)


def _broadcast(
    original: Any, group: Any, tensors: list[torch.Tensor], buffer_size: int, src: int = 0
) -> None:
    """Parameters and buffers of the root; what it knows of a buffer, the others know too."""
    values = capture().known_values
    before = [(item, values[item]) for tensor in tensors for item in values.sharing(tensor)]
    original(group, tensors, buffer_size, src)
    for item, known in before:
        keep(values, known, item, group.rank() == src)


def _scatter(_: Any, tensor: torch.Tensor, devices: Any, *__: Any) -> tuple[torch.Tensor, ...]:
    """A batch on the devices of DataParallel: on one, it is only moved."""
    if len(devices) > 1:
        raise FlintError(
            f"DataParallel runs {len(devices)} devices in one process{at_user_line()}: a capture "
            "has one process per device; start the program with torchrun, or with --world 1"
        )
    return (tensor.to(torch.device("cuda", devices[0])),)
