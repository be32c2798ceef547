"""Waiting for works: ``work.wait()`` after an asynchronous collective.

The fake process group's works are over at once and tell nobody that they are waited for, though the
current stream comes after the collective from then on.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator
from typing import Any

from torch._C import _distributed_c10d

#: Methods after which the current stream (or the host) comes after the work.
_WAITS = ("wait", "synchronize", "block_current_stream")


@contextlib.contextmanager
def waiting(told: Callable[[Any], None]) -> Iterator[None]:
    """Within it, ``told(work)`` is called for every work that is waited for."""
    kinds: tuple[Any, ...] = (_distributed_c10d.Work, _distributed_c10d.FakeWork)
    with contextlib.ExitStack() as stack:
        for kind, name in itertools.product(kinds, _WAITS):
            original = getattr(kind, name)

            def wait(self: Any, *args: Any, _original: Any = original, **kwargs: Any) -> Any:
                told(self)
                return _original(self, *args, **kwargs)

            setattr(kind, name, wait)
            stack.callback(setattr, kind, name, original)
        yield
