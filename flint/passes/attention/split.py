"""The attention kernels in a block: which kernel each node on scores belongs to."""

from __future__ import annotations

from itertools import pairwise

from flint.graph.graph import NodeKind
from flint.passes.attention.scores import LIGHT, ScoreFinder, Scores


def pieces_in_kernels(finder: ScoreFinder) -> list[Scores]:
    """All attention of a block that can become kernels, with its members split among them."""
    pieces = finder.find()
    for piece in pieces:
        _split(finder, piece)
    return [piece for piece in pieces if finder.begins(piece)]


def _split(finder: ScoreFinder, piece: Scores) -> None:
    """Assign every member to a kernel, and include nodes between members.

    A path that leaves a piece through anything but light ops and comes back leads to the next
    kernel, so that no kernel waits for itself.
    """
    low, high = min(piece.members), max(piece.members)
    order_ptr, order_node = finder.graph.order_ptr, finder.graph.order_node
    level: dict[int, int] = {}
    inside: dict[int, bool] = {}
    for node in range(low, high + 1):
        before = {finder.producer[value] for value in finder.operands(node)}
        if order_ptr[node] != order_ptr[node + 1]:
            before.update(order_node[order_ptr[node] : order_ptr[node + 1]].tolist())
        above = [other for other in before if other in level]
        member = node in piece.members
        if not above and not member:
            continue
        at = max((level[other] for other in above), default=0)
        if member:
            piece.members[node] = at
            inside[node] = True
        elif finder.kind[node] == NodeKind.COMPUTE and finder.role[node] in LIGHT:
            inside[node] = any(inside[other] and level[other] == at for other in above)
        else:
            at, inside[node] = at + 1, False
        level[node] = at
    _join_statistics(finder, piece, level, inside)
    needed = set(piece.members)
    for node in range(high, low - 1, -1):
        if node not in needed:
            continue
        for value in finder.operands(node):
            other = finder.producer[value]
            if other in needed or not inside.get(other) or level[other] != level[node]:
                continue
            needed.add(other)
            piece.members[other] = level[other]


def _join_statistics(
    finder: ScoreFinder, piece: Scores, level: dict[int, int], inside: dict[int, bool]
) -> None:
    """Make kernels that only reduce scores again part of the next kernel, if nothing is in between.

    A backward pass after a barrier sums rows of scores that were kept before it; no separate kernel
    runs for these sums.
    """
    kernels = sorted(set(piece.members.values()))
    for this, following in pairwise(kernels[1:]):
        mine = {node for node, kernel in piece.members.items() if kernel == this}
        if mine.intersection(piece.users) or _waits(finder, piece, mine, following, level):
            continue
        for node, at in level.items():
            if at == this and inside[node]:
                level[node] = following
        piece.members.update(dict.fromkeys(mine, following))


def _waits(
    finder: ScoreFinder, piece: Scores, first: set[int], kernel: int, level: dict[int, int]
) -> bool:
    """Whether a kernel needs values that other nodes compute from its first nodes."""
    of_first, of_others = set(first), set[int]()
    for node in sorted(level):
        before = {finder.producer[value] for value in finder.operands(node)}
        if piece.members.get(node) == kernel and before & of_others:
            return True
        if node in piece.members or not before & (of_first | of_others):
            continue
        light = finder.kind[node] == NodeKind.COMPUTE and finder.role[node] in LIGHT
        (of_first if light and not before & of_others else of_others).add(node)
    return False
