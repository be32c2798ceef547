"""Big JSON files of profilers, read with limits: one list of objects at a time.

The idea: a trace is one JSON object with a few small entries and one list of a million.  The file
is unpacked and decoded piece by piece, and that list in runs of complete objects, so that only a
piece, the small entries and what the reader keeps are in memory, never the file.  A list alone is
also a trace, and so is one without its end: browsers accept both.

    document = JsonTrace.read(Path("trace.json.gz"))
    for event in document.items("traceEvents"):
        ...
    document.rest("traceEvents")["distributedInfo"]
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from types import GenericAlias
from typing import Any, TypeVar

import msgspec

from flint.errors import FlintError
from flint.host.packed_files import pieces
from flint.host.reading_memory import check_room

#: The most bytes of an unpacked trace.
MAX_BYTES = 16 << 30
#: The most characters of one object of the list, and of all entries around the list.
_MAX_ITEM, _MAX_AROUND = 64 << 20, 256 << 20
#: Memory needed before characters are decoded, in bytes: the most that a decoder and its reader
#: make of each (``{"a":[]}`` is a dictionary, its table and a list: 37), and what the allocator
#: takes from the system at once.
_PER_CHARACTER, _AT_ONCE = 64, 8 << 20

Record = TypeVar("Record")

_SPACE = re.compile(r"[\s,]*")
#: The characters that end an entry of a list.
_ENDS = (",", "]", " ", "\n", "\r", "\t")
#: What a decoder's error points at if the text ends within a value: nothing, or the beginning of a
#: literal, a number or an escape.
_BEGUN = re.compile(r"\s*-?\w{0,8}[.+-]?")
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
#: The start of an object, up to the first key.
_BEGIN = re.compile(r'\{\s{0,64}"[^"\\]{1,64}"\s{0,8}:')


def _writable(item: Any, text: str) -> Any:
    """The decoded item, with halves of surrogate pairs replaced by "?", because they cannot be
    written.

    Args:
        item: the decoded item.
        text: the text that it was decoded from.
    """
    if not _SURROGATE.search(text):
        return item
    return json.loads(json.dumps(item, ensure_ascii=False).encode(errors="replace"))


def _is_cut(error: Exception) -> bool:
    """Whether a decoder failed because the text ended."""
    return isinstance(error, json.JSONDecodeError) and (
        error.msg.startswith("Unterminated string")
        or _BEGUN.fullmatch(error.doc, error.pos) is not None
    )


class _Text:
    """The part of a file's text that has been read and is still needed."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.text = ""
        self.dropped = 0  # characters before ``text``
        self.whole = False  # whether the end has been reached
        self._pieces = pieces(path, MAX_BYTES)
        self._decode = codecs.getincrementaldecoder("utf-8")().decode

    def more(self, at: int, least: int = 0) -> None:
        """Drop the text before ``at`` and read on, at least ``least`` characters or to the end."""
        parts = [self.text[at:]]
        self.dropped += at
        length = 0
        while length <= least:
            piece = next(self._pieces, b"")
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
            if found is not None or self.whole or len(self.text) > _MAX_AROUND:
                return found
            start = max(0, len(self.text) - 256)
            self.more(0, len(self.text))


class _Runs:
    """Decodes many objects of a list at once.

    Writers separate all objects in the same way and begin all with the same key: up to the last
    place with this pattern, the text is decoded as one list.  If that fails, the place was inside
    an object, or the text has something that only the slower decoder accepts (NaN) or explains.
    """

    def __init__(self, decode: Callable[[str], list[Any]]) -> None:
        self._decode = decode
        self._separator = ""
        self._failed = ""

    def learn(self, text: str, at: int, end: int) -> None:
        """Learn how the object from ``at`` to ``end`` begins and what follows it."""
        begin, between = _BEGIN.match(text, at), _SPACE.match(text, end)
        if begin and between and between[0]:
            self._separator = between[0] + begin[0]

    def decode(self, text: str, at: int) -> tuple[list[Any], int] | None:
        """The objects from ``at`` to the last separator, and where that is."""
        if not self._separator or text is self._failed:
            return None
        end = text.rfind(self._separator, at)
        if end < 0:  # at the end of a piece, or of objects with this pattern: search only once
            self._failed = text
            return None
        check_room(_PER_CHARACTER * (end - at) + _AT_ONCE)
        try:
            return self._decode(f"[{text[at:end]}]"), end
        except (msgspec.MsgspecError, UnicodeEncodeError, RecursionError):
            self._failed = text
            return None


class JsonTrace:
    """A trace, and its lists one object at a time.

    Attributes:
        path: the file.
        cut_off: why the trace is incomplete (the file ends within its list, or behind it); "" if
            it is complete.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.cut_off = ""
        self._around: dict[str, str] = {}
        self._before: dict[str, str] = {}

    @classmethod
    def read(cls, path: Path) -> JsonTrace:
        """The file at ``path``, gzip allowed; nothing of it is read yet."""
        return cls(path)

    def items(self, key: str) -> Iterator[dict[str, Any]]:
        """The objects of the list under ``key``; other items are left out.

        Raises:
            FlintError: the file cannot be read, is too large or not text, there is no such list, or
                it is damaged or cut off; with the position.
        """
        decode = msgspec.json.Decoder(list[Any]).decode
        for items in self._objects(key, decode, lambda item: item):
            yield from (item for item in items if isinstance(item, dict))

    def records(self, key: str, kind: type[Record], expected: str) -> Iterator[Record]:
        """The same as ``runs``, one by one."""
        return chain.from_iterable(self.runs(key, kind, expected))

    def runs(self, key: str, kind: type[Record], expected: str) -> Iterator[list[Record]]:
        """The objects of the list under ``key``, with only the fields of ``kind``, many at a time.

        Args:
            key: key of the list.
            kind: a ``msgspec.Struct``.
            expected: a description of a valid object, for error messages.

        Raises:
            FlintError: an object is of another kind, or as ``items`` raises.
        """
        decode = msgspec.json.Decoder(kind).decode

        def one(item: dict[str, Any]) -> Record:
            try:
                text = msgspec.json.encode(item)
                check_room(_PER_CHARACTER * len(text) + _AT_ONCE)
                return decode(text)
            except (msgspec.MsgspecError, RecursionError) as error:
                what = f"{self.path}: {expected} ({error}): {str(item)[:80]}"
                raise FlintError(what) from error

        return self._objects(key, msgspec.json.Decoder(GenericAlias(list, (kind,))).decode, one)

    def _objects(
        self, key: str, many: Callable[[str], list[Any]], one: Callable[[dict[str, Any]], Any]
    ) -> Iterator[list[Any]]:
        """Two decoders of objects: from the text of a list, and from one decoded object."""
        read = _Text(self.path)
        found = read.until(re.compile(rf'"{re.escape(key)}"\s{{0,64}}:\s{{0,64}}\[|\A\s{{0,64}}\['))
        if found is None:
            raise FlintError(f"{self.path}: no list {key!r}, so it is not a trace of this format")
        before, at = read.text[: found.end()], found.end()
        around = "{}" if before.strip() == "[" else before + "]}"
        self._before[key] = around
        decode = json.JSONDecoder().raw_decode
        runs = _Runs(many)
        while True:
            skipped = _SPACE.match(read.text, at)
            at = skipped.end() if skipped else at
            if at >= len(read.text):
                if read.whole:
                    self._cut_off(key, f"at character {read.dropped + at:,}, inside of {key!r}")
                    return
                read.more(at)
                at = 0
                continue
            if read.text[at] == "]":
                break
            if (run := runs.decode(read.text, at)) is not None:
                objects, at = run
                yield objects
                if not read.whole:  # what is left of the text is nearly always part of an object
                    read.more(at, len(read.text) - at)
                    at = 0
                continue
            try:
                item, end = decode(read.text, at)
                item = _writable(item, read.text[at:end])
                runs.learn(read.text, at, end)
                begin, at = at, end
            except (ValueError, RecursionError) as error:
                if read.whole and _is_cut(error):
                    self._cut_off(key, f"at character {read.dropped + at:,}, inside of {key!r}")
                    return
                self._check_undecoded(read, at, error, key)
                read.more(at, len(read.text) - at)
                at = 0
                continue
            if isinstance(item, dict):
                yield [one(item)]
            elif read.text[at : at + 1] not in _ENDS and not read.whole:  # a number may continue
                read.more(begin, len(read.text) - begin)
                at = 0
        while not read.whole and len(read.text) - at <= _MAX_AROUND:
            read.more(at, len(read.text) - at)
            at = 0
        if not read.whole:
            raise FlintError(f"{self.path}: more than {_MAX_AROUND:,} characters after {key!r}")
        self._around[key] = around if around == "{}" else before + read.text[at:]

    def _cut_off(self, key: str, where: str) -> None:
        """Note where the file ends; what was before the list is still known."""
        self.cut_off = f"{self.path}: cut off {where}"
        self._around[key] = self._before[key]

    def _check_undecoded(self, read: _Text, at: int, error: Exception, key: str) -> None:
        """Check that undecodable text may become complete if more of the file is read.

        Raises:
            FlintError: it cannot.
        """
        what = "damaged"
        if isinstance(error, RecursionError):
            what = "nested too deeply"
        elif _is_cut(error) and len(read.text) - at <= _MAX_ITEM:
            return
        elif _is_cut(error):
            what = f"an object of more than {_MAX_ITEM:,} characters"
        where = f"{read.dropped + at:,}"
        raise FlintError(f"{self.path}: {what} at character {where}, inside of {key!r}") from error

    def rest(self, key: str) -> dict[str, Any]:
        """Everything except the list under ``key``, after that has been read to its end.

        Raises:
            FlintError: it is not a JSON object.
        """
        try:
            document = _writable(json.loads(self._around[key]), self._around[key])
        except (ValueError, RecursionError) as error:
            if _is_cut(error) and not self.cut_off:
                self._cut_off(key, f"after {key!r}")
                return self.rest(key)
            raise FlintError(f"{self.path}: damaged or cut off after {key!r}") from error
        if not isinstance(document, dict):
            raise FlintError(f"{self.path}: not a JSON object")
        return document
