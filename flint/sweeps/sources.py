"""What a capture's result depends on, as one hash.

The idea: the hash covers the step's file, or the files that a program's command names, and every
Python file that they import from folders on the path without distributions; configurations that
those name, also as a folder of them, or that one names in another; the installed distributions,
Flint's own code, and the environment variables that jax and XLA read.  Data files that the step
opens are not covered; ``--fresh`` starts a sweep over.

    key_of(imported_files(Path("train.py")))                                # 64 hexadecimal digits
    key_of(files_of_program(["python", "train.py", "--config=small.toml"]))
"""

from __future__ import annotations

import ast
import hashlib
import json
import os
import pkgutil
import platform
import re
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from functools import cache
from importlib import metadata
from importlib.util import find_spec
from itertools import islice, pairwise
from pathlib import Path
from typing import Final

import flint
from flint import registry

_ENVIRONMENT = ("FLINT_", "JAX_", "XLA_", "TF_", "LIBTPU_", "TORCH")
#: Variables of terminals and sessions, which no training program is configured with.
_SESSION = (
    "COLORTERM", "COLUMNS", "DBUS_", "DISPLAY", "GPG_", "HIST", "LINES", "LS_COLORS", "OLDPWD",
    "PS1", "PWD", "SHLVL", "SSH_", "STY", "TERM", "TMPDIR", "TMUX", "VSCODE_", "WAYLAND_", "WINDOW",
    "XDG_",
)  # fmt: skip
#: The most imported files of a step that are followed.
_MOST_FILES = 10_000
#: The most folders of a folder of configurations.
_MOST_FOLDERS = 1_000
#: Bytes of the largest file that is hashed because a program's command names it.
_LARGEST_NAMED = 1 << 24
#: Ends of names of shell scripts, and of configuration files that a program names itself.
_SHELL: Final = (".sh", ".bash", ".slurm", ".sbatch")
_CONFIGURATION: Final = (".json", ".yaml", ".yml", ".toml", ".ini", ".cfg")
#: Beginnings of the names of folders of configurations (Hydra's `config_path="conf"`).
_FOLDERS: Final = ("conf", "cfg")
#: A word of a shell script or a configuration.
_WORD: Final = re.compile(r"""[^\s"'`=;|&()<>$,\[\]{}]+""")


def modules(step_files: Iterable[str | Path]) -> list[str]:
    """Modules that captures of steps in those files import before the files themselves: the
    frameworks that the files import, directly or not, and their frontends.
    """
    named: set[str] = set()
    for step_file in step_files:
        for file in imported_files(Path(step_file)):
            named |= {name.partition(".")[0] for dots, name in _imports(file) if not dots}
    found: list[str] = []
    for name, packages in registry.FRAMEWORKS.items():
        if packages & named:
            found.append(registry.FRONTENDS[name].partition(":")[0])
            found += [module for module, frontend in registry.SPARES.items() if frontend == name]
            found += sorted(packages & named)
    return found


def key_of_program(words: Sequence[str]) -> str:
    """SHA-256 of what a capture of a whole program depends on, as far as its command tells.

    Programs read variables and files of any name, so that all variables count that are not a
    terminal's or a session's, and the current folder.
    """
    stated = {
        key: value
        for key, value in os.environ.items()
        if key != "_" and not key.startswith(_SESSION)  # where the shell found the command
    }
    content = [key_of(files_of_program(words)), str(Path.cwd()), sorted(stated.items())]
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()


def key_of(files: Iterable[Path]) -> str:
    """SHA-256 of everything that a capture depends on whose code is in those files."""
    digest = hashlib.sha256()
    for file in files:
        _add(digest, f"{file}".encode(), file.read_bytes())
    _add(digest, own_key().encode())
    path = {"PYTHONPATH": os.environ.get("PYTHONPATH", "")}
    stated = [f"{name}={value}" for name, value in sorted((variables() | path).items())]
    for text in (platform.python_version(), *_installed_versions(), *stated):
        _add(digest, text.encode())
    return digest.hexdigest()


@cache
def _installed_versions() -> list[str]:
    return sorted({f"{item.metadata['Name']}=={item.version}" for item in metadata.distributions()})


@cache
def own_key() -> str:
    """SHA-256 of Flint's own code and data."""
    digest = hashlib.sha256()
    for file in own_files():
        _add(digest, file.name.encode(), file.read_bytes())
    return digest.hexdigest()


def variables() -> dict[str, str]:
    """The environment variables that captures depend on, without Python's path."""
    return {key: value for key, value in os.environ.items() if key.startswith(_ENVIRONMENT)}


def _add(digest: hashlib._Hash, *parts: bytes) -> None:
    for part in parts:
        digest.update(len(part).to_bytes(8, "big") + part)


def imported_files(step_file: Path, folder: Path | None = None) -> list[Path]:
    """The file and what it imports, directly or not, outside installed packages; sorted.

    Flint's own files are included only if they are imported directly, because Flint is hashed as a
    whole.

    Args:
        step_file: where to begin.
        folder: the first folder on the path; the file's own if it runs as a script.
    """
    start = step_file.absolute()
    roots = [folder or start.parent]
    roots += [Path(part) for part in sys.path if part and not _installed(Path(part))]
    own = set(own_files())
    found, pending = {start}, [start]
    while pending and len(found) < _MOST_FILES:
        importer = pending.pop()
        for dots, name in _imports(importer):
            near = [importer.parents[dots - 1]] if 0 < dots <= len(importer.parents) else roots
            for file in _module_files(near, name):
                if file not in found:
                    found.add(file)
                    if file.resolve() not in own:
                        pending.append(file)
    return sorted(found)


def files_of_program(words: Sequence[str]) -> list[Path]:
    """The files that a command names, after a ``=``, too, or as ``-m``'s module; what those in
    Python import, and configuration files, and folders of such, that their strings name; what shell
    scripts and configurations name.  Sorted.  Files too large for a program or its configuration
    are data.
    """
    found: set[Path] = set()
    pending = list(_named(words, [Path.cwd()]))
    while pending and len(found) < _MOST_FILES:
        file, root = pending.pop()
        if file in found:
            continue
        code = imported_files(file, root) if file.suffix == ".py" else []
        found |= {file, *code}
        near = [Path.cwd(), *file.parents[:2]]
        for importer in code:
            texts = [
                text
                for text in _strings(importer)
                if text.endswith(_CONFIGURATION) or Path(text).name.startswith(_FOLDERS)
            ]
            pending += _named(texts, [*near, importer.parent])
        if file.suffix in (*_SHELL, *_CONFIGURATION):
            words = _WORD.findall(file.read_text(errors="replace"))
            if file.suffix in _CONFIGURATION:  # its other words are values
                words = [word for word in words if word.endswith((*_CONFIGURATION, ".py"))]
            pending += _named(words, near)
    return sorted(found)


def _named(words: Sequence[str], folders: Sequence[Path]) -> Iterator[tuple[Path, Path | None]]:
    """The files that words name, in one of those folders; with the folder, if ``-m``'s module."""
    for folder in dict.fromkeys(folder.absolute() for folder in folders):
        for word in words:
            for part in dict.fromkeys((word, word.rpartition("=")[2])):
                if part and _is_small(folder / part):
                    yield folder / part, None
                elif Path(part).name.startswith(_FOLDERS):
                    yield from ((file, None) for file in _configurations(folder / part))
        for option, module in pairwise(words):
            if option == "-m":
                for name in (module, f"{module}.__main__"):
                    for file in _module_files([folder], name):
                        yield file, folder


def _configurations(folder: Path) -> Iterator[Path]:
    """The configuration files in a folder and in those in it; few, if it is one for them."""
    for place, _, names in islice(os.walk(folder), _MOST_FOLDERS):
        files = (Path(place, name) for name in names if name.endswith(_CONFIGURATION))
        yield from filter(_is_small, files)


def _strings(file: Path) -> Iterator[str]:
    """The strings in a file's code."""
    for node in _nodes(file):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def _is_small(file: Path) -> bool:
    try:
        return file.is_file() and file.stat().st_size <= _LARGEST_NAMED
    except OSError:  # a word that is too long for a name, for example
        return False


def _installed(folder: Path) -> bool:
    """Whether the folder has distributions (whose versions are hashed) or Python's own modules."""
    standard = Path(sysconfig.get_path("stdlib"))
    return "site-packages" in folder.parts or folder == standard or standard in folder.parents


def _imports(file: Path) -> Iterator[tuple[int, str]]:
    """For each import of a file, the number of leading dots and the name after them."""
    for node in _nodes(file):
        if isinstance(node, ast.Import):
            yield from ((0, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            # `from package import name`: the name may be a module of the package.
            for alias in node.names:
                yield node.level, f"{node.module or ''}.{alias.name}".strip(".")


def _nodes(file: Path) -> Iterator[ast.AST]:
    """All of a file's code; nothing if it is wrong, which the capture reports."""
    with suppress(SyntaxError, ValueError):
        yield from ast.walk(ast.parse(file.read_bytes()))


def _module_files(roots: list[Path], name: str) -> Iterator[Path]:
    """The existing files of a module and of the packages that it is in."""
    for root in roots:
        place = root
        for part in name.split("."):
            place = place / part
            for file in (place.with_name(f"{part}.py"), place / "__init__.py"):
                if file.is_file():
                    yield file


@cache
def own_files() -> tuple[Path, ...]:
    """Flint's files, resolved: of the core and of all packages in it."""
    folders = [Path(__file__).parents[1]]
    for module in pkgutil.iter_modules(flint.__path__, "flint."):
        spec = find_spec(module.name) if module.ispkg else None
        if spec is not None:
            folders += map(Path, spec.submodule_search_locations or ())
    patterns = ("*.py", "*.toml", "*.txtpb")
    files = {file for folder in folders for pattern in patterns for file in folder.rglob(pattern)}
    return tuple(sorted(file.resolve() for file in files))
