"""How the values of options are parsed and checked."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import typer

from flint.errors import UsageError
from flint.host.writing import check_file
from flint.mesh.mesh import Mesh, parse_mesh

if TYPE_CHECKING:
    from flint.cost.hardware import System

#: The system that times are computed for by default.
DEFAULT_SYSTEM: Final = "dgx-h100"
#: Where ``a_file`` notes, in the context, the files to be written: parameter -> path.
WRITTEN: Final = "flint.written"


def existing(path: Path) -> Path:
    """Check that a path from the command line exists.

    Raises:
        UsageError: nothing is there.
    """
    if not path.exists():
        hint = " (/dev/stdin is standard input)" if str(path) == "-" else ""
        raise UsageError(f"{path}: no such file or folder{hint}")
    return path


def a_folder(path: Path) -> Path:
    """Check that a path from the command line is a folder."""
    if not existing(path).is_dir():
        raise UsageError(
            f"{path} is a file, not a workload folder; flint convert makes a folder from a saved "
            "program"
        )
    return path


def replaceable(path: Path | None) -> Path | None:
    """Check that a workload folder can be written to a path."""
    from flint.workload.folder import check_replaceable

    if path is not None:
        check_replaceable(path)
    return path


def a_file(context: typer.Context, option: typer.CallbackParam, path: Path | None) -> Path | None:
    """Check that a file can be written to a path, before the work for it, and note the path."""
    if path is not None:
        check_file(path)
        context.meta.setdefault(WRITTEN, {})[option.name] = path
    return path


def a_system(name: str | None) -> str | None:
    """Check that a system exists."""
    from flint.cost.systems import load_system

    if name is not None:
        load_system(name)
    return name


def parts(texts: list[str] | None) -> list[str] | None:
    """Parts of a system's costs that can be left out."""
    from flint.cost.simplified import parse_parts

    return list(parse_parts(texts)) if texts else None


def a_granularity(name: str) -> str:
    """Check that a granularity exists."""
    from flint.passes import check_granularity

    check_granularity(name)
    return name


def an_order(name: str) -> str:
    """Check that an order of communication exists."""
    from flint.execution.chains import as_communication_order

    return as_communication_order(name)


#: GiB or seconds.
_MOST = 1e9


def positive(parameter: typer.CallbackParam, value: float | None) -> float | None:
    """Check that a limit is above 0 and small enough for a machine to count to.

    Raises:
        UsageError: it is not.
    """
    if value is not None and not 0 < value <= _MOST:
        raise UsageError(
            f"--{(parameter.name or '').replace('_', '-')} {value:g}: expected a positive number"
        )
    return value


def simplified(system: str | System, parts: list[str] | None) -> str | System:
    """A system without the parts that ``--without`` names.

    Raises:
        UsageError: no such system or part.
    """
    if not parts:
        return system
    from flint.cost.simplified import without
    from flint.cost.systems import load_system

    return without(load_system(system) if isinstance(system, str) else system, parts)


def xla_options(entries: list[str] | None) -> dict[str, str]:
    """``["xla_flag=true"]`` as ``{"xla_flag": "true"}``.

    Raises:
        UsageError: not NAME=VALUE, or a name is given twice.
    """
    chosen: dict[str, str] = {}
    for entry in entries or ():
        name, equals, value = entry.removeprefix("--").partition("=")
        if not name or not equals:
            raise UsageError(f"--xla-option {entry!r}: expected NAME=VALUE")
        if name in chosen:
            raise UsageError(f"--xla-option {name} is given twice")
        chosen[name] = value
    return chosen


def level_and_target(
    level: str | None, target: str | None, system: str | None, otherwise: str | None
) -> tuple[str | None, str | None]:
    """The level and the target: with level auto, the target whose devices the system has.

    Args:
        level, target, system: as given.
        otherwise: the level if no target has devices of that system.

    Raises:
        UsageError: no such system.
    """
    from flint.capturing.targets import AUTO, target_of_system

    if level != AUTO or target is not None:
        return level, target
    name = system or DEFAULT_SYSTEM
    found = target_of_system(name)
    if found is None:
        sys.stderr.write(
            f"flint: level auto: no target has the devices of {name}, see flint targets\n"
        )
        return otherwise, None
    return level, found.name


def system_of(target: str | None) -> str:
    """The system that times are computed for if only a target is given: one of its devices.

    Raises:
        UsageError: there is no such target.
    """
    if target is None:
        return DEFAULT_SYSTEM
    from flint.capturing.targets import named  # most commands get no target

    return named(target).system


def grid(mesh: str | None, axes: str | None) -> tuple[Mesh | None, list[str] | None]:
    """``--mesh`` and ``--axes``: a mesh, or axis names for the program's own mesh.

    Raises:
        UsageError: not a list of positive integers, or names that do not match.
    """
    if mesh is not None:
        return parse_mesh(mesh, axes), None
    return None, axis_names(axes)


def axis_names(axes: str | None) -> list[str] | None:
    """``--axes`` as names."""
    return None if axes is None else [part.strip() for part in axes.split(",")]


def by_name(option: str, entries: list[str] | None) -> dict[str, int] | None:
    """``["3", "while_1=7"]`` as ``{"": 3, "while_1": 7}``.

    Raises:
        UsageError: not numbers, or a name twice.
    """
    if not entries:
        return None
    values: dict[str, int] = {}
    for entry in entries:
        name, equals, number = entry.rpartition("=")
        try:
            value = int(number)
        except ValueError:
            raise UsageError(f"{option} {entry!r}: expected N or NAME=N") from None
        if name in values or (equals and not name):
            raise UsageError(f"{option} {entry!r}: the name is missing or given twice")
        if value < 0:
            raise UsageError(f"{option} {entry!r}: expected a number of at least 0")
        values[name] = value
    return values


_SIZE: Final = re.compile(r"0*[1-9][0-9]{0,9}")


def parse_scale_out(text: str) -> dict[str, int]:
    """``dp=64,pp=4`` as axes and their sizes.

    Raises:
        UsageError: not names and positive numbers, or a name twice.
    """
    found: dict[str, int] = {}
    for part in text.split(","):
        name, _, number = part.strip().partition("=")
        if not name or not _SIZE.fullmatch(number) or name in found:
            raise UsageError(f"--scale-out {text[:80]!r}: expected AXIS=RANKS, for example dp=64")
        found[name] = int(number)
    return found


def parse_shapes(entries: list[str] | None) -> dict[str, tuple[int, ...]]:
    """``["1=64x128"]`` as ``{"1": (64, 128)}``.

    Raises:
        UsageError: not sizes, or an argument twice.
    """
    found: dict[str, tuple[int, ...]] = {}
    for entry in entries or ():
        name, _, sizes = entry.rpartition("=")
        parts = sizes.split("x")
        if not name or not all(map(_SIZE.fullmatch, parts)) or name in found:
            raise UsageError(f"--shape {entry[:80]!r}: expected ARGUMENT=SIZES, for example 1=64x8")
        found[name] = tuple(map(int, parts))
    return found
