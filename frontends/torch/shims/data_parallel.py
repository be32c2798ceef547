"""DistributedDataParallel without other ranks.

When it is made it compares and broadcasts parameters, reading memory that fake tensors do not have.
Its reducer (C++) makes real tensors of its own when it rebuilds its buckets after the first step:
this runs outside of fake mode.  And it takes the sum out of the work's future, which the fake
group's works leave empty.  Of a static graph it learns in the first step, with memory of the host
that fake tensors have not; later steps are those of a graph in which every parameter is used once.
So are steps with ``find_unused_parameters``: the map of what was used is the host's, too.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Iterator
from typing import Any

import torch
from torch._C import _distributed_c10d
from torch.nn.parallel import distributed

from flint.errors import FlintError
from flint.frontends.torch.shims.mesh import really
from flint.frontends.torch.shims.values import assumed, place

_MAP = (
    "DistributedDataParallel(find_unused_parameters=True): the all-reduce of which parameters were "
    "used, 4 bytes each, is left out"
)


class _Reducer:
    """A reducer that rebuilds outside of fake mode and learns nothing of a static graph.

    Where a parameter is not used, or twice, it says so in the second step, as without static_graph.
    """

    def __init__(self, reducer: Any, names: dict[int, str]) -> None:
        """Wrap a reducer of parameters with these names, by ``id``."""
        self.__dict__["_reducer"] = reducer
        self.__dict__["_names"] = names

    def __getattr__(self, name: str) -> Any:
        return getattr(self._reducer, name)

    def _rebuild_buckets(self) -> bool:
        return bool(really(self._reducer._rebuild_buckets)())

    def prepare_for_backward(self, outputs: list[torch.Tensor]) -> None:
        """As the reducer's; tensors are given where unused parameters are to be found."""
        if outputs:
            used = {id(parameter) for parameter in _leaves(outputs)}
            unused = [name for key, name in self._names.items() if key not in used]
            if unused:
                raise FlintError(
                    f"DistributedDataParallel(find_unused_parameters=True){place()}: the loss does "
                    f"not depend on {', '.join(unused[:3])}{', ...' if len(unused) > 3 else ''}, "
                    "which is not captured: freeze what is not used (requires_grad_(False))"
                )
            assumed[_MAP] += 1
        self._reducer.prepare_for_backward([])

    def _set_static_graph(self) -> None:
        pass

    def _delay_all_reduce(self) -> None:
        pass


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
        looks = self.find_unused_parameters and not bound.arguments.get("static_graph")
        self.find_unused_parameters = False  # a static graph's are known after one step
        result = original(self, *args, **kwargs)
        names = {id(item): name for name, item in self.module.named_parameters()}
        kept = {id(item) for item in bound.arguments["parameters"]}
        self.reducer = _Reducer(
            self.reducer, {key: name for key, name in names.items() if key in kept}
        )
        self.find_unused_parameters = looks
        return result

    module.DistributedDataParallel._ddp_init_helper = helper
    _allow_hooks(module.DistributedDataParallel)


def _leaves(outputs: list[torch.Tensor]) -> Iterator[torch.Tensor]:
    """The tensors that outputs are differentiable by."""
    seen: set[Any] = set()
    pending: list[Any] = [output.grad_fn for output in outputs]
    while pending:
        node = pending.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if hasattr(node, "variable"):
            yield node.variable
        pending += [following for following, _ in node.next_functions]


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
