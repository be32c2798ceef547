"""What the Python environment must have, and what it must not have.

The idea: a missing extra, an untested version of a library whose private API is used, or another
distribution with the name `flint` each lead to one line that names what to install, instead of
another library's ImportError.

    torch = require("torch", "torch", "capturing a PyTorch step")
    check_version("jaxlib", ">=0.10.2,<0.11")
"""

from __future__ import annotations

import operator
import os
import re
import sys
from collections.abc import Callable
from importlib import import_module
from types import ModuleType

from flint.errors import FlintError, UsageError

DISTRIBUTION = "flint-workload"
#: How many threads numpy's linear algebra starts when numpy is imported.
_BLAS_THREADS = "OPENBLAS_NUM_THREADS"

_COMPARISONS: dict[str, Callable[[tuple[int, ...], tuple[int, ...]], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    "==": operator.eq,
    ">": operator.gt,
    "<": operator.lt,
}
_CLAUSE = re.compile(r"\s*(>=|<=|==|>|<)\s*(\d+(?:\.\d+)*)\s*")


def refuse_namesake() -> None:
    """Refuse to run together with python-flint, whose package is also called `flint`.

    Files of the two would be in one folder, and the order of installation decides which
    `flint/__init__.py` is imported.

    Raises:
        UsageError: `python-flint` is installed in this environment.
    """
    found = installed_version("python-flint")
    if found is not None:
        raise UsageError(
            f"python-flint {found} is installed in this environment, and its package is also "
            f"called `flint`: install {DISTRIBUTION} into a virtual environment without it"
        )


def import_numpy() -> None:
    """Import numpy without threads for its linear algebra, unless the user sets their number.

    Nothing here multiplies matrices; idle threads spin, which costs every command some 50 ms, and
    takes cores from a sweep's processes.
    """
    if "numpy" in sys.modules or _BLAS_THREADS in os.environ:
        return
    os.environ[_BLAS_THREADS] = "1"
    try:
        import_module("numpy")
    finally:
        del os.environ[_BLAS_THREADS]


def require(extra: str, module: str, purpose: str) -> ModuleType:
    """Import a module that only an extra of this distribution installs.

    Args:
        extra: the extra's name in pyproject.toml, for instance "torch".
        module: the module to import, for instance "torch.distributed".
        purpose: what needs it, as the subject of a sentence: "capturing a PyTorch step".

    Raises:
        UsageError: the module's distribution is not installed.
        FlintError: it is installed but fails to import.
    """
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise FlintError(
                f"{purpose} needs {module}, which cannot be imported: {error}"
            ) from error
        wanted = f"{DISTRIBUTION}[{extra}]"
        raise UsageError(f"{purpose} needs the extra `{wanted}`: {installing(extra)}") from error
    except ImportError as error:
        raise FlintError(f"{purpose} needs {module}, which cannot be imported: {error}") from error


def installing(extra: str) -> str:
    """The command that installs an extra, for messages: from a registry, and in a checkout."""
    return f"pip install '{DISTRIBUTION}[{extra}]' (in a checkout: '.[{extra}]')"


def check_version(distribution: str, known_to_work: str) -> None:
    """Refuse an untested version of a library whose private API is used.

    Args:
        distribution: the name that pip knows, for instance "jaxlib".
        known_to_work: clauses of `>= <= == > <` and a release, for instance ">=0.10.2,<0.11".
            Release numbers are compared number by number, 0.11 equals 0.11.0; suffixes (rc1, .dev3,
            +cpu) are ignored, so that 0.11.0rc1 counts as 0.11.

    Raises:
        FlintError: another version is installed, or none.
    """
    found = installed_version(distribution)
    if found is None or not satisfies(found, known_to_work):
        state = "is not installed" if found is None else f"{found} is installed"
        raise FlintError(
            f"{distribution} {state}, but Flint uses a private API that is known to work with "
            f"{known_to_work}: pip install '{distribution}{known_to_work}'"
        )


def satisfies(version: str, clauses: str) -> bool:
    """Whether a version such as "2.13.0+cpu" fulfils clauses such as ">=2.13,<2.14".

    Raises:
        ValueError: the clauses are not in the form that `check_version` describes.
    """
    have = _release(version)
    for clause in clauses.split(","):
        parsed = _CLAUSE.fullmatch(clause)
        if parsed is None:
            raise ValueError(f"not a version clause: {clause!r}")
        if not _COMPARISONS[parsed[1]](have, _release(parsed[2])):
            return False
    return True


def installed_version(distribution: str) -> str | None:
    """The version of an installed distribution; None if it is not installed.

    Installers leave folders ``NAME-VERSION.dist-info`` next to packages (the specification
    "Recording installed projects"); other cases are left to the standard library, whose module
    costs every command a twentieth of its start-up time.
    """
    wanted = _normalized(distribution)
    for place in sys.path:
        if os.path.isfile(place):  # an archive
            return _version_by_metadata(distribution)
        try:
            entries = os.listdir(place or os.curdir)
        except OSError:
            continue
        for entry in entries:
            stem, _, kind = entry.rpartition(".")
            name, _, version = stem.partition("-")
            if kind in ("dist-info", "egg-info") and _normalized(name) == wanted:
                exact = kind == "dist-info" and version
                return version if exact else _version_by_metadata(distribution)
    return None


def _normalized(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _version_by_metadata(distribution: str) -> str | None:
    from importlib import metadata

    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def _release(version: str) -> tuple[int, ...]:
    """The release numbers without trailing zeros, so that 0.11 and 0.11.0 are equal."""
    leading = re.match(r"\d+(?:\.\d+)*", version)
    numbers = [int(number) for number in leading[0].split(".")] if leading else []
    while numbers and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers)
