"""Places of all ranks in process groups, though one rank knows only its own.

The idea: a program that creates several groups at one line divides the ranks among them, and every
rank creates all of them: their lists give the place of each rank.  For a group that was not created
from lists, other ranks are in its translates over the mesh.  Groups with different forms around
their ranks, or of different sizes, distinguish ranks.

    for ranks in ([0, 1, 2], [3, 4]): dist.new_group(ranks)
    membership(group).place                  # [0, 1, 2, 0, 1]
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch.distributed as dist
from numpy.typing import NDArray

from flint.errors import FlintError
from flint.frontends.torch.context import capture
from flint.frontends.torch.ranks.replica_groups import full_groups
from flint.frontends.torch.shims.over_ranks import world
from flint.frontends.torch.shims.own_values import OwnWhole
from flint.frontends.torch.user_lines import at_user_line

Ranks = NDArray[np.int64]


def note_group(ranks: Iterable[int]) -> None:
    """A program creates a group of these ranks, with or without this rank."""
    listed = list(ranks)
    if not any(
        isinstance(rank, OwnWhole) for rank in listed
    ):  # otherwise of other ranks on another rank
        capture().groups_made.setdefault(at_user_line(), {})[tuple(map(int, listed))] = None


def note_mesh(ranks: tuple[int, ...]) -> None:
    """A program makes a mesh of these ranks."""
    if len(ranks) < world():
        inside = np.zeros(world(), bool)
        inside[list(ranks)] = True
        capture().evidence.add(f"ranks of a mesh{at_user_line()}", inside)


def note_families() -> None:
    """The evidence about ranks from groups that were created, or asked about, at one line."""
    evidence = capture().evidence
    for place, family in capture().groups_made.items():
        evidence.ask_value(f"{place} (groups)", _told_apart(list(family)))
    for place, family in capture().groups_asked.items():
        evidence.ask_value(f"{place} (members)", _told_apart(list(family)))
        evidence.ask_value(f"{place} (members of each)", _by_group(list(family)), close=True)


@dataclass(frozen=True, slots=True)
class Membership:
    """The places of ranks in the groups of one kind.

    Attributes:
        members: the members of all groups, one group after the other.
        begin: where each rank's group begins in them, [world]; -1 if it is in none.
        place: of each rank in its group, [world]; -1.
    """

    members: Ranks
    begin: Ranks
    place: Ranks

    def member(self, at: int) -> Ranks:
        """The member at a place of every rank's group, [world]; -1 where it is in none."""
        found = self.members[np.minimum(self.begin + at, len(self.members) - 1)]
        return np.where(self.begin < 0, -1, found)

    def place_of(self, ranks: Ranks) -> Ranks:
        """The place of one rank in every rank's group, [world]; -1 where it is not in it."""
        inside = (self.begin >= 0) & (self.begin[ranks] == self.begin)
        return np.where(inside, self.place[ranks], -1)


def membership(group: Any) -> Membership | None:
    """The places of ranks in the groups of this group's kind; None if not known."""
    known = capture().groups_known
    name = str(group.group_name)
    if name not in known:
        known[name] = _membership(tuple(dist.get_process_group_ranks(group)))
    found: Membership | None = known[name]
    return found


def _membership(ranks: tuple[int, ...]) -> Membership | None:
    for family in capture().groups_made.values():
        if ranks in family:
            own = set(ranks)
            lists = [item for item in family if item == ranks or not own & set(item)]
            if len({rank for item in lists for rank in item}) == sum(map(len, lists)):
                return _of_lists(lists)
    try:
        table = full_groups(ranks, capture().shape)
    except FlintError:
        return None
    return _of_lists([row for row in table if row[-1] >= 0])


def _of_lists(lists: Sequence[Any]) -> Membership:
    sizes = np.array([len(item) for item in lists])
    members = np.concatenate([np.asarray(item, np.int64) for item in lists])
    begin, place = np.full((2, world()), -1, np.int64)
    begin[members] = np.repeat(np.cumsum(sizes) - sizes, sizes)
    place[members] = np.arange(len(members)) - begin[members]
    return Membership(members, begin, place)


def _by_group(lists: Sequence[tuple[int, ...]]) -> Ranks:
    """A number for every rank, equal for ranks that are in the same groups, [world]."""
    kinds = np.zeros(world(), np.int64)
    for ranks in lists:
        inside = np.zeros(world(), np.int64)
        inside[list(ranks)] = 1
        kinds = np.unique(kinds * 2 + inside, return_inverse=True)[1].reshape(-1)
    return kinds


def _told_apart(lists: Sequence[tuple[int, ...]]) -> Ranks:
    """A number for every rank, equal for ranks with the same form of groups, [world]."""
    kinds = np.zeros(world(), np.int64)
    tiles: dict[tuple[int, ...], tuple[int, set[tuple[int, ...]]]] = {}
    for number, ranks in enumerate(lists):
        steps = tuple(np.diff(ranks).tolist())
        if steps not in tiles:
            table = full_groups(ranks, capture().shape)
            tiles[steps] = len(tiles), set(map(tuple, table.tolist()))
        form, rows = tiles[steps]
        members = list(ranks)
        kinds[members] = (
            kinds[members] * 1_000_003 + 1 + (form if ranks in rows else len(lists) + number)
        )
    return kinds
