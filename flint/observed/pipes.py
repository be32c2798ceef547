"""Traces that come through pipes: read once, as files.

The idea: a trace is opened several times, to see what it is, of which steps, and what ran.  A pipe
gives its content once.  So it becomes a temporary file, piece by piece; whatever is said of that
file calls it by the name that was given.

    with from_pipes([Path("/dev/stdin")]) as traces:
        traces.paths, traces.named(f"{traces.paths[0]}: no ops in it")
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from flint.errors import FlintError
from flint.host.packed_files import packed_pieces
from flint.host.temporary import temporary_folder
from flint.observed.reading import begins_archive, form_of

#: More bytes than may come through a pipe.
_MAX_BYTES = 8 << 30


@dataclass(frozen=True, slots=True)
class Traces:
    """Files and folders that can be opened as often as is convenient.

    Attributes:
        paths: of each source its own, or a copy's.
        copies: path of a copy -> the source's.
    """

    paths: list[Path] = field(default_factory=list)
    copies: dict[str, str] = field(default_factory=dict)

    def named(self, text: str) -> str:
        """A text with the sources' names in the place of their copies'."""
        for copy, source in self.copies.items():
            text = text.replace(copy, source)
        return text


@contextmanager
def from_pipes(sources: Sequence[Path]) -> Iterator[Traces]:
    """The sources, a file in the place of each pipe or device, until the block ends.

    Raises:
        FlintError: what comes cannot be read, is no trace, or does not end within 8 GiB.
    """
    traces = Traces()
    with temporary_folder() as folder:
        try:
            for number, source in enumerate(sources):
                path = source
                if source.exists() and not source.is_file() and not source.is_dir():
                    path = folder / str(number) / source.name
                    path.parent.mkdir()
                    traces.copies[str(path)] = str(source)
                    _copy(source, path)
                traces.paths.append(path)
            yield traces
        except FlintError as error:
            raise type(error)(traces.named(str(error))) from error


def _copy(source: Path, path: Path) -> None:
    """Write what comes, as it is; what begins like no trace is refused at its beginning."""
    with path.open("wb") as file:
        for piece in packed_pieces(source, _MAX_BYTES):
            begins = file.tell() == 0
            file.write(piece)
            if begins:
                file.flush()
                if not begins_archive(path):
                    form_of(path)
