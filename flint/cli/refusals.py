"""Options that do not apply to the input: refused, never silently ignored.

refuse({"--strict": strict, "--fuse": fuse}, "is for programs, not for traces of a run")
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from flint.errors import UsageError

if TYPE_CHECKING:
    from flint.workload.workload import Workload

#: What Flint writes to a workload folder.
_FOLDER: Final = frozenset({"workload.json", "programs", "et", "astra-sim"})


def refuse(options: Mapping[str, object], why: str) -> None:
    """Refuse options that were given.

    Args:
        options: name -> value, or whether it differs from the default; an option that is false,
            None or empty was not given.
        why: what the options are for; ends the sentence.

    Raises:
        UsageError: at least one was given; the text names all that were.
    """
    given = [name for name, value in options.items() if value]
    if given:
        verb = "is" if len(given) == 1 else "are"
        raise UsageError(f"{', '.join(given)} {verb} {why}")


def refuse_losses(written: Mapping[str, Path], read: Iterable[Path]) -> None:
    """Refuse to write two results to one file, or a result over an input; also by way of links.

    Args:
        written: option -> the file that it names.
        read: files and workload folders that the command reads.

    Raises:
        UsageError: the option that would do it.
    """
    inputs = [Path(os.path.realpath(path)) for path in read]
    taken: dict[Path, str] = {}
    for option, path in written.items():
        place = Path(os.path.realpath(path))
        first = taken.setdefault(place, option)
        if first != option:
            raise UsageError(f"{first} and {option} name the same file, {path}")
        for source in inputs:
            below = place.parts[len(source.parts) :] if place.is_relative_to(source) else ("",)
            if not below or (below[0] in _FOLDER and (source / "workload.json").is_file()):
                raise UsageError(f"{option} {path}: the command reads this file: give another name")


def refuse_of_profiles(workload: Workload, communication: str | None, host: str | None) -> None:
    """Refuse what says which times of a run count, if there was no run.

    Raises:
        UsageError: an option was given, and no program of the workload has measured times.
    """
    if all(program.timing is None for program in workload.programs):
        refuse(
            {"--communication": communication, "--host": host},
            "for profiles: this workload has no measured times",
        )
