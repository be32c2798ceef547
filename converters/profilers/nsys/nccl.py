"""Facts about collectives from NCCL's own NVTX ranges.

The idea: since version 2.15 each call of the library is a range with a payload: the communicator,
the bytes of one message, the other rank; when a communicator is made, its size and this process's
rank in it.  Tables next to it list a payload's fields and their offsets.  (NCCL's
``nvtx_payload_schemas.h``; the first 32 bytes of a payload name its schema.)

    payloads = Payloads(database)
    payloads.of(domain, binary)["Message size [bytes]"]
"""

from __future__ import annotations

import re
from collections import defaultdict
from typing import Any, NamedTuple

from flint.converters.profilers.database import Database, text

#: Bytes before the fields: domain, schema, size of the fields, size of all.
_HEADER = 32
#: Field of NCCL's payloads -> its bytes, and its name here.
_FIELDS = {
    "NCCL communicator ID": (8, "communicator"),
    "Message size [bytes]": (8, "bytes"),
    "Bytes": (8, "bytes"),
    "No. of ranks": (4, "members"),
    "Rank": (4, "rank"),
    "CUDA device": (4, "device"),
    "Peer rank": (4, "peer"),
}
_CALL = re.compile(
    r"nccl(AllReduce|AllGather|ReduceScatter|Broadcast|Reduce|Send|Recv|AlltoAll|Gather|Scatter)"
)
_MADE = re.compile(r"nccl(CommInit|CommSplit|CommShrink)")
#: Calls whose message is what each member receives, or sends to each: a rank contributes as many.
_OF_EACH = frozenset({"ReduceScatter", "AlltoAll"})


class Made(NamedTuple):
    """A communicator as one of its members sees it."""

    communicator: int
    members: int
    rank: int
    device: int  # -1 unknown


class Payloads:
    """Decodes payloads of a file."""

    def __init__(self, data: Database) -> None:
        self._fields: dict[tuple[int, int], list[tuple[str, int, int]]] = defaultdict(list)
        columns = ("domainId", "schemaId", "name", "offset")
        for domain, schema, name, offset in data.rows("NVTX_PAYLOAD_SCHEMA_ENTRIES", columns):
            field = _FIELDS.get(text(name))
            if field is None or not isinstance(domain, int) or not isinstance(schema, int):
                continue
            place = offset if isinstance(offset, int) and offset >= 0 else 0
            self._fields[domain, schema].append((field[1], place, field[0]))

    def of(self, domain: object, binary: object) -> dict[str, int]:
        """The fields of a payload that are known, unsigned."""
        if not isinstance(binary, bytes) or len(binary) < _HEADER or not isinstance(domain, int):
            return {}
        schema = int.from_bytes(binary[8:12], "little")
        return {
            name: int.from_bytes(binary[_HEADER + place : _HEADER + place + size], "little")
            for name, place, size in self._fields.get((domain, schema), ())
            if _HEADER + place + size <= len(binary)
        }


def made(name: str, fields: dict[str, int]) -> Made | None:
    """The communicator that a range has made; None for other ranges."""
    if not _MADE.match(name) or not fields.keys() >= {"communicator", "members", "rank"}:
        return None
    if not 0 <= fields["rank"] < fields["members"] < 1 << 22:
        return None
    return Made(fields["communicator"], fields["members"], fields["rank"], fields.get("device", -1))


def called(
    name: str,
    fields: dict[str, int],
    members: dict[int, int],
    ranks: dict[str, tuple[int, ...]],
) -> dict[str, Any] | None:
    """A range's facts about a collective, in Kineto's form; None for other ranges.

    Args:
        name: name of the range.
        fields: fields of its payload.
        members: communicator -> number of its ranks, if known.
        ranks: name of a communicator -> its ranks in the run, by their ranks in it.
    """
    call = _CALL.fullmatch(name)
    if call is None:
        return None
    arguments: dict[str, Any] = {"Collective name": call[1].lower()}
    own = fields.get("communicator", -1)
    size = members.get(own, -1)
    if own >= 0:
        arguments["Process Group Name"] = group_name(own)
    if size > 0:
        arguments["Group size"] = size
    count = fields.get("bytes", -1)
    if count >= 0 and not (call[1] in _OF_EACH and size < 0):
        arguments["In msg bytes"] = count * (size if call[1] in _OF_EACH else 1)
    known = ranks.get(group_name(own), ())
    if fields.get("peer", len(known)) < len(known):
        which = "Dst Rank" if call[1] == "Send" else "Src Rank"
        arguments[which] = known[fields["peer"]]
    return arguments


def group_name(communicator: int) -> str:
    """The name of a communicator."""
    return f"{communicator:#x}"
