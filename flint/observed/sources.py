"""Traces from any source, as files and folders that can be opened again and again.

The idea: a trace is opened several times, to find its kind, its steps, and what ran.  A pipe can be
read only once, and an archive has to be unpacked, so both become temporary files, piece by piece.
Messages about those files use the names that were given.

    with openable([Path("/dev/stdin"), Path("run.tar.gz")]) as traces:
        traces.paths, traces.named(f"{traces.paths[1]}/rank0.json: no ops in it")
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from flint.errors import FlintError, UsageError
from flint.host.packed_files import packed_pieces
from flint.host.temporary import temporary_folder
from flint.observed.reading import begins_archive, form_of

#: The most bytes that may come through a pipe.
_MAX_BYTES = 8 << 30


@dataclass(frozen=True, slots=True)
class Traces:
    """Files and folders that can be opened repeatedly.

    Attributes:
        paths: for each source its own path, or that of a copy.
        copies: path of a copy -> the source's.
    """

    paths: list[Path] = field(default_factory=list)
    copies: dict[str, str] = field(default_factory=dict)

    def named(self, text: str) -> str:
        """A text with the sources' names in place of those of their copies."""
        for copy, source in self.copies.items():
            text = text.replace(copy, source)
        return text


@contextmanager
def openable(sources: Sequence[Path]) -> Iterator[Traces]:
    """The sources until the block ends, with a file in place of each pipe or device, and a folder
    of traces in place of each archive.

    Raises:
        UsageError: there is no such file or folder.
        FlintError: the content cannot be read, is not a trace, or does not end within 8 GiB; an
            archive is damaged, or has no trace in it.
    """
    traces = Traces()
    with ExitStack() as temporary:
        try:
            for source in sources:
                if not source.exists():
                    raise UsageError(f"{source}: no such file or folder")
                path = source
                if not path.is_file() and not path.is_dir():
                    path = _place(traces, source, temporary)
                    _copy(source, path)
                if not path.is_dir() and begins_archive(path):
                    # Few sources are archives, and importing the unpacking code takes longer than
                    # looking at a file.
                    from flint.observed.archives import unpack

                    packed, path = path, _place(traces, source, temporary)
                    path.mkdir()
                    unpack(packed, path)
                traces.paths.append(path)
            yield traces
        except FlintError as error:
            raise type(error)(traces.named(str(error))) from error


def _place(traces: Traces, source: Path, temporary: ExitStack) -> Path:
    """The path for the copy of a source, under the source's own name, in a separate folder."""
    copy = temporary.enter_context(temporary_folder()) / source.name
    traces.copies[str(copy)] = str(source)
    return copy


def _copy(source: Path, path: Path) -> None:
    """Write the content unchanged; content that does not begin like a trace is refused at once."""
    with path.open("wb") as file:
        for piece in packed_pieces(source, _MAX_BYTES):
            begins = file.tell() == 0
            file.write(piece)
            if begins:
                file.flush()
                if not begins_archive(path):
                    form_of(path)
