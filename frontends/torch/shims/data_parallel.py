"""DistributedDataParallel without other ranks.

When it is made it compares and broadcasts parameters, reading memory that fake tensors do not have.
Its reducer (C++) makes real tensors of its own when it rebuilds its buckets after the first step:
this runs outside of fake mode.  And it takes the sum out of the work's future, which the fake
group's works leave empty.  What it does about parameters that are not used is in ``reducer.py``.
"""

from __future__ import annotations

import functools
import inspect
from typing import Any

import torch
from torch._C import _distributed_c10d
from torch.nn.parallel import distributed

from flint.frontends.torch.shims.reducer import Reducer
from flint.frontends.torch.shims.values import assumed, place

#: Position of ``find_unused_parameters`` among a reducer's arguments.
_FINDS = 6

#: When hooks begin with what they are for: attributes of their states, counts of steps.
_STARTS = ("start_powerSGD_iter", "start_localSGD_iter")


def apply() -> None:
    """Let DDP be made, reduce gradients and rebuild its buckets."""
    _fill_futures()
    module: Any = distributed

    def nothing(*_: Any, **__: Any) -> None:
        return None

    module._verify_param_shape_across_processes = nothing
    original = module.DistributedDataParallel._ddp_init_helper

    @functools.wraps(original)
    def helper(self: Any, *args: Any, **kwargs: Any) -> Any:
        bound = inspect.signature(original).bind(self, *args, **kwargs)
        made = module.dist.Reducer

        def reducer(*given: Any) -> Any:
            return made(*given[:_FINDS], False, *given[_FINDS + 1 :])

        module.dist.Reducer = reducer
        try:
            result = original(self, *args, **kwargs)
        finally:
            module.dist.Reducer = made
        self.reducer = Reducer(
            self.reducer,
            bound.arguments["parameters"],
            self.process_group,
            looks=self.find_unused_parameters and not bound.arguments.get("static_graph"),
            views=self.gradient_as_bucket_view,
        )
        return result

    module.DistributedDataParallel._ddp_init_helper = helper
    _allow_hooks(module.DistributedDataParallel)


def _allow_hooks(kind: Any) -> None:
    """Hooks that send bfloat16 are for NCCL's process group: what is captured stands for it."""
    original = kind._check_comm_hook

    @functools.wraps(original)
    def check(self: Any, hook: Any) -> None:
        try:
            original(self, hook)
        except TypeError as error:
            if not str(error).startswith("BF16 all reduce communication hook required"):
                raise

    kind._check_comm_hook = check
    register = kind.register_comm_hook

    @functools.wraps(register)
    def register_comm_hook(self: Any, state: Any, hook: Any) -> None:
        for name in _STARTS:
            start = getattr(state, name, 0)
            if start > 1:
                # After the first step, in which buckets are made, all steps are as later ones.
                setattr(state, name, 1)
                assumed[
                    f"{type(state).__name__}{place()}: the step is one after {name}={start}"
                ] += 1
        register(self, state, hook)

    kind.register_comm_hook = register_comm_hook


_library: Any = None
_new_library: Any = torch.library.Library


def _fill_futures() -> None:
    """Works of all-reduces hold the reduced tensors, as those of real process groups do."""
    global _library
    _library = _new_library("c10d", "IMPL")
    c10d: Any = _distributed_c10d

    def allreduce(tensors: list[torch.Tensor], *_: Any, **__: Any) -> Any:
        future: Any = torch.futures.Future()
        future.set_result(tensors)
        return tensors, c10d._create_work_from_future(future).boxed()

    _library.impl("allreduce_", allreduce, "Meta", allow_override=True)
