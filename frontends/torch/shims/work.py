"""Works: what ``torch.distributed`` returns for a collective, to wait for or to go on from.

The fake process group's works are complete at once and do not report that they are waited for, but
after the wait the current stream comes after the collective.  Their futures hold nothing, though
those of real process groups hold the tensors that the collective has written.  NCCL gathers a list
of tensors into one buffer, from which it copies them: that buffer is what its future holds.

What follows a work (``work.get_future().then(...)``) runs at once, on a stream of its own that
comes after the collective, as PyTorch runs it on a GPU: what is issued next does not wait for it.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch._C import _distributed_c10d
from torch.utils._pytree import tree_leaves

from flint.frontends.torch.cluster.device import Event, Stream
from flint.frontends.torch.patching import around, register_kernels
from flint.frontends.torch.recording.collectives import COLLECTIVES

_KINDS: tuple[Any, ...] = (_distributed_c10d.Work, _distributed_c10d.FakeWork)

#: Methods after which the current stream (or the host) comes after the work.
_WAITS = ("wait", "synchronize", "block_current_stream")


def apply() -> None:
    """Give works the tensors that they write, and futures the order of what follows them."""
    kernels = {
        name: _kernel(name, row.outputs, row.kind == "all_gather" and row.layout == "list")
        for (space, name), row in COLLECTIVES.items()
        if space == "c10d" and row.outputs is not None
    }
    register_kernels("c10d", "Meta", kernels, allow_override=True)
    for kind in _KINDS:
        around(kind, "get_future", _future)


def _future(original: Callable[[Any], Any], work: Any) -> Result:
    value = original(work).value()
    if not any(isinstance(item, list) for item in value):
        return Result(value, work.wait)
    with Stream():
        work.wait()
        return Result([torch.stack(item) for item in value], Event().record().wait)


def _kernel(name: str, outputs: int, lists: bool) -> Callable[..., Any]:
    returns = getattr(torch.ops.c10d, name).default._schema.returns
    c10d: Any = _distributed_c10d

    def kernel(*args: Any, **_: Any) -> Any:
        written = args[outputs]
        future: Any = torch.futures.Future()
        future.set_result(
            [*map(list, written)]
            if lists
            else [item for item in tree_leaves(written) if item is not None]
        )
        work = c10d._create_work_from_future(future).boxed()
        return work if len(returns) == 1 else (written, work)

    return kernel


class Result(torch.futures.Future):  # type: ignore[type-arg]
    """A value that exists, and how a stream comes after what makes it."""

    def __init__(self, value: Any, come_after: Callable[[], object]) -> None:
        super().__init__()
        self.set_result(value)
        self._come_after = come_after

    def wait(self) -> Any:
        """The value; the current stream comes after it."""
        self._come_after()
        return self.value()

    def then(self, callback: Callable[[Any], Any]) -> Result:
        """What a function makes of it, on a stream of its own."""
        with Stream():
            self._come_after()
            return Result(callback(self), Event().record().wait)

    def add_done_callback(self, callback: Callable[[Any], Any]) -> None:
        """Call a function with it."""
        self.then(callback)


@contextlib.contextmanager
def waiting(waited: Callable[[Any], None]) -> Iterator[None]:
    """Within it, ``waited(work)`` is called for every work that is waited for."""

    def wait(original: Any, work: Any, *args: Any, **kwargs: Any) -> Any:
        waited(work)
        return original(work, *args, **kwargs)

    with contextlib.ExitStack() as stack:
        for kind, name in itertools.product(_KINDS, _WAITS):
            stack.callback(around(kind, name, wait))
        yield
