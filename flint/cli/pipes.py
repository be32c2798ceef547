"""Pipes and devices on the command line, which can be read only once.

The idea: a file can be opened again and again; a pipe is used up by the first reader. So its
content is read at once, and code that needs a file gets a copy.

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
    """The path of a file or folder, unchanged; the content of anything else.

    Args:
        path: from the command line.
        memory_limit: bytes of memory that the reading process may take.

    Raises:
        FlintError: it cannot be read, or is larger than a quarter of the limit.
    """
    if path.is_file() or path.is_dir():
        return path
    from flint.capturing.saved_files import read_content

    return read_content(path, memory_limit)


@contextmanager
def as_files(sources: Sequence[Path | Content]) -> Iterator[list[Path]]:
    """Paths of sources; contents are copied to files with the names of their sources."""
    with ExitStack() as temporary:
        paths = []
        for source in sources:
            if isinstance(source, Content):
                copy = temporary.enter_context(temporary_folder()) / source.path.name
                copy.write_bytes(source.data)
                source = copy
            paths.append(source)
        yield paths
