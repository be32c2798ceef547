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

import json
import re
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from types import GenericAlias
from typing import Any, NamedTuple, TypeVar

import msgspec

from flint.converters.profilers.json_text import (
    AT_ONCE,
    MAX_AROUND,
    MAX_ITEM,
    PER_CHARACTER,
    SPACE,
    Runs,
    Text,
)
from flint.errors import FlintError
from flint.host.reading_memory import check_room

Record = TypeVar("Record")

#: The characters that end an entry of a list.
_ENDS = (",", "]", " ", "\n", "\r", "\t")
#: What a decoder's error points at if the text ends within a value: nothing, or the beginning of a
#: literal, a number or an escape.
_BEGUN = re.compile(r"\s*-?\w{0,8}[.+-]?")
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


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


class Half(NamedTuple):
    """A half of a list.

    Attributes:
        middle: about where the second half begins, in bytes of the unpacked file.
        second: whether only that half is read.
    """

    middle: int
    second: bool = False


class JsonTrace:
    """A trace, and its lists one object at a time.

    Attributes:
        path: the file.
        cut_off: why the trace is incomplete (the file ends within its list, or behind it); "" if
            it is complete.
        at_half: whether the second half of a list is next.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.cut_off = ""
        self.at_half = False
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

    def runs(
        self, key: str, kind: type[Record], expected: str, half: Half | None = None
    ) -> Iterator[list[Record]]:
        """The objects of the list under ``key``, with only the fields of ``kind``, many at a time.

        Args:
            key: key of the list.
            kind: a ``msgspec.Struct``.
            expected: a description of a valid object, for error messages.
            half: where the list is divided: after the first half, nothing comes once, and
                ``at_half`` is true if objects begin there.

        Raises:
            FlintError: an object is of another kind, or as ``items`` raises.
        """
        decode = msgspec.json.Decoder(kind).decode

        def one(item: dict[str, Any]) -> Record:
            try:
                text = msgspec.json.encode(item)
                check_room(PER_CHARACTER * len(text) + AT_ONCE)
                return decode(text)
            except (msgspec.MsgspecError, RecursionError) as error:
                what = f"{self.path}: {expected} ({error}): {str(item)[:80]}"
                raise FlintError(what) from error

        decode_all = msgspec.json.Decoder(GenericAlias(list, (kind,))).decode
        return self._objects(key, decode_all, one, half)

    def _objects(
        self,
        key: str,
        many: Callable[[str], list[Any]],
        one: Callable[[dict[str, Any]], Any],
        half: Half | None = None,
    ) -> Iterator[list[Any]]:
        """Two decoders of objects: from the text of a list, and from one decoded object."""
        read = Text(self.path)
        found = read.until(re.compile(rf'"{re.escape(key)}"\s{{0,64}}:\s{{0,64}}\[|\A\s{{0,64}}\['))
        if found is None:
            raise FlintError(f"{self.path}: no list {key!r}, so it is not a trace of this format")
        before, at = read.text[: found.end()], found.end()
        around = "{}" if before.strip() == "[" else before + "]}"
        self._before[key] = around
        decode = json.JSONDecoder().raw_decode
        runs, skipping = Runs(many), half is not None and half.second
        while True:
            skipped = SPACE.match(read.text, at)
            at = skipped.end() if skipped else at
            if at >= len(read.text):
                if read.paused:
                    self.at_half = True
                    yield []
                    self.at_half = False
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
                if not (read.whole or read.paused):  # the rest is nearly always part of an object
                    read.more(at, len(read.text) - at)
                    at = 0
                continue
            try:
                item, end = decode(read.text, at)
                item = _writable(item, read.text[at:end])
                runs.learn(read.text, at, end)
                begin, at = at, end
                if half is not None and runs.separator:
                    read.pause(half.middle, runs.separator)
                    half = None
                if skipping and half is None:
                    read.skip()
                    at, skipping = 0, False
                    continue
            except (ValueError, RecursionError) as error:
                if read.whole and _is_cut(error):
                    self._cut_off(key, f"at character {read.dropped + at:,}, inside of {key!r}")
                    return
                self._check_undecoded(read, at, error, key)
                read.more(at, len(read.text) - at)
                at = 0
                continue
            if isinstance(item, dict):
                yield [] if skipping else [one(item)]
            elif read.text[at : at + 1] not in _ENDS and not read.whole:  # a number may continue
                read.more(begin, len(read.text) - begin)
                at = 0
        while not read.whole and len(read.text) - at <= MAX_AROUND:
            read.more(at, len(read.text) - at)
            at = 0
        if not read.whole:
            raise FlintError(f"{self.path}: more than {MAX_AROUND:,} characters after {key!r}")
        self._around[key] = around if around == "{}" else before + read.text[at:]

    def _cut_off(self, key: str, where: str) -> None:
        """Note where the file ends; what was before the list is still known."""
        self.cut_off = f"{self.path}: cut off {where}"
        self._around[key] = self._before[key]

    def _check_undecoded(self, read: Text, at: int, error: Exception, key: str) -> None:
        """Check that undecodable text may become complete if more of the file is read.

        Raises:
            FlintError: it cannot.
        """
        what = "damaged"
        if isinstance(error, RecursionError):
            what = "nested too deeply"
        elif _is_cut(error) and len(read.text) - at <= MAX_ITEM:
            return
        elif _is_cut(error):
            what = f"an object of more than {MAX_ITEM:,} characters"
        where = f"{read.dropped + at:,}"
        raise FlintError(f"{self.path}: {what} at character {where}, inside of {key!r}") from error

    def adopt(self, key: str, around: str) -> None:
        """Take what is around a list from another process, which has read its second half."""
        self._around[key] = around

    def around(self, key: str) -> str:
        """What ``adopt`` takes, after the list has been read to its end."""
        return self._around[key]

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
