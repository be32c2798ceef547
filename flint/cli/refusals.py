"""Options that do not apply to the input: refused, never silently ignored.

refuse({"--strict": strict, "--fuse": fuse}, "is for programs, not for traces of a run")
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from flint.errors import UsageError

if TYPE_CHECKING:
    from flint.workload.workload import Workload


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
