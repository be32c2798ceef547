"""Files that are whole or absent.

The idea: a file is written beside its final place and renamed when it is complete, so that a full
disk, an error or Ctrl-C leaves neither half a file nor the old one damaged.

    with replacing(Path("graph.dot")) as partial:
        partial.write_text("digraph {}")
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from flint.errors import FlintError, UsageError


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A path beside ``path`` whose file takes its place when the block ends well.

    Raises:
        UsageError: ``path`` is a folder, or its own folder does not exist.
        FlintError: it cannot be written.
    """
    if os.path.isdir(path) or not path.name:  # False where the name itself is refused
        raise UsageError(f"{path} is a folder: give the name of a file")
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        if not path.absolute().parent.is_dir():
            raise UsageError(f"{path}: there is no folder {path.absolute().parent}")
        yield partial
        partial.replace(path)
    except OSError as error:
        raise FlintError(f"{path}: cannot be written ({error.strerror or error})") from error
    finally:
        with suppress(OSError):
            partial.unlink(missing_ok=True)
