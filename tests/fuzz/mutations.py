"""Inputs that are nearly right: real ones, damaged as files are damaged or forged.

The idea: a reader that is given random bytes refuses them at the first one. So an input is taken
apart (JSON values, fields of protobuf messages, tokens of text, members of an archive), one part is
dropped, doubled, moved or replaced by a value that readers trip over, and the rest is put together
again as it was. The same random numbers give the same input.

    json_values(b'{"world_size": 4}', Random(0))      # b'{"world_size": -1}', say

Longer than 300 lines because each form of file is taken apart and put together again in its own
way.
"""

from __future__ import annotations

import gzip
import io
import json
import re
import zipfile
import zlib
from collections.abc import Callable, Iterator
from functools import lru_cache
from random import Random
from typing import Any, Final

Mutation = Callable[[bytes, Random], bytes]

#: Numbers at which types end, counts become sizes, and signs turn.
NUMBERS: Final = (
    *(0, 1, -1, 2, 127, 255, 2**31 - 1, 2**31, 2**32, 2**53, 2**63 - 1, 2**63, 2**64 - 1),
    *(10**18, 10**30, -(2**31), -(2**63)),
)
_LEAVES: Final = (
    *(None, True, False, "", "x", "../x", "\x00", "a" * 5000, "\ufffd", [], {}, [[]]),
    *(0.5, 1e308, -1e-300, float("nan"), float("inf"), *NUMBERS),
)
_FRAGMENTS: Final = (
    *("(" * 3000, "{" * 3000, "[" * 3000, "<" * 3000),
    *('"', "\\", "\x00", "\u00b2", "-", "1e999", "%", "@", "#", "0x"),
)
#: What zipfile raises at what is no archive.
_NO_ARCHIVE = (zipfile.BadZipFile, ValueError, OSError, RuntimeError, EOFError, zlib.error)


def any_bytes(data: bytes, rng: Random) -> bytes:
    """Bits turned, bytes replaced, a stretch dropped, doubled or moved, the end cut off."""
    if not data:
        return bytes(rng.randrange(256) for _ in range(rng.randrange(16)))
    at = rng.randrange(len(data))
    length = 1 + min(rng.randrange(1 << rng.randrange(1, 12)), len(data) - at)
    stretch = data[at : at + length]
    to = rng.randrange(len(data))
    made: tuple[Callable[[], bytes], ...] = (
        lambda: data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1 :],
        lambda: data[:at] + bytes([rng.choice((0, 1, 0x7F, 0x80, 0xFF))]) + data[at + 1 :],
        lambda: data[:at] + data[at + length :],
        lambda: data[:at] + stretch + data[at:],
        lambda: data[:to] + stretch + data[to + length :],
        lambda: data[:at] + rng.randbytes(len(stretch)) + data[at + length :],
        lambda: data[:at],
    )
    return rng.choice(made)()


def json_values(data: bytes, rng: Random) -> bytes:
    """A value of a JSON document dropped, doubled, moved, renamed, nested or replaced."""
    try:
        tree = _json(data)
    except (ValueError, RecursionError):
        return any_bytes(data, rng)
    if rng.random() < 0.05:
        return any_bytes(data, rng)
    return json.dumps(_changed(tree, rng, _other_leaf)).encode()


def json_lines(data: bytes, rng: Random) -> bytes:
    """A line of a file with a JSON document in each."""
    lines = data.split(b"\n")
    at = rng.randrange(len(lines))
    lines[at] = json_values(lines[at], rng)
    return b"\n".join(lines)


def text(data: bytes, rng: Random) -> bytes:
    """A token dropped, doubled, moved, replaced by another of the text; a number made absurd."""
    parts, numbers, names = _tokens(data)
    tokens = list(parts)
    if len(tokens) < 2 or rng.random() < 0.1:
        return any_bytes(data, rng)
    at, other = rng.randrange(len(tokens)), rng.randrange(len(tokens))
    kind = rng.randrange(7)
    if kind == 0:
        del tokens[at : at + 1 + rng.randrange(1 << rng.randrange(1, 6))]
    elif kind == 1:
        tokens[at:at] = tokens[at : at + 1 + rng.randrange(1 << rng.randrange(1, 6))]
    elif kind == 2:
        tokens[at], tokens[other] = tokens[other], tokens[at]
    elif kind == 3:
        tokens[at] = rng.choice(_FRAGMENTS)
    else:
        places = (numbers if kind < 6 else names) or (at,)
        place = rng.choice(places)
        tokens[place] = str(rng.choice(NUMBERS)) if kind < 6 else tokens[rng.choice(places)]
    return "".join(tokens).encode("utf-8", "surrogateescape")


def protobuf(data: bytes, rng: Random) -> bytes:
    """A field of a protobuf message, at any depth: dropped, doubled, moved, replaced."""
    tree = fields_of(data)
    if tree is None or rng.random() < 0.05:
        return any_bytes(data, rng)
    return message_of(_changed(tree, rng, _other_field))


def delimited(data: bytes, rng: Random) -> bytes:
    """One message of a file of messages that each have their length before them."""
    try:
        parts = list(_parts(data))
    except (ValueError, IndexError):
        return any_bytes(data, rng)
    if not parts or rng.random() < 0.05:
        return any_bytes(data, rng)
    at = rng.randrange(len(parts))
    match rng.randrange(6):
        case 0:
            del parts[at]
        case 1:
            parts.insert(rng.randrange(len(parts) + 1), parts[at])
        case _:
            parts[at] = protobuf(parts[at], rng)
    return b"".join(_varint(len(part)) + part for part in parts)


def archive(data: bytes, rng: Random) -> bytes:
    """A member of a ZIP archive (an .npz): bytes, a name, or whether it is there."""
    if rng.random() < 0.1:
        return any_bytes(data, rng)
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as file:
            members = [(name, file.read(name)) for name in file.namelist()]
    except _NO_ARCHIVE:
        return any_bytes(data, rng)
    if not members:
        return any_bytes(data, rng)
    at = rng.randrange(len(members))
    name, content = members[at]
    kind = rng.randrange(10)
    if kind == 0:
        del members[at]
    elif kind == 1:
        members[at] = rng.choice(members)[0], content
    elif kind < 5:  # the header says type and shape
        members[at] = name, text(content[:128], rng) + content[128:]
    else:
        members[at] = name, content[:128] + any_bytes(content[128:], rng)
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as file:
        for name, content in dict(members).items():
            file.writestr(name, content)
    return made.getvalue()


def gzipped(inner: Mutation) -> Mutation:
    """A mutation of what is in a gzip file; now and then of the file."""

    def mutate(data: bytes, rng: Random) -> bytes:
        if rng.random() < 0.1:
            return any_bytes(data, rng)
        return gzip.compress(inner(_unpacked(data), rng), 1, mtime=0)

    return mutate


@lru_cache(64)
def _unpacked(data: bytes) -> bytes:
    try:
        return gzip.decompress(data)
    except (OSError, EOFError, ValueError, zlib.error):
        return data


@lru_cache(64)
def _parts(data: bytes) -> tuple[bytes, ...]:
    return tuple(_records(data))


@lru_cache(64)
def _json(data: bytes) -> Any:
    return json.loads(data)


@lru_cache(64)
def _tokens(data: bytes) -> tuple[tuple[str, ...], tuple[int, ...], tuple[int, ...]]:
    """The tokens of a text, where numbers stand, and where names do."""
    tokens = tuple(re.findall(r"\w+|\s+|[^\w\s]", data.decode("utf-8", "surrogateescape")))
    numbers = tuple(at for at, token in enumerate(tokens) if token.isdigit())
    return tokens, numbers, tuple(at for at, token in enumerate(tokens) if token.isidentifier())


def _changed(tree: Any, rng: Random, other: Callable[[Any, Random], Any]) -> Any:
    """A copy with one place changed, which shares all that is not on the way to it."""
    if isinstance(tree, dict):
        items: list[Any] = [list(pair) for pair in tree.items()]
        if not items:
            return other(tree, rng)
        at = rng.randrange(len(items))
        if rng.random() < 0.05:
            items[at][0] = rng.choice((*tree, "", "x"))
        elif (value := _child(items[at][1], rng, other)) is _DROPPED:
            del items[at]
        else:
            items[at][1] = value
        return dict(items)
    if isinstance(tree, list):
        if not tree:
            return other(tree, rng)
        made = list(tree)
        at = rng.randrange(len(made))
        kind = rng.random()
        if kind < 0.05:
            made.insert(rng.randrange(len(made) + 1), made[at])
        elif kind < 0.1:
            to = rng.randrange(len(made))
            made[at], made[to] = made[to], made[at]
        elif (value := _child(made[at], rng, other)) is _DROPPED:
            del made[at]
        else:
            made[at] = value
        return made
    return other(tree, rng)


_DROPPED: Final = object()


def _child(value: Any, rng: Random, other: Callable[[Any, Random], Any]) -> Any:
    kind = rng.random()
    if kind < 0.08:
        return _DROPPED
    if kind < 0.16 or not isinstance(value, dict | list | Field):
        return other(value, rng)
    if isinstance(value, Field):
        inner = fields_of(value.value) if isinstance(value.value, bytes) else None
        return Field(value.number, value.wire, _changed(inner or value.value, rng, other))
    return _changed(value, rng, other)


def _other_leaf(value: Any, rng: Random) -> Any:
    if rng.random() < 0.01:
        for _ in range(900):  # deeper than what json writes is made by `text`
            value = [value]
        return value
    if isinstance(value, int | float) and rng.random() < 0.5:
        return value + rng.choice((-1, 1, 0.5, 1000))
    if isinstance(value, str) and value and rng.random() < 0.3:
        return value[: rng.randrange(len(value))]
    return rng.choice(_LEAVES)


class Field:
    """A field of a protobuf message: an integer, bytes, or the changed fields of an inner message.

    ``written``: how it stands in the file that it comes from.
    """

    __slots__ = ("number", "value", "wire", "written")

    def __init__(self, number: int, wire: int, value: Any, written: bytes | None = None) -> None:
        self.number, self.wire, self.value, self.written = number, wire, value, written


def _other_field(value: Any, rng: Random) -> Any:
    if isinstance(value, list):
        return []
    if isinstance(value, Field):
        return Field(rng.choice((value.number, value.number + 1, 1, 2, 0, 2**29 - 1)),
                     rng.choice((value.wire, 0, 1, 2, 5, 3)),
                     _other_field(value.value, rng))  # fmt: skip
    if isinstance(value, int):
        return rng.choice((*NUMBERS, value + 1, value - 1)) % 2**64
    return rng.choice((b"", b"\xff\xfe", b"a" * 5000, any_bytes(value, rng), b"\x0a\x02" * 2000))


def fields_of(data: bytes) -> list[Field] | None:
    """The fields of a message; an inner message is bytes.  None: this is not a message."""
    fields, at = [], 0
    try:
        while at < len(data):
            first = at
            tag, at = _read_varint(data, at)
            number, wire = tag >> 3, tag & 7
            value: Any
            if number == 0 or wire in (3, 4, 6, 7):
                return None
            if wire == 0:
                value, at = _read_varint(data, at)
            else:
                length = {1: 8, 5: 4}.get(wire, -1)
                if length < 0:
                    length, at = _read_varint(data, at)
                value, at = data[at : at + length], at + length
                if at > len(data):
                    return None
            fields.append(Field(number, wire, value, data[first:at]))
    except IndexError:
        return None
    return fields


def message_of(fields: Any) -> bytes:
    if isinstance(fields, bytes):
        return fields
    made = bytearray()
    for field in fields:
        if field.written is not None:
            made += field.written
            continue
        made += _varint((field.number << 3 | field.wire) % 2**64)
        value = field.value
        if isinstance(value, int):
            made += _varint(value)
        else:
            content = message_of(value)
            made += (_varint(len(content)) if field.wire == 2 else b"") + content
    return bytes(made)


def _records(data: bytes) -> Iterator[bytes]:
    at = 0
    while at < len(data):
        length, at = _read_varint(data, at)
        if at + length > len(data):
            raise ValueError("cut off")
        yield data[at : at + length]
        at += length


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80 or shift > 63:
            return value % 2**64, at


def _varint(value: int) -> bytes:
    made = bytearray()
    while value >= 0x80:
        made.append(value & 0x7F | 0x80)
        value >>= 7
    made.append(value)
    return bytes(made)
