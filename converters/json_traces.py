"""Big JSON files of profilers, read with bounds: one list of objects at a time.

The idea: a trace is one JSON object with a few small entries and one list of a million.  That list
is decoded object by object straight out of the text, so that what is held is the text and what the
reader keeps, not a dict per event.

    document = JsonTrace.read(Path("trace.json.gz"))
    for event in document.items("traceEvents"):
        ...
    document.rest("traceEvents")["distributedInfo"]
"""

from __future__ import annotations

import gzip
import json
import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from flint.errors import FlintError

#: More bytes than a trace may have when it is unpacked.
MAX_BYTES = 4 << 30

_SPACE = re.compile(r"[\s,]*")


def read_bytes(path: Path, limit: int = MAX_BYTES) -> bytes:
    """A file's content, unpacked if it is gzip.

    Raises:
        FlintError: it cannot be read, is damaged, or is larger than the limit.
    """
    try:
        with path.open("rb") as file:
            if file.read(2) == b"\x1f\x8b":
                file.seek(0)
                with gzip.open(file) as unpacked:
                    data = unpacked.read(limit + 1)
            else:
                file.seek(0)
                data = file.read(limit + 1)
    except (OSError, EOFError, zlib.error) as error:
        text = getattr(error, "strerror", None) or error
        raise FlintError(f"{path}: cannot be read ({text})") from error
    if len(data) > limit:
        raise FlintError(f"{path}: larger than {limit:,} bytes when it is unpacked")
    return data


class JsonTrace:
    """The text of a trace, and its lists one object at a time."""

    def __init__(self, path: Path, text: str) -> None:
        self.path = path
        self._text = text
        self._spans: dict[str, tuple[int, int]] = {}

    @classmethod
    def read(cls, path: Path) -> JsonTrace:
        """The file at ``path``, gzip allowed.

        Raises:
            FlintError: it cannot be read, is too large, or is no text.
        """
        try:
            return cls(path, read_bytes(path).decode())
        except UnicodeDecodeError as error:
            raise FlintError(f"{path}: no JSON (it is not UTF-8 text)") from error

    def items(self, key: str) -> Iterator[dict[str, Any]]:
        """The objects of the list under ``key``; what is no object is left out.

        Raises:
            FlintError: there is no such list, or it is damaged or cut off; with the position.
        """
        found = re.search(rf'"{re.escape(key)}"\s*:\s*\[', self._text)
        if found is None:
            raise FlintError(f"{self.path}: no list {key!r} in it, so it is not such a trace")
        text, at = self._text, found.end()
        decode = json.JSONDecoder().raw_decode
        while True:
            skipped = _SPACE.match(text, at)
            at = skipped.end() if skipped else at
            if at >= len(text):
                raise FlintError(f"{self.path}: cut off at character {at:,}, inside of {key!r}")
            if text[at] == "]":
                break
            try:
                item, at = decode(text, at)
            except (ValueError, RecursionError) as error:
                where = "cut off" if len(text) - at < 65536 else "damaged"
                raise FlintError(
                    f"{self.path}: {where} at character {at:,}, inside of {key!r}"
                ) from error
            if isinstance(item, dict):
                yield item
        self._spans[key] = found.end(), at

    def rest(self, key: str) -> dict[str, Any]:
        """Everything but the list under ``key``, once it has been read to its end.

        Raises:
            FlintError: it is no JSON object.
        """
        start, end = self._spans[key]
        try:
            document = json.loads(self._text[:start] + self._text[end:])
        except (ValueError, RecursionError) as error:
            raise FlintError(f"{self.path}: damaged or cut off behind {key!r}") from error
        if not isinstance(document, dict):
            raise FlintError(f"{self.path}: not a JSON object")
        return document
