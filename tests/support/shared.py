"""What is expensive is made once in a test run, by whichever worker needs it first."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest


def quick(values: Iterable[Any], *chosen: Any) -> list[Any]:
    """Values of one argument: the chosen ones for every run, the others for ``make test-all``."""
    return quick_rows(zip(values, strict=True), *zip(chosen, strict=True))


def quick_rows(rows: Iterable[tuple[Any, ...]], *chosen: tuple[Any, ...]) -> list[Any]:
    """The same for several arguments."""
    rows = list(rows)
    assert set(chosen) <= set(rows), set(chosen) - set(rows)
    return [pytest.param(*row, marks=() if row in chosen else pytest.mark.thorough) for row in rows]


def examples(count: int) -> int:
    """How many examples a property test draws: a fifth of them without ``make test-all``."""
    return count if os.environ.get("HYPOTHESIS_PROFILE") == "thorough" else max(count // 5, 5)


def once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], object]) -> Path:
    """The folder ``name`` of this test run, filled by ``make(folder)`` the first time.

    Workers of pytest-xdist share it; a second one waits until the first has made it.  Where
    ``make`` raises, the next who asks tries again.
    """
    base = factory.getbasetemp()
    root = base.parent if base.name.startswith("popen-") else base
    folder = root / "shared" / name
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder.with_name(f"{name}.lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        made = folder.with_name(f"{name}.made")
        if not made.exists():
            make(folder)
            made.touch()
    return folder


def chosen(request: pytest.FixtureRequest, argument: str) -> list[str]:
    """Values of an argument of the requesting module's tests that this run collects, in order."""
    params = (
        item.callspec.params
        for item in request.session.items
        if item.path == request.path
        and isinstance(item, pytest.Function)
        and hasattr(item, "callspec")
    )
    return list(dict.fromkeys(known[argument] for known in params if argument in known))
