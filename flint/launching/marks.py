"""``flint.step()``: a program marks where its steps end.

The idea: ``flint run`` finds steps automatically.  A program whose step is something else calls
this at the end of each; without ``flint run`` it does nothing.

    for batch in batches:
        train(batch)
        flint.step()                   # or flint.step("decode"): --step decode
"""

from __future__ import annotations

from collections.abc import Callable

_listeners: list[Callable[[str], None]] = []


def step(name: str = "step") -> None:
    """Mark the end of a step.

    Args:
        name: the step's name for ``--step``.
    """
    for listener in _listeners:
        listener(name)


def listen(listener: Callable[[str], None]) -> None:
    """Register a function that is called with the name of each mark."""
    _listeners.append(listener)
