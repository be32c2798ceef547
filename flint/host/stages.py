"""Progress messages for a user who waits at a terminal.

The idea: work that may take minutes reports its next stage.  The command line listens if stderr is
a terminal; otherwise the reports are dropped.

    with heard_by(print):
        stage("recording rank 3")       # prints it; outside the block nothing happens
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_listener: ContextVar[Callable[[str], None] | None] = ContextVar("listener", default=None)


def stage(text: str) -> None:
    """Report the current stage."""
    listener = _listener.get()
    if listener is not None:
        listener(text)


@contextmanager
def heard_by(listener: Callable[[str], None] | None) -> Iterator[None]:
    """Inside this context, ``listener``, if there is one, is called with each stage."""
    before = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(before)
