"""Waiting for works: ``work.wait()`` after an asynchronous collective.

The fake process group's works are complete at once and do not report that they are waited for, but
after the wait the current stream comes after the collective.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator
from typing import Any

from torch._C import _distributed_c10d

from flint.frontends.torch.patching import around

_KINDS: tuple[Any, ...] = (_distributed_c10d.Work, _distributed_c10d.FakeWork)

#: Methods after which the current stream (or the host) comes after the work.
_WAITS = ("wait", "synchronize", "block_current_stream")


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
