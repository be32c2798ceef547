"""What is going on, for somebody who waits at a terminal.

The idea: work that may take minutes says what it is about to do and knows nothing of who listens;
the command line does where stderr is a terminal, and nobody does otherwise.

    with heard_by(print):
        stage("recording rank 3")       # prints it; outside of the block nothing happens
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_listener: ContextVar[Callable[[str], None] | None] = ContextVar("listener", default=None)


def stage(text: str) -> None:
    """Say what is being done from now on."""
    listener = _listener.get()
    if listener is not None:
        listener(text)


@contextmanager
def heard_by(listener: Callable[[str], None] | None) -> Iterator[None]:
    """Meanwhile ``listener`` is called with each stage; with None nobody is."""
    before = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(before)
