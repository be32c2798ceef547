"""Python's cycle collector: seldom in a command, and not at all while something large is built.

The idea: importing jax makes a quarter of a million objects, nearly all of which stay; as Python
sets it, the collector looks at them some four hundred times, for a fifth of the imports' time.  A
command lives for seconds in a process of its own, and looks less often.  Reading a module makes
hundreds of thousands of small objects that all stay and hold no cycles: paused, the same work takes
a sixth less time.

    collect_seldom()

    @uncollected
    def read(...): ...
"""

from __future__ import annotations

import functools
import gc
from collections.abc import Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

#: New objects (less those that have gone) between two looks at them; Python's own is 700.
_BETWEEN = 200_000


def collect_seldom() -> None:
    """Look for cycles seldom from now on, in a process that is ours alone."""
    gc.set_threshold(_BETWEEN, *gc.get_threshold()[1:])


def uncollected(function: Callable[P, R]) -> Callable[P, R]:
    """``function`` with the cycle collector paused while it runs (reference counts still work)."""

    @functools.wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        was_enabled = gc.isenabled()
        gc.disable()
        try:
            return function(*args, **kwargs)
        finally:
            if was_enabled:
                gc.enable()

    return run
