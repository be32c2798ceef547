"""The text of a profiler's JSON file, read piece by piece, and many objects of it decoded at once.

The idea: only the part of the text that is still needed is kept.  Two processes may share the work
on a long list: both know where its second half begins, because that is the first separator of
objects from a given byte on; one pauses there, and the other skips to it.

    read = Text(Path("trace.json.gz"))
    read.pause(50_000_000, runs.separator)
    read.skip()                             # to the second half
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from flint.errors import FlintError
from flint.host.packed_files import pieces
from flint.host.reading_memory import check_room

#: The most bytes of an unpacked trace.
MAX_BYTES = 16 << 30
#: The most characters of one object of the list, and of all entries around the list.
MAX_ITEM, MAX_AROUND = 64 << 20, 256 << 20
#: The most bytes behind its middle in which the second half of a list may begin: they are kept.
_NEAR = 1 << 20
#: Memory needed before characters are decoded, in bytes: the most that a decoder and its reader
#: make of each (``{"a":[]}`` is a dictionary, its table and a list: 37), and what the allocator
#: takes from the system at once.
PER_CHARACTER, AT_ONCE = 64, 8 << 20

SPACE = re.compile(r"[\s,]*")
#: The start of an object, up to the first key.
_BEGIN = re.compile(r'\{\s{0,64}"[^"\\]{1,64}"\s{0,8}:')


class Text:
    """The part of a file's text that has been read and is still needed."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.text = ""
        self.dropped = 0  # characters before ``text``
        self.whole = False  # whether the end has been reached
        self.paused = False  # whether the second half is next
        self._taken = 0  # bytes
        self._pieces: Iterator[bytes | None] = pieces(path, MAX_BYTES)
        self._decode = codecs.getincrementaldecoder("utf-8")().decode

    def more(self, at: int, least: int = 0) -> None:
        """Drop the text before ``at`` and read on, at least ``least`` characters or to the end."""
        parts = [self.text[at:]]
        self.dropped += at
        length = 0
        while length <= least:
            piece = next(self._pieces, b"")
            self.paused = piece is None
            if piece is None:
                break
            self._taken += len(piece)
            try:
                parts.append(self._decode(piece, not piece))
            except UnicodeDecodeError as error:
                raise FlintError(f"{self.path}: not JSON (it is not UTF-8 text)") from error
            length += len(parts[-1])
            if not piece:
                self.whole = True
                break
        self.text = "".join(parts)

    def until(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        """The first match of a short pattern; the text before it is kept."""
        start = 0
        while True:
            found = pattern.search(self.text, start)
            if found is not None or self.whole or len(self.text) > MAX_AROUND:
                return found
            start = max(0, len(self.text) - 256)
            self.more(0, len(self.text))

    def pause(self, middle: int, separator: str) -> None:
        """Let ``more`` end once before the first separator from a byte on; then it goes on.

        It does not end if there is none near that byte: objects may begin with another key there.
        """
        self._pieces = _paused(self._pieces, self._taken, middle, separator.encode())

    def skip(self) -> None:
        """Drop everything up to the pause.

        Raises:
            FlintError: there is none.
        """
        while piece := next(self._pieces, b""):
            self._taken += len(piece)
        if piece is not None:
            raise FlintError(f"{self.path}: its list cannot be divided")
        self.text = ""


def _paused(
    pieces: Iterator[bytes | None], taken: int, middle: int, separator: bytes
) -> Iterator[bytes | None]:
    """The pieces, with None before the first separator from a byte on."""
    held = b""
    for piece in pieces:
        assert piece is not None
        if taken + len(piece) > middle:
            held = piece
            break
        taken += len(piece)
        yield piece
    searched = max(0, middle - taken)
    while (at := held.find(separator, searched)) < 0 and taken + len(held) <= middle + _NEAR:
        searched = max(searched, len(held) - len(separator) + 1)
        more = next(pieces, b"")
        if not more:
            break
        held += more
    if at >= 0:
        yield from (held[:at], None) if at else (None,)
        held = held[at:]
    if held:
        yield held
    yield from pieces


class Runs:
    """Decodes many objects of a list at once.

    Writers separate all objects in the same way and begin all with the same key: up to the last
    place with this pattern, the text is decoded as one list.  If that fails, the place was inside
    an object, or the text has something that only the slower decoder accepts (NaN) or explains.
    """

    def __init__(self, decode: Callable[[str], list[Any]]) -> None:
        self._decode = decode
        self.separator = ""
        self._failed = ""

    def learn(self, text: str, at: int, end: int) -> None:
        """Learn how the object from ``at`` to ``end`` begins and what follows it."""
        begin, between = _BEGIN.match(text, at), SPACE.match(text, end)
        if begin and between and between[0]:
            self.separator = between[0] + begin[0]

    def decode(self, text: str, at: int) -> tuple[list[Any], int] | None:
        """The objects from ``at`` to the last separator, and where that is."""
        if not self.separator or text is self._failed:
            return None
        end = text.rfind(self.separator, at)
        if end < 0:  # at the end of a piece, or of objects with this pattern: search only once
            self._failed = text
            return None
        check_room(PER_CHARACTER * (end - at) + AT_ONCE)
        try:
            return self._decode(f"[{text[at:end]}]"), end
        except (msgspec.MsgspecError, UnicodeEncodeError, RecursionError):
            self._failed = text
            return None
