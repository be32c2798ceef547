"""Exchanges in which each rank sends all that it has to one member, and takes all from one.

The idea: ``permute_tensor`` and rings of context parallelism are all-to-alls whose splits are 0 but
for one member.  NCCL's process group sends and receives nothing for a split of 0, so that they are
permutations: where every rank sends as many places on in its group, one shift of the whole group.

    route((0, 0, 8), (8, 0, 0), here=1)          # Route(target=2, source=0)
    route((0, 0, 8), (8, 0, 0), here=1).shift(1, 3)                 # 1: everybody to the next one
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from flint.frontends.torch.recording import Group, Op, View


@dataclass(frozen=True, slots=True)
class Route:
    """To which position of the group all goes, and from which all comes."""

    target: int
    source: int

    def shift(self, here: int, size: int) -> int | None:
        """How many places on in the group it goes, if it comes from as many before; else None."""
        step = (self.target - here) % size
        return step if (here - self.source) % size == step else None


def route(sent: Sequence[int], received: Sequence[int]) -> Route | None:
    """The route of an exchange.

    Args:
        sent, received: rows to and from each member of the group.

    Returns:
        None where rows go to several members or come from several, or more go than come.
    """
    targets = [at for at, rows in enumerate(sent) if rows]
    sources = [at for at, rows in enumerate(received) if rows]
    if len(targets) != 1 or len(sources) != 1 or sent[targets[0]] != received[sources[0]]:
        return None
    return Route(targets[0], sources[0])


def splits(op: Op, size: int) -> tuple[list[int], list[int]]:
    """Rows of dim 0 that an all-to-all of one tensor receives from and sends to each member.

    Args:
        op: ``c10d.alltoall_base_`` or a functional ``all_to_all_single``.
        size: of its group.
    """
    if op.name.startswith("c10d."):
        out, source = op.args[0], op.args[1]
        given = op.args[3:5]
    else:
        out, source = op.results[0], op.args[0]
        given = op.args[1:3]
    out, source = (item if isinstance(item, View) else item[0] for item in (out, source))
    received, sent = (
        list(rows) if rows else [view.shape[0] // size if view.shape else 0] * size
        for view, rows in zip((out, source), given, strict=True)
    )
    return received, sent


def route_of(op: Op, group: Group) -> Route | None:
    """The route of an op; None of one that has none.  A group of one rank has none."""
    base = op.name.split(".")[1].strip("_")
    if base not in ("alltoall_base", "all_to_all_single") or len(group.ranks) < 2:
        return None
    received, sent = splits(op, len(group.ranks))
    return route(sent, received)
