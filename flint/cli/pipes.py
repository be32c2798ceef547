"""Pipes and devices on the command line: what comes from them comes once.

The idea: a file is opened as often as that is convenient, a pipe is read to its end by the first
who opens it.  So its content is taken at once; who needs a file gets a copy of it.

    sources = [taken(Path("/dev/stdin"))]
    with as_files(sources) as paths: ...
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from flint.host.packed_files import MEMORY_LIMIT, Content
from flint.host.temporary import temporary_folder


def reader_bytes(memory_limit: float | None) -> int:
    """``--memory-limit`` in bytes."""
    return MEMORY_LIMIT if memory_limit is None else int(memory_limit * 2**30)


def taken(path: Path, memory_limit: int) -> Path | Content:
    """The path of a file or folder as it is; of anything else the content.

    Args:
        path: of the command line.
        memory_limit: bytes that the process may take that reads it.

    Raises:
        FlintError: it cannot be read, or is larger than a quarter of the limit.
    """
    if path.is_file() or path.is_dir():
        return path
    from flint.capturing.saved_files import read_content

    return read_content(path, memory_limit)


@contextmanager
def as_files(sources: Sequence[Path | Content]) -> Iterator[list[Path]]:
    """Paths of sources; of contents, those of copies, each of the same name as its source."""
    with ExitStack() as temporary:
        paths = []
        for source in sources:
            if isinstance(source, Content):
                copy = temporary.enter_context(temporary_folder()) / source.path.name
                copy.write_bytes(source.data)
                source = copy
            paths.append(source)
        yield paths
