"""Facts about collectives from PyTorch's profilers: kinds, groups, peers, reductions."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from flint.converters.profilers.torch_ops import bytes_of, dtype_of, tensors_of
from flint.graph.tensor_types import DTYPE_BITS
from flint.observed.classes import c10d_class
from flint.observed.columns import OpFacts

#: Which argument of a message's op is the other rank.
_PEER = 2
#: The most ranks of a group written out in a trace.
_MAX_GROUP = 1 << 22
#: Functional collectives' names of reductions -> StableHLO's name; an average is a sum that is
#: divided (torch/csrc/distributed/c10d/Functional.cpp).
_REDUCTIONS = {
    "sum": "add", "avg": "add", "max": "maximum", "min": "minimum", "product": "multiply",
    "band": "and", "bor": "or", "bxor": "xor",
}  # fmt: skip


def functional_reduction(name: str, values: object) -> str:
    """The reducing op of a functional collective: its first text; "" if none is recorded.

    Args:
        name: name of the op; c10d's own ops have an object there that profilers do not record.
        values: values of its arguments.
    """
    if not name.startswith(("_c10d_functional::", "c10d_functional::")):
        return ""
    texts = (item for item in values if isinstance(item, str)) if isinstance(values, list) else ()
    return next((_REDUCTIONS[item.lower()] for item in texts if item.lower() in _REDUCTIONS), "")


#: Broadcasts -> which of their arguments is the root (torch/csrc/distributed/c10d: Ops.cpp and
#: Functional.cpp).
_ROOTS = {
    "c10d::broadcast_": 2, "_c10d_functional::broadcast": 1, "_c10d_functional::broadcast_": 1,
}  # fmt: skip


def root_in_group(name: str, values: object) -> int:
    """The position of a broadcast's sender in its group; -1 if it is not recorded.

    Args:
        name: name of the op.
        values: values of its arguments, as numbers or as texts.
    """
    place = _ROOTS.get(name)
    if place is None or not isinstance(values, list) or len(values) <= place:
        return -1
    number = str(values[place])
    return int(number) if re.fullmatch(r"\d{1,9}", number) else -1


def comms_facts(args: Mapping[str, Any], groups: Mapping[str, tuple[int, ...]]) -> OpFacts | None:
    """A collective from ``record_param_comms``, in the versions since PyTorch 2.1.

    Args:
        args: the event's arguments, by Kineto's names; ``In msg bytes`` if the element type is
            unknown.
        groups: process group's name -> its ranks.
    """
    kind = c10d_class(str(args.get("Collective name", "")))
    if kind is None:
        return None
    name, dtype = str(args["Collective name"]), dtype_of(args.get("dtype", ""))
    # A scatter's "in" is what its root sends to all; each message has the size of the result.
    count = args.get("Out msg nelems" if name == "scatter" else "In msg nelems")
    known: Any = args.get("In msg bytes")
    parts = None if known is None else (known,)
    if type(count) is int and count >= 0 and dtype:
        parts = (count * DTYPE_BITS[dtype] // 8,)
    return OpFacts(kind, name, None, parts, dtype, _group(args, groups), peer=_peer(args))


def old_record(values: object, shapes: object, types: object) -> OpFacts | None:
    """A record of a collective before PyTorch 2.1, whose name is among its inputs' values.

    Args:
        values, shapes, types: those of the inputs, as in the file.

    Returns:
        The collective under that name, with its group if its first rank, stride and size follow
        (since schema 1.0.3), or its number of ranks if parts for each rank do; None if there is no
        such name.
    """
    if not isinstance(values, list):
        return None
    named = [place for place, value in enumerate(values) if _names_collective(value)]
    if not named:
        return None
    value, behind = values[named[0]], values[named[0] + 1 :]
    kind = c10d_class(value)
    assert kind is not None
    group, members = _members_behind(behind)
    arguments = tensors_of(
        shapes if isinstance(shapes, list) else [], types if isinstance(types, list) else []
    )
    sent = tuple(arguments[0]) if arguments else ()
    dtype = sent[0][1] if sent else ""
    return OpFacts(kind, value, sent or None, bytes_of(sent), dtype, group, members=members)


def _names_collective(value: object) -> bool:
    return isinstance(value, str) and c10d_class(value) is not None


def _members_behind(values: list[Any]) -> tuple[tuple[int, ...] | None, int]:
    """Ranks and their number, from the values after the collective's name in an old record.

    These are the parts for each rank and from each (empty if all are equal), and since 1.0.3 the
    first rank, the stride and the size of the group.

    Args:
        values: as in the file; Kineto writes all of them as text.
    """
    plain = [_decoded(value) for value in values]
    parts = {len(value) for value in plain if isinstance(value, list) and value}
    members = parts.pop() if len(parts) == 1 else -1
    numbers = [value for value in plain if type(value) is int]
    if len(numbers) != 3:
        return None, members
    start, stride, size = numbers
    if not 0 < size <= _MAX_GROUP:
        return None, members
    if start < 0 or stride < 1:
        return None, size
    return tuple(range(start, start + size * stride, stride)), size


def _decoded(value: object) -> Any:
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return value


def _peer(args: Mapping[str, Any]) -> int:
    """The other rank of a message, which Kineto writes as a text."""
    number = args.get("Dst Rank", args.get("Src Rank"))
    return (
        int(number)
        if isinstance(number, int | str) and re.fullmatch(r"\d{1,9}", str(number))
        else -1
    )


def peer_in_group(name: str, values: object, groups: Mapping[str, tuple[int, ...]]) -> int:
    """The other rank of ``c10d::send`` or ``recv_``, which name neither their group nor its ranks.

    Args:
        name: name of the op; ``c10d::recv_any_source_`` has a tag in the other rank's place.
        values: values of its arguments: the third is its number within the group, as a number or a
            text.
        groups: process group's name -> its ranks.

    Returns:
        The rank, -1 if there are groups with different ranks, or the op names none.
    """
    if not isinstance(values, list) or len(values) <= _PEER or "any_source" in name:
        return -1
    number = values[_PEER]
    distinct = set(groups.values())
    if len(distinct) != 1 or not re.fullmatch(r"\d{1,9}", str(number)):
        return -1
    [group] = distinct
    return group[int(str(number))] if int(str(number)) < len(group) else -1


def _group(args: Mapping[str, Any], groups: Mapping[str, tuple[int, ...]]) -> Any:
    size: Any = args.get("Group size")
    ranks = ranks_of(args.get("Process Group Ranks"))
    if ranks and (type(size) is not int or len(ranks) == size):
        return ranks
    start: Any = args.get("Global rank start")
    stride: Any = args.get("Global rank stride")
    numbers = type(size) is int and type(start) is int and type(stride) is int
    if numbers and 0 < size <= _MAX_GROUP and start >= 0 and stride > 0:
        return tuple(range(start, start + size * stride, stride))
    return groups.get(str(args.get("Process Group Name", "")))


def ranks_of(text: object) -> tuple[int, ...]:
    """Ranks written as a list or as its text; () if they are cut short, or are not a group."""
    return _ranks_in(text) if isinstance(text, str) else _checked(text)


@lru_cache(maxsize=1 << 12)
def _ranks_in(text: str) -> tuple[int, ...]:
    """The same of a text: a run has few groups and many collectives."""
    try:
        return _checked(json.loads(text))
    except ValueError:  # long lists are cut: "[0, 1, ..., 511]"
        return ()


def _checked(text: object) -> tuple[int, ...]:
    if not isinstance(text, list) or len(text) > _MAX_GROUP:
        return ()
    whole = all(type(rank) is int and rank >= 0 for rank in text)
    return tuple(sorted(text)) if whole and len(set(text)) == len(text) else ()


def groups_of(config: object) -> dict[str, tuple[int, ...]]:
    """Process group's name -> ranks, from a list of ``pg_config`` entries."""
    found: dict[str, tuple[int, ...]] = {}
    for item in config if isinstance(config, list) else []:
        if isinstance(item, dict) and (ranks := ranks_of(item.get("ranks"))):
            found[str(item.get("pg_name", ""))] = ranks
    return found
