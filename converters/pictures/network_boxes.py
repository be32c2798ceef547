"""The boxes of a diagram of groups: ranks, the blocks of the tiers around them, planes of a torus.

The idea: a block is drawn from the inside out, each piece at its own origin with its size, so that
the enclosing one can place it.  Parts without room are replaced by a number.

    draw_block(1, 0, 64, np.array([0, 8, 16]), Look(system, 64, "#0072b2")).svg
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np
from markupsafe import escape

from flint.cost.hardware import System, Tier
from flint.cost.placement import torus
from flint.mesh.ragged import Ints

#: Sizes in the drawing: a rank, a rank of a torus, the gap for omitted parts.
_TALL, _DOT, _GAP = 20, 13, 46
#: The most ranks along a side of a torus, and planes, that are drawn.
_SIDE, _PLANES = 16, 4
#: Style of parts that are neither a rank of the group nor a tier that it uses: lines and small
#: text.
_GREY: Final = "#c8c8c8"
_SMALL: Final = "fill:#777;font-size:11px"


@dataclass(frozen=True, slots=True)
class Drawn:
    """A piece of the drawing: its SVG at the origin, its size, and where lines connect."""

    svg: str
    width: float
    height: float
    used: bool


@dataclass(frozen=True, slots=True)
class Look:
    """Properties that are constant within a strip."""

    system: System
    world: int
    colour: str

    @property
    def cell(self) -> int:
        """Width of a rank with its number."""
        return 12 + 7 * len(str(self.world - 1))

    @property
    def cells(self) -> int:
        """The most ranks that are drawn next to each other."""
        return 8 if self.cell < 40 and len(self.system.network) < 3 else 4

    @property
    def blocks(self) -> int:
        """The most blocks of a tier that are drawn next to each other."""
        return 3 if len(self.system.network) < 3 else 2


def draw_block(tier: int, start: int, end: int, members: Ints, look: Look) -> Drawn:
    """The ranks ``start .. end`` of one block of a tier, with the tier as a bar above them."""
    described = look.system.network[tier]
    here = members[(members >= start) & (members < end)]
    if described.topology == "Ring" and tier == 0:
        return _boxed(_planes(described, start, end, here, look), described, look, len(here) > 1)
    row: list[Drawn | int] = []
    if tier == 0:
        ranks = list(range(start, end))
        chosen = _chosen(ranks, [int(m) for m in here], look.cells)
        row = [
            left_out if rank is None else _cell(rank, rank in here, look)
            for rank, left_out in _spaced(chosen, ranks)
        ]
    else:
        size = look.system.network[tier - 1].size
        blocks = list(range(start // size, -(-end // size)))
        if len(blocks) == 1:
            return draw_block(tier - 1, start, end, members, look)
        chosen = _chosen(blocks, sorted({int(m) // size for m in here}), look.blocks)
        for number, left_out in _spaced(chosen, blocks):
            if number is None:
                row.append(left_out)
                continue
            bounds = max(start, number * size), min(end, (number + 1) * size)
            row.append(draw_block(tier - 1, *bounds, members, look))
    meets = _meets(here, tier, look)
    return _boxed(_row(row, look if meets else None), described, look, meets)


def _meets(here: Ints, tier: int, look: Look) -> bool:
    """Whether ranks of a block meet on its tier."""
    inner = look.system.network[tier - 1].size if tier else 1
    return len(np.unique(here // inner)) > 1


def _chosen(all_of: list[int], wanted: list[int], limit: int) -> list[int]:
    """The items that are drawn: as many as fit, including the last."""
    if len(all_of) <= limit:
        return all_of
    kept = wanted if len(wanted) <= limit else [*wanted[: limit - 1], wanted[-1]]
    kept = [*kept, *[other for other in all_of[: 2 * limit] if other not in kept]][:limit]
    return sorted(kept)


def _spaced(chosen: list[int], all_of: list[int]) -> list[tuple[int | None, int]]:
    """Drawn items as (item, 0); omitted ones between, before and after as (None, count)."""
    found: list[tuple[int | None, int]] = []
    for before, item in pairwise([all_of[0] - 1, *chosen]):
        if item != before + 1:
            found.append((None, item - before - 1))
        found.append((item, 0))
    if chosen[-1] != all_of[-1]:
        found.append((None, all_of[-1] - chosen[-1]))
    return found


def _cell(rank: int, member: bool, look: Look) -> Drawn:
    """One rank."""
    fill, ink = (look.colour, "#fff") if member else ("#ededed", "#777")
    svg = (
        f'<rect y="10" width="{look.cell}" height="{_TALL}" rx="2" fill="{fill}"/>'
        f'<text x="{(look.cell) / 2}" y="{_TALL + 4}" class="r" text-anchor="middle" '
        f'style="fill:{ink};font-size:11px">{rank}</text>'
    )
    return Drawn(svg, look.cell, 10 + _TALL, member)


def _row(row: Sequence[Drawn | int], look: Look | None) -> Drawn:
    """Pieces, and numbers of omitted ones, next to each other, with lines up to the bar above, in
    colour if a look is given.
    """
    parts, x, height, used = [], 0.0, 0.0, False
    for piece in row:
        if isinstance(piece, int):
            parts.append(
                f'<text x="{x + _GAP / 2}" y="{10 + _TALL / 2 + 4}" text-anchor="middle" '
                f'style="{_SMALL}">\u2026 {piece:,}</text>'
            )
            x += _GAP + 4
            continue
        middle = x + piece.width / 2
        colour, width = (look.colour, 2) if look and piece.used else (_GREY, 1)
        parts.append(
            f'<line x1="{middle:.1f}" y1="0" x2="{middle:.1f}" y2="10" stroke="{colour}" '
            f'stroke-width="{width}"/><g transform="translate({x:.1f} 0)">{piece.svg}</g>'
        )
        x += piece.width + 4
        height = max(height, piece.height)
        used = used or piece.used
    return Drawn("".join(parts), max(x - 4, 1.0), height, used)


def _boxed(inner: Drawn, tier: Tier, look: Look, meets: bool) -> Drawn:
    """A block in its box, with the tier's bar on top, in colour if the group meets on it."""
    pad = 8
    wide = max(inner.width + 2 * pad, 6.4 * len(tier.name) + 2 * pad)
    colour, thick = (look.colour, 4) if meets else (_GREY, 2)
    svg = (
        f'<g transform="translate(0 10)"><rect width="{wide:.1f}" '
        f'height="{inner.height + 34:.1f}" rx="4" fill="none" stroke="#ccc"/>'
        f'<text x="{pad}" y="14" class="r" style="font-size:11px">{escape(tier.name)}</text>'
        f'<line x1="{pad}" y1="22" x2="{wide - pad:.1f}" y2="22" stroke="{colour}" '
        f'stroke-width="{thick}"/><g transform="translate({pad} 22)">{inner.svg}</g></g>'
    )
    return Drawn(svg, wide, inner.height + 46, inner.used)


def _planes(tier: Tier, start: int, end: int, here: Ints, look: Look) -> Drawn:
    """A torus as planes of its last two dims, those with members first."""
    shape = torus(tier, min(end - start, look.world))
    *outer, high, wide = (1, 1, *shape)
    size = high * wide
    count = int(np.prod(outer))
    limit = _PLANES if end - start == look.world else _PLANES // 2
    planes = _chosen(list(range(count)), sorted({int(m - start) // size for m in here}), limit)
    own = set((here - start).tolist())
    parts, x = [], 0.0
    for number, plane in enumerate(planes):
        if number and plane != planes[number - 1] + 1:
            parts.append(
                f'<text x="{x + 14}" y="40" text-anchor="middle" style="{_SMALL}">'
                f"\u2026 {plane - planes[number - 1] - 1:,}</text>"
            )
            x += _GAP
        rows, columns = min(high, _SIDE), min(wide, _SIDE)
        for row in range(rows):
            for column in range(columns):
                member = plane * size + row * wide + column in own
                parts.append(
                    f'<rect x="{x + column * _DOT:.0f}" y="{24 + row * _DOT}" width="{_DOT - 2}" '
                    f'height="{_DOT - 2}" fill="{look.colour if member else "#e4e4e4"}"/>'
                )
        cut = " (corner)" if rows < high or columns < wide else ""
        label = f"{high} x {wide}{cut}"
        if count > 1:
            label = f"plane {plane:,}: {label}"
        parts.append(
            f'<text x="{x:.0f}" y="17" class="r" style="font-size:11px">{escape(label)}</text>'
        )
        x += max(columns * _DOT, 6.2 * len(label)) + 14
    return Drawn("".join(parts), x - 14, 28 + min(high, _SIDE) * _DOT, bool(own))
