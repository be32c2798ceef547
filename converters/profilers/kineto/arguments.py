"""The decoded parts of an event of a Kineto trace, and of its arguments by category.

The idea: arguments stay text until it is known which of them are needed.  Arguments that repeat
from step to step even stay text then: they are compared as text, and decoded once.

    op = Arguments(path, OpArguments).of(event)
    decoded(said_by(op), path)                  # {"Input Dims": [[4, 8], [8, 2]]}
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from operator import attrgetter
from pathlib import Path
from types import GenericAlias
from typing import Any, Final, Generic, TypeVar

import msgspec

from flint.converters.profilers.kineto.kept import hashables
from flint.errors import FlintError

ABSENT: Final = msgspec.Raw(b"")

_TEXT: Final = frozenset({str})

Kind = TypeVar("Kind")


class Event(msgspec.Struct, gc=False):
    """Any event; a damaged file's values in place of numbers or text are kept."""

    ph: Any = None
    cat: Any = ""
    name: Any = ""
    ts: Any = None
    dur: Any = None
    pid: Any = None
    tid: Any = None
    id: Any = None
    args: msgspec.Raw = ABSENT


class OpArguments(msgspec.Struct, gc=False):
    """Arguments of an op on the host."""

    external: Any = msgspec.field(name="External id", default=msgspec.UNSET)
    old_external: Any = msgspec.field(name="external id", default=None)
    record: Any = msgspec.field(name="Record function id", default=None)
    dims: msgspec.Raw = msgspec.field(name="Input Dims", default=ABSENT)
    types: msgspec.Raw = msgspec.field(name="Input type", default=ABSENT)
    concrete: msgspec.Raw = msgspec.field(name="Concrete Inputs", default=ABSENT)
    collective: msgspec.Raw = msgspec.field(name="Collective name", default=ABSENT)
    dtype: msgspec.Raw = ABSENT
    elements: msgspec.Raw = msgspec.field(name="In msg nelems", default=ABSENT)
    size: msgspec.Raw = msgspec.field(name="Group size", default=ABSENT)
    ranks: msgspec.Raw = msgspec.field(name="Process Group Ranks", default=ABSENT)
    group: msgspec.Raw = msgspec.field(name="Process Group Name", default=ABSENT)
    start: msgspec.Raw = msgspec.field(name="Global rank start", default=ABSENT)
    stride: msgspec.Raw = msgspec.field(name="Global rank stride", default=ABSENT)
    source: msgspec.Raw = msgspec.field(name="Src Rank", default=ABSENT)
    target: msgspec.Raw = msgspec.field(name="Dst Rank", default=ABSENT)


class KernelArguments(msgspec.Struct, gc=False):
    """Arguments of an event on a device."""

    external: Any = msgspec.field(name="External id", default=msgspec.UNSET)
    old_external: Any = msgspec.field(name="external id", default=None)
    correlation: Any = None
    device: Any = None
    stream: Any = None
    bytes: Any = None


class CallArguments(msgspec.Struct, gc=False):
    """Arguments of a runtime or driver call."""

    correlation: Any = None
    rank: Any = None


#: The arguments of an op that are kept, by their names in the file; most ops repeat others'.
_FIELDS: Final = {
    field.encode_name: field.name
    for field in msgspec.structs.fields(OpArguments)
    if field.type is msgspec.Raw
}
fields_of = attrgetter(*_FIELDS.values())
#: ``fields_of`` an op without any of them.
NO_FIELDS: Final = (ABSENT,) * len(_FIELDS)
_decode: Final = msgspec.json.Decoder().decode


class Arguments(Generic[Kind]):
    """Decodes the arguments of events of one kind."""

    def __init__(self, path: Path, kind: Callable[[], Kind]) -> None:
        self._path, self._nothing = path, kind
        self._decode: Callable[[Any], Kind] = msgspec.json.Decoder(kind).decode
        self._decode_all = msgspec.json.Decoder(GenericAlias(list, (kind,))).decode

    def all(self, events: Sequence[Event]) -> list[Kind]:
        """The arguments of each event, as by ``of``."""
        texts = [b"{}" if event.args is ABSENT else event.args for event in events]
        try:
            return self._decode_all(b"[%b]" % b",".join(texts))  # type: ignore[no-any-return]
        except msgspec.MsgspecError:
            return [self.of(event) for event in events]

    def of(self, event: Event) -> Kind:
        """The event's arguments; empty if a damaged file has no object there.

        Raises:
            FlintError: they cannot be decoded.
        """
        if event.args is ABSENT:
            return self._nothing()
        try:
            return self._decode(event.args)
        except msgspec.MsgspecError:
            return self._again(bytes(event.args))

    def _again(self, text: bytes) -> Kind:
        """Decode with the decoder that accepts any number and explains errors."""
        try:
            found = json.loads(text)
            return self._decode(msgspec.json.encode(found if isinstance(found, dict) else {}))
        except (ValueError, RecursionError, msgspec.MsgspecError) as error:
            shown = text[:80].decode(errors="replace")
            raise FlintError(f"{self._path}: damaged arguments ({error}): {shown}") from error


def externals_of(items: Sequence[OpArguments] | Sequence[KernelArguments]) -> Sequence[object]:
    """The profiler's numbers for the ops or the kernels' ops, fit for a dictionary."""
    return hashables(
        [item.old_external if item.external is msgspec.UNSET else item.external for item in items]
    )


def texts_of(values: list[Any]) -> list[str]:
    """Names or categories; those of a damaged file as text."""
    return values if _TEXT.issuperset(map(type, values)) else list(map(str, values))


def decoded(parts: Sequence[msgspec.Raw], path: Path) -> dict[str, Any]:
    """An op's arguments, by their names in the file."""
    given = [pair for pair in zip(_FIELDS, parts, strict=True) if pair[1] is not ABSENT]
    try:  # all at once
        values = _decode(b"[%b]" % b",".join([part for _, part in given]))
        return {name: value for (name, _), value in zip(given, values, strict=True)}
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        pass
    try:  # with the decoder that accepts any number and explains errors
        return {name: json.loads(bytes(part)) for name, part in given}
    except (ValueError, RecursionError) as error:
        raise FlintError(f"{path}: damaged arguments of an op ({error})") from error
