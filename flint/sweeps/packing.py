"""Sending files: a step's sources to a node, a workload folder back.

The idea: folders are sent as zip archives in memory, and renamed into place when they are complete.
A step's sources keep their paths relative to the folders on Python's path.

    shipped, files = ship("train.py:step")      # there: shipped.named(unpacked), shipped.paths(...)
    unpack(pack(Path("out")), Path("copy"))
"""

from __future__ import annotations

import io
import sys
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from flint.errors import FlintError
from flint.host.writing import replacing_folder
from flint.sweeps import sources


@dataclass(frozen=True, slots=True)
class Shipped:
    """A step that is sent.

    Attributes:
        step: FILE.py:FUNCTION, as named here.
        roots: local folders of its files; number i is sent as ``i``.
        file: its own file, below the unpacked folder.
        modules: modules that a process can import once for all captures of it.
        variables: environment variables that captures depend on.
    """

    step: str
    roots: tuple[str, ...]
    file: str
    modules: tuple[str, ...]
    variables: tuple[tuple[str, str], ...]

    def named(self, unpacked: Path) -> str:
        """FILE.py:FUNCTION below the unpacked folder."""
        return f"{unpacked / self.file}:{self.step.rpartition(':')[2]}"

    def paths(self, unpacked: Path) -> list[str]:
        """The folders that belong on Python's path."""
        return [str(unpacked / str(number)) for number in range(len(self.roots))]


def ship(step: str) -> tuple[Shipped, bytes]:
    """A step's sources, except Flint's and those of installed packages."""
    file = Path(step.rpartition(":")[0]).absolute()
    own = set(sources.own_files())
    files = [item for item in sources.imported_files(file) if item.resolve() not in own]
    roots = [file.parent, *(Path(part).absolute() for part in sys.path if part)]
    roots = list(dict.fromkeys(roots))
    archive = io.BytesIO()
    used: list[Path] = [file.parent]
    with zipfile.ZipFile(archive, "w") as packed:
        for item in files:
            root = next((root for root in roots if item.is_relative_to(root)), None)
            if root is None:
                continue
            if root not in used:
                used.append(root)
            name = Path(str(used.index(root))) / item.relative_to(root)
            packed.writestr(_entry(name), item.read_bytes())
    shipped = Shipped(
        step=step,
        roots=tuple(map(str, used)),
        file=f"0/{file.name}",
        modules=tuple(sources.modules([file])),
        variables=tuple(sorted(sources.variables().items())),
    )
    return shipped, archive.getvalue()


def pack(folder: Path, without: Sequence[str] = ()) -> bytes:
    """A folder as an archive, without some of its subfolders."""
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as packed:
        for file in sorted(folder.rglob("*")):
            name = file.relative_to(folder)
            if file.is_file() and name.parts[0] not in without:
                packed.writestr(_entry(name), file.read_bytes())
    return archive.getvalue()


def _entry(name: Path) -> zipfile.ZipInfo:
    """An entry whose bytes depend only on the content."""
    return zipfile.ZipInfo(name.as_posix())


def unpack(archive: bytes, folder: Path) -> None:
    """Unpack the archive into that folder, replacing an existing one.

    Raises:
        FlintError: the disk fails, or it is not an archive.
    """
    try:
        with replacing_folder(folder) as partial, zipfile.ZipFile(io.BytesIO(archive)) as packed:
            packed.extractall(partial)
    except zipfile.BadZipFile as error:
        raise FlintError(f"{folder}: cannot be written ({error})") from error
