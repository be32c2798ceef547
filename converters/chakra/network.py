"""Which ranks a collective joins: ranks as coordinates in the network's dims, and group tables.

The idea: dim 0 of `npus_count` is the consecutive ranks, so a rank's coordinates are its digits in
a mixed radix with the fastest digit first.

    network = Network((2, 4))                       # 8 ranks; ranks 0 and 1 differ in dim 0
    network.along((False, True)).members(rank=3)    # [1 3 5 7]
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import yaml
from numpy.typing import NDArray

from flint.errors import FlintError
from flint.host.packed_files import read_once
from flint.mesh.groups import StridedGroups, canonical
from flint.mesh.mesh import MAX_AXES, MAX_RANKS

MAX_CONFIGURATION_BYTES: Final = 1 << 29
"""The largest group table; one of a million ranks with hundreds of memberships each is smaller."""

MAX_NETWORK_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Network:
    """The extents of the network's dims, dim 0 first."""

    npus_count: tuple[int, ...]

    @property
    def ranks(self) -> int:
        """How many ranks there are."""
        return math.prod(self.npus_count)

    def strides(self) -> tuple[int, ...]:
        """How far apart in rank number two neighbours in each dim are."""
        return tuple(math.prod(self.npus_count[:dim]) for dim in range(len(self.npus_count)))

    def along(self, mask: tuple[bool, ...]) -> StridedGroups:
        """The groups of ranks that differ in the dims of `mask` only, members ascending."""
        dims = zip(self.npus_count, self.strides(), mask, strict=True)
        used = [(extent, stride) for extent, stride, use in dims if use]
        return StridedGroups(self.ranks, canonical(reversed(used)))

    def dims_spanned(self, ranks: NDArray[np.int64]) -> int:
        """In how many dims the coordinates of `ranks` differ."""
        return sum(
            len(np.unique(ranks // stride % extent)) > 1
            for extent, stride in zip(self.npus_count, self.strides(), strict=True)
        )


@dataclass(frozen=True, slots=True)
class GroupTable:
    """The comm-groups file.

    Attributes:
        members: group id -> int64 ranks in listed order, for the sound entries.
        problems: (key, what is wrong) for the others.
    """

    members: dict[int, NDArray[np.int64]]
    problems: tuple[tuple[str, str], ...] = ()


def read_text(path: Path, limit: int = MAX_CONFIGURATION_BYTES) -> str:
    """The text of a configuration file.

    Raises FlintError if it is unreadable, longer than `limit` bytes or not UTF-8.
    """
    try:
        return read_once(path, limit).data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise FlintError(f"{path}: not UTF-8 text: {error}") from error


def read_json_object(path: Path) -> list[tuple[str, Any]]:
    """Key-value pairs of a JSON object, repeated keys included.  Raises FlintError otherwise."""
    try:
        pairs = json.loads(read_text(path), object_pairs_hook=_Pairs)
    except (ValueError, RecursionError) as error:  # ValueError: also numbers of too many digits
        raise FlintError(f"{path}: not JSON: {error}") from error
    if not isinstance(pairs, _Pairs):
        raise FlintError(f"{path}: expected a JSON object, not a {type(pairs).__name__}")
    return list(pairs)


class _Pairs(list[tuple[str, Any]]):
    """A JSON object as pairs, so that a repeated key is seen."""


def read_group_table(path: Path, ranks: int) -> GroupTable:
    """Read a comm-groups file `{"<id >= 1>": [rank, ...]}` for a world of `ranks` ranks.

    Unsound entries are collected, not raised: they are findings.  Raises FlintError if the file
    is no JSON object.
    """
    members: dict[int, NDArray[np.int64]] = {}
    problems: list[tuple[str, str]] = []
    for key, listed in read_json_object(path):
        group = group_id(key)
        problem = None
        if group is None:
            problem = "is not a decimal integer >= 1; consumers abort on it"
        elif group in members:
            problem = "appears twice; consumers keep one of the two lists"
        elif not isinstance(listed, list) or not all(type(rank) is int for rank in listed):
            problem = "is not mapped to a list of rank numbers"
        elif not listed:
            problem = "has no members; remove it"
        elif min(listed) < 0 or max(listed) >= ranks:
            problem = f"lists ranks outside 0..{ranks - 1}"
        elif len(set(listed)) != len(listed):
            problem = "lists a rank twice"
        if problem is None and group is not None:
            members[group] = np.array(listed, np.int64)
        else:
            problems.append((key, problem or ""))
    return GroupTable(members, tuple(problems))


def group_id(text: str) -> int | None:
    """The group number that `text` spells as consumers accept it: decimal digits, at least 1."""
    if not text.isascii() or not text.isdigit() or len(text) > 9 or text != str(int(text)):
        return None
    return int(text) or None


def read_npus_count(path: Path) -> tuple[int, ...]:
    """`npus_count` of a network YAML.  Raises FlintError if it is absent or no list of integers."""
    content = read_settings(path)
    counts = content.get("npus_count") if isinstance(content, dict) else None
    if (
        not isinstance(counts, list)
        or not counts
        or not all(type(count) is int and 1 <= count <= 1 << 31 for count in counts)
    ):
        raise FlintError(f"{path}: has no `npus_count: [n, ...]` of positive integers")
    if problem := too_large(counts):
        raise FlintError(f"{path}: {problem}")
    return tuple(counts)


def too_large(npus_count: Sequence[int]) -> str:
    """Which limit a network's extents exceed; empty if none."""
    if len(npus_count) > MAX_AXES:
        return f"npus_count has {len(npus_count):,} dims; the limit is {MAX_AXES}"
    if math.prod(npus_count) > MAX_RANKS:
        return f"npus_count has more than {MAX_RANKS:,} ranks"
    return ""


def read_settings(path: Path) -> object:
    """What a YAML or JSON file has.  Raises FlintError if it is neither, or too long."""
    text = read_text(path, MAX_NETWORK_BYTES)
    with suppress(ValueError, RecursionError):
        return json.loads(text)  # which YAML contains: our own files, a hundred times as fast
    try:
        content: object = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise FlintError(f"{path}: not YAML: {' '.join(str(error).split())}") from error
    return content
