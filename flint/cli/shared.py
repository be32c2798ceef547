"""Shared by several commands: printing JSON, warnings and progress."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flint.host.stages import heard_by

if TYPE_CHECKING:
    from flint.workload.workload import Workload

#: The line of a warning that comes from one.
_LINE = re.compile(r" at (\S+\.py:\d+)")
#: Up to so many lines with the same warning are shown one by one.
_FEW = 4


def print_json(document: Any) -> None:
    """A JSON document on stdout."""
    sys.stdout.write(json.dumps(document, indent=1) + "\n")


def print_warnings(warnings: dict[str, int]) -> None:
    """Warnings on stderr, each once with its count; those of many lines name some of them."""
    for text, count in _summed(warnings).items():
        sys.stderr.write(f"flint: warning: {text}" + (f" ({count} times)\n" if count > 1 else "\n"))


def _summed(warnings: dict[str, int]) -> dict[str, int]:
    """Warnings by falling count, where those that differ only in their line are one."""
    alike: dict[tuple[str, ...], list[tuple[str, int]]] = {}
    for text, count in sorted(warnings.items(), key=lambda item: (-item[1], item[0])):
        before, at, after = _LINE.split(text, maxsplit=1) if _LINE.search(text) else (text, "", "")
        alike.setdefault((before, after), []).append((at, count))
    found = {}
    for (before, after), places in alike.items():
        if len(places) > _FEW:
            from flint.capturing.user_frames import named_lines  # rarely needed

            places = [(named_lines(at for at, _ in places), sum(count for _, count in places))]
        for at, count in places:
            found[f"{before} at {at}{after}" if at else before] = count
    return dict(sorted(found.items(), key=lambda item: (-item[1], item[0])))


def loaded(folder: Path) -> Workload:
    """The workload of a folder; notes about it go to stderr."""
    from flint.workload.loading import load

    def note(text: str) -> None:
        sys.stderr.write(f"flint: note: {text}\n")

    return load(folder, note)


@contextmanager
def results_only_on_stdout() -> Iterator[None]:
    """Send stdout to stderr inside this context, also for child processes and C libraries.

    What the user's code prints is not a result of the command.
    """
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        if sys.__stdout__ is not None:
            sys.__stdout__.flush()  # for code that kept a reference to the stream
        os.dup2(kept, 1)
        os.close(kept)


@contextmanager
def stages_shown() -> Iterator[None]:
    """Show the current stage in one line on a terminal's stderr inside this context; a pipe gets
    nothing.

    No thread is used to draw it, because the work forks processes.
    """
    if not sys.stderr.isatty():
        yield
        return

    def show(text: str) -> None:
        width = shutil.get_terminal_size().columns - 1
        sys.stderr.write(f"\r\x1b[K{text} ..."[: width + 4])
        sys.stderr.flush()

    try:
        with heard_by(show):
            yield
    finally:
        sys.stderr.write("\r\x1b[K")
        sys.stderr.flush()


@contextmanager
def progress(what: str) -> Iterator[Callable[[int, int], None] | None]:
    """A progress bar on a terminal's stderr; None in a pipe."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn(what), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=None)

        def report(done: int, total: int) -> None:
            bar.update(task, completed=done, total=total)

        yield report
