"""DDP's reducer with unused parameters: the work of its C++ with host memory.

With ``find_unused_parameters`` the reducer keeps a map of the parameters that got a gradient, on
the host, which fake tensors cannot be.  So the C++ reducer is created for the case that every
parameter is used, and the rest is done here: parameters that the outputs do not depend on are ready
with the first gradient (their part of a bucket is zeroed); after the last bucket the map, 4 bytes
per parameter, goes to the device and is all-reduced; and the host fetches the sum, before it leaves
unchanged the gradients of parameters that no rank has used.  Buckets stay unchanged.

Of a static graph, the first step counts the gradients of each parameter, which several backward
passes may reach, and communicates when all are there.  Later steps do when a parameter has as many.
Parameters that had none remain unused, and nothing is communicated about them.

    reducer = Reducer(dist.Reducer(...), parameters, process_group, looks=True, views=False)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import torch
import torch.distributed as dist

from flint.frontends.torch.context import capture
from flint.frontends.torch.modes import unseen, with_real_tensors
from flint.frontends.torch.user_lines import at_user_line

_engine: Any = torch.autograd.Variable._execution_engine


class Reducer:
    """A C++ reducer with the handling of unused parameters."""

    def __init__(
        self,
        reducer: Any,
        parameters: Sequence[torch.Tensor],
        group: Any,
        *,
        looks: bool,
        views: bool,
    ) -> None:
        """Wrap a reducer.

        Args:
            reducer: the C++ one, made with ``find_unused_parameters=False``.
            parameters: that it reduces, in its order.
            group: process group.
            looks: for unused parameters, in every step.
            views: gradients are views of buckets.
        """
        self._reducer, self._parameters, self._group = reducer, parameters, group
        self._looks, self._views = looks, views
        self._unused: list[int] = []
        self._fired: set[int] = set()
        self._used: set[int] = set()
        self._armed = self._first = False
        #: Of a static graph: parameter -> gradients in a step, by the last one; and those to come.
        self._gradients: dict[int, int] | None = None
        self._to_come: Counter[int] = Counter()
        self._syncs = 0
        self._kept: dict[int, torch.Tensor | None] = {}
        self._work: Any = None
        device = parameters[0].device
        self._map = torch.zeros(len(parameters), dtype=torch.int32, device="cpu")
        self._sent = torch.empty(len(parameters), dtype=torch.int32, device=device)
        self._hooks = [
            handle for number in range(len(parameters)) for handle in self._watch(number)
        ]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._reducer, name)

    # what DDP calls

    def _rebuild_buckets(self) -> bool:
        """Rebuild buckets by the first step's gradients; never if every step's graph is new."""
        return not self._looks and bool(with_real_tensors(self._reducer._rebuild_buckets)())

    def prepare_for_backward(self, outputs: list[torch.Tensor]) -> None:
        """Like the reducer's method; it gets the outputs if unused parameters must be found."""
        self._fired.clear()
        self._to_come = Counter(self._gradients)
        self._armed = self._first = True
        if outputs:
            leaves = {id(item) for item in _leaves(outputs)}
            numbers = range(len(self._parameters))
            self._unused = [at for at in numbers if id(self._parameters[at]) not in leaves]
        self._reducer.prepare_for_backward([])

    def prepare_for_forward(self) -> None:
        """Of a step that communicates."""
        self._syncs += 1
        self._reducer.prepare_for_forward()

    def _set_static_graph(self) -> None:
        self._looks = False
        self._gradients = {}
        self._reducer._remove_autograd_hooks()

    def _delay_all_reduce(self) -> None:
        """After a static graph's first backward pass: unused parameters remain unused."""
        counted = self._gradients or {}
        self._unused = [at for at in range(len(self._parameters)) if at not in counted]
        self._first = self._armed = False
        for number in (*counted, *self._unused):
            self._reducer._autograd_hook(number)
        self._leave_alone()

    # the backward pass

    def _watch(self, number: int) -> Iterator[Any]:
        """Hooks before and after the reducer's own on a parameter's gradient."""
        parameter = self._parameters[number]
        node: Any = torch.autograd.graph.get_gradient_edge(parameter).node
        kind: Any = parameter
        yield kind.register_post_accumulate_grad_hook(lambda _: self._before(number, True))
        yield node.register_prehook(
            lambda grads: None if grads[0] is not None else self._before(number, False)
        )
        yield node.register_hook(lambda *_: self._after(number))

    def _before(self, number: int, defined: bool) -> None:
        if defined:
            self._used.add(number)
        if self._armed and self._first:
            self._first = False
            for unused in self._unused:
                self._reducer._autograd_hook(unused)

    def _is_ready(self, number: int) -> bool:
        """Whether a parameter's gradient is its last one; that of a static graph's is reduced."""
        if self._gradients is None or not self._armed:
            return self._gradients is None
        if self._syncs == 1:
            self._gradients[number] = self._gradients.pop(number, 0) + 1
            return False
        self._to_come[number] -= 1
        if self._to_come[number]:
            return False
        self._reducer._autograd_hook(number)
        return True

    def _after(self, number: int) -> None:
        if not self._is_ready(number):
            return
        self._fired.add(number)
        if not self._armed or len(self._fired | set(self._unused)) < len(self._parameters):
            return
        self._armed = False
        if self._looks:
            self._sent.copy_(self._map, non_blocking=True)
            self._work = dist.all_reduce(self._sent, group=self._group, async_op=True)
        self._leave_alone()

    def _leave_alone(self) -> None:
        """Keep the reducer, which is about to end, from writing gradients of unused parameters."""
        numbers = [at for at in range(len(self._parameters)) if at not in self._used]
        if numbers:
            capture().notice(
                f"DistributedDataParallel{at_user_line()}: {len(numbers)} parameters that are not "
                "used here are assumed to be used by no rank"
            )
        for number in numbers:
            parameter = self._parameters[number]
            self._kept[number] = parameter.grad
            if not self._views:
                with unseen():
                    parameter.grad = torch.empty_like(parameter)
                capture().preserved_gradients[parameter.grad.untyped_storage()._cdata] = self._fetch
        _engine.queue_callback(self._finish)

    def _fetch(self) -> None:
        """The host waits for the map: what is 0 in it was used by no rank."""
        if self._work is not None:
            self._work.wait()
            self._work = None
            self._map.copy_(self._sent)

    def _finish(self) -> None:
        """The reducer has written gradients."""
        if self._kept and self._views:
            self._fetch()
        for number, gradient in self._kept.items():
            self._parameters[number].grad = gradient
        if self._work is not None:
            self._work.wait()
            self._work = None
        self._kept.clear()
        self._used.clear()
        capture().preserved_gradients.clear()


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
