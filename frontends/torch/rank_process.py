"""This process as one rank of a cluster: the permanent and the temporary changes to it.

prepare(known)                      # devices and shims, for good
with fake_device(known) as seen: ...        # tensors of the recording device are fake
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode, unset_fake_temporarily

from flint.frontends.torch import context, shims
from flint.frontends.torch.cluster import registration
from flint.frontends.torch.cluster.cuda import cuda_names
from flint.frontends.torch.context import Capture
from flint.frontends.torch.cuda_extensions import loading
from flint.frontends.torch.inductor import compiling, cuda_sources, launched
from flint.frontends.torch.modes import Handler, dispatch_mode, run
from flint.frontends.torch.recording.following import following
from flint.frontends.torch.shims import dynamo, fake_cache, missing_shapes, own_sizes


def prepare(known: Capture) -> None:
    """Register the device, apply the shims, begin the capture.  Changes the process permanently."""
    warnings.filterwarnings("ignore")
    registration.register()
    if not known.compiles:
        dynamo.apply()
    shims.apply_all()
    known.fake_mode = FakeTensorMode(allow_non_fake_inputs=True)
    context.begin(known)
    launched.apply()
    cuda_sources.apply()
    loading.apply()
    if known.compiles:
        compiling.apply()


class Seen:
    """The observers of every dispatched op, above the fake tensors, in one mode.

    A separate mode for each would cost as much per op as most observers do.

    Attributes:
        follow: the handler of ops while nothing is recorded, and below a recorder.
        by: the current handler.
        noted: called first with the op, types of its tensors, arguments, keyword arguments.
        made: called last with its result.
        is_of_host: which ops run on the host, seen by no observer but a recorder.
        prepared: the arguments of an op, as all observers see them.
    """

    def __init__(self, follow: Handler) -> None:
        self.follow = self.by = follow
        self.noted: Handler | None = None
        self.made: Callable[[Any], None] | None = None
        self.is_of_host: Callable[[Any, Any, Any], bool] = lambda *_: False
        self.prepared: Callable[[Any, Any], tuple[Any, Any]] = lambda *given: given

    @contextlib.contextmanager
    def recorded(self, recorder: Handler) -> Iterator[None]:
        """Within it, a recorder sees ops first."""
        self.by = recorder
        try:
            yield
        finally:
            self.by = self.follow


@contextlib.contextmanager
def fake_device(known: Capture, host: Handler = run) -> Iterator[Seen]:
    """Within it, tensors are fake.

    Args:
        known: the capture.
        host: handles every op directly before the fake tensors.
    """
    seen = Seen(following(host))

    def see(op: Any, types: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if not types and seen.by is seen.follow and seen.is_of_host(op, args, kwargs):
            with unset_fake_temporarily():
                return op(*args, **kwargs)
        args, kwargs = seen.prepared(args, kwargs)
        if seen.noted is not None:
            seen.noted(op, types, args, kwargs)
        result = seen.by(op, types, args, kwargs)
        if seen.made is not None:
            seen.made(result)
        return result

    # The engine's own threads number nodes anew, and serve only devices that are known.
    one_thread = torch.autograd.set_multithreading_enabled(False)
    modes = (
        known.fake_mode, dispatch_mode(see), missing_shapes.kernels(), cuda_names(),
        own_sizes.seeing(),
    )  # fmt: skip
    with one_thread, contextlib.ExitStack() as stack:
        stack.enter_context(fake_cache.quick())
        for mode in modes:
            stack.enter_context(mode)
        yield seen
