"""Diagrams of groups: which ranks talk to whom, over which tier of the network.

The idea: one strip per kind of group.  It draws the network as boxes within boxes, ranks in the
order in which they fill it, and one group in colour with the tiers that it uses; what is alike is
left out and counted, so that 16,384 ranks take as much room as 16.  In a torus ranks are drawn as
the planes of its last two dims.

    write_network(record(workload, "dgx-h100"), Path("groups.svg"))
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Final

import numpy as np
from markupsafe import Markup, escape
from numpy.typing import NDArray

from flint.cost.placement import hops, place, torus
from flint.cost.systems import System, Tier
from flint.graph.communication import Communication
from flint.graph.graph import NodeKind
from flint.graph.partners import partners
from flint.host.pages import COLOURS
from flint.host.readable import human_seconds
from flint.host.writing import replacing
from flint.mesh.groups import Groups
from flint.mesh.permutation import Permutation
from flint.simulation.recording import Recording

Ints = NDArray[np.int64]

#: Strips at most; those with the most communications in the program text.
MAX_STRIPS: Final = 12
#: Sizes in the drawing: a rank, a rank of a torus, the gap of what is left out, the page's margin.
_TALL, _DOT, _GAP, _MARGIN = 20, 13, 46, 12
#: Ranks along a side of a torus, and planes of all that are drawn.
_SIDE, _PLANES = 16, 4
#: Steps of a ring of messages that are followed.
_HOPS: Final = 4096
_TEXT: Final = 250
#: Part of its width to which a page may shrink a picture: letters of 9 px.
_LEAST: Final = 0.75


@dataclass(slots=True)
class _Strip:
    """One kind of group.

    Attributes:
        name: among whom.
        kinds: what they do.
        count: communications in the program text.
        item: one of them.
    """

    name: str
    item: Communication
    kinds: dict[str, None] = field(default_factory=dict)
    count: int = 0


@dataclass(frozen=True, slots=True)
class _Drawn:
    """A piece of the drawing: its SVG at the origin, its size, and where lines come in."""

    svg: str
    width: float
    height: float
    used: bool


def write_network(recording: Recording, path: Path) -> None:
    """Write the diagram of all kinds of groups of a workload as an SVG file.

    Raises:
        FlintError: the file cannot be written.
    """
    with replacing(path) as partial:
        partial.write_text(network(recording, alone=True), encoding="utf-8")


def network(recording: Recording, alone: bool = False) -> Markup:
    """The diagram as an SVG element, empty where nobody talks.

    Args:
        recording: of the workload, on the system.
        alone: as a file of its own, with its style and a title.
    """
    strips = _strips(recording)
    if not strips and not alone:
        return Markup()
    parts, top = [], 0.0
    if alone:
        title = f"Groups of {recording.mesh} on {recording.system.name}"
        parts.append(f'<text x="0" y="18" class="t">{escape(title)}</text>')
        top = 36.0
        if not strips:
            parts.append(f'<text x="0" y="{top + 12}">No rank communicates.</text>')
            top += 24
    wide = 0.0
    for number, strip in enumerate(strips[:MAX_STRIPS]):
        drawn = _strip(strip, recording, COLOURS[number % len(COLOURS)])
        parts.append(f'<g transform="translate(0 {top:.0f})">{drawn.svg}</g>')
        top += drawn.height + 22
        wide = max(wide, drawn.width)
    if rest := strips[MAX_STRIPS:]:
        parts.append(f'<text x="0" y="{top + 12:.0f}">{len(rest):,} more kinds of groups</text>')
        top += 24
    wide = max(wide, 600.0)
    # A page may shrink it to where its texts can still be read; the rest is scrolled to.
    head = (
        f'viewBox="0 0 {wide:.0f} {top:.0f}" width="{wide:.0f}" '
        f'style="min-width:{_LEAST * wide:.0f}px"'
    )
    if alone:
        wide, top = wide + 2 * _MARGIN, top + _MARGIN
        head = f'viewBox="-{_MARGIN} -{_MARGIN} {wide:.0f} {top:.0f}"'
        head = (
            f'xmlns="http://www.w3.org/2000/svg" {head} width="{wide:.0f}" height="{top:.0f}" '
            'font-family="sans-serif" font-size="12"'
        )
        parts.insert(
            0,
            "<style>text{font:12px sans-serif;fill:#333}.t{font-size:16px;font-weight:600}"
            ".b{font-weight:600}.r{font-size:11px}</style>"
            f'<rect x="-{_MARGIN}" y="-{_MARGIN}" width="{wide:.0f}" height="{top:.0f}" '
            'fill="#fff"/>',
        )
    return Markup(f"<svg {head}>{''.join(parts)}</svg>")


def _strips(recording: Recording) -> list[_Strip]:
    """Kinds of groups, the most frequent first."""
    found: dict[str, _Strip] = {}
    for record in recording.ranks:
        table = record.graph.tables.communications
        for block, _ in record.graph.walk():
            talks = block.kind == NodeKind.COMMUNICATION
            indices, counts = np.unique(block.detail[talks], return_counts=True)
            for index, count in zip(indices.tolist(), counts.tolist(), strict=True):
                item = table[index]
                if item.groups is not None and item.groups.size == 1:
                    continue
                name = partners(item, recording.mesh)
                strip = found.setdefault(name, _Strip(name, item))
                strip.kinds[item.kind.replace("_", "-")] = None
                strip.count += count
    return sorted(found.values(), key=lambda strip: -strip.count)


def _strip(strip: _Strip, recording: Recording, colour: str) -> _Drawn:
    """One group of a kind: words to the left, the network to the right."""
    system, world = recording.system, recording.mesh.size
    permutation = strip.item.permutation
    if permutation is not None:
        members = _chain(permutation)
        lines = _ways(permutation, members, system)
    else:
        assert strip.item.groups is not None
        groups = strip.item.groups
        first = int(np.flatnonzero(groups.group_size(np.arange(world)) > 1)[0])
        members = np.sort(groups.members(first))
        count = f"{groups.count:,} group{'s' if groups.count != 1 else ''}"
        lines = [f"{count} of {groups.size:,} ranks", *_levels(groups, first, system)]
    words = [
        f'<text x="0" y="14" class="b" fill="{colour}">{escape(_short(strip.name))}</text>',
        *(
            f'<text x="0" y="{14 + 17 * (number + 1)}">{escape(line)}</text>'
            for number, line in enumerate([*_wrapped(", ".join(strip.kinds)), *lines])
        ),
    ]
    drawn = _block(len(system.network) - 1, 0, world, members, _Look(system, world, colour))
    svg = f'{"".join(words)}<g transform="translate({_TEXT} 0)">{drawn.svg}</g>'
    height = max(drawn.height, 17.0 * len(words) + 4)
    return _Drawn(svg, _TEXT + drawn.width, height, drawn.used)


def _short(name: str, size: int = 36) -> str:
    return name if len(name) <= size else name[: size - 1] + "\u2026"


def _wrapped(words: str, size: int = 38) -> list[str]:
    """Text in lines of at most ``size`` characters where its words allow."""
    lines = [""]
    for word in words.split(" "):
        if lines[-1] and len(lines[-1]) + len(word) >= size:
            lines.append(word)
        else:
            lines[-1] = f"{lines[-1]} {word}".strip()
    return lines


def _levels(groups: Groups, rank: int, system: System) -> list[str]:
    """How a group meets, from the innermost tier."""
    placement = place(groups, system)
    lines = []
    for level in placement.profiles[int(placement.number[rank])]:
        lines += _wrapped(f"{level.parties:,} over {level.tier.name}")
        lines.append(
            f"  {level.bandwidth / 1e9:.4g} GB/s a rank, {human_seconds(level.tier.latency)}"
        )
    return lines


def _ways(permutation: Permutation, members: Ints, system: System) -> list[str]:
    """How messages go, by tier and number of links."""
    number, ways = hops(permutation, system)
    lines = [f"{permutation.pairs:,} messages, {len(members):,} ranks in a row"]
    for way, (tier, links) in enumerate(ways):
        count = int((number == way).sum())
        far = f", {links} links" if links > 1 else ""
        lines += _wrapped(f"{count:,} over {tier.name}{far}")
    return lines


def _chain(permutation: Permutation) -> Ints:
    """The ranks that a message would pass: a ring, or a chain from its start."""
    target, source = permutation.target, permutation.source
    senders = np.flatnonzero((target >= 0) & (target != np.arange(len(target))))
    if not len(senders):
        return np.zeros(0, np.int64)
    starts = senders[source[senders] < 0]
    rank = int(starts[0] if len(starts) else senders[0])
    found = [rank]
    while len(found) < _HOPS:
        rank = int(target[rank])
        if rank < 0 or rank == found[0]:
            break
        found.append(rank)
    return np.sort(np.array(found, np.int64))


@dataclass(frozen=True, slots=True)
class _Look:
    """What is the same all over a strip."""

    system: System
    world: int
    colour: str

    @property
    def cell(self) -> int:
        """Width of a rank with its number."""
        return 12 + 7 * len(str(self.world - 1))

    @property
    def cells(self) -> int:
        """Ranks that are drawn side by side."""
        return 8 if self.cell < 40 and len(self.system.network) < 3 else 4

    @property
    def blocks(self) -> int:
        """Blocks of a tier that are drawn side by side."""
        return 3 if len(self.system.network) < 3 else 2


def _block(tier: int, start: int, end: int, members: Ints, look: _Look) -> _Drawn:
    """The ranks ``start .. end`` of one block of a tier, with the tier as a bar above them."""
    described = look.system.network[tier]
    here = members[(members >= start) & (members < end)]
    if described.topology == "Ring" and tier == 0:
        return _boxed(_planes(described, start, end, here, look), described, look, len(here) > 1)
    row: list[_Drawn | int] = []
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
            return _block(tier - 1, start, end, members, look)
        chosen = _chosen(blocks, sorted({int(m) // size for m in here}), look.blocks)
        for block, left_out in _spaced(chosen, blocks):
            if block is None:
                row.append(left_out)
                continue
            bounds = max(start, block * size), min(end, (block + 1) * size)
            row.append(_block(tier - 1, *bounds, members, look))
    meets = _meets(here, tier, look)
    return _boxed(_row(row, look if meets else None), described, look, meets)


def _meets(here: Ints, tier: int, look: _Look) -> bool:
    """Whether ranks of a block come together on its tier."""
    inner = look.system.network[tier - 1].size if tier else 1
    return len(np.unique(here // inner)) > 1


def _chosen(all_of: list[int], wanted: list[int], limit: int) -> list[int]:
    """What is drawn: as much of what is wanted as there is room for, the last of it too."""
    if len(all_of) <= limit:
        return all_of
    kept = wanted if len(wanted) <= limit else [*wanted[: limit - 1], wanted[-1]]
    kept = [*kept, *[other for other in all_of[: 2 * limit] if other not in kept]][:limit]
    return sorted(kept)


def _spaced(chosen: list[int], all_of: list[int]) -> list[tuple[int | None, int]]:
    """What is drawn as (it, 0); between, before and behind it (None, how much is left out)."""
    found: list[tuple[int | None, int]] = []
    for before, item in pairwise([all_of[0] - 1, *chosen]):
        if item != before + 1:
            found.append((None, item - before - 1))
        found.append((item, 0))
    if chosen[-1] != all_of[-1]:
        found.append((None, all_of[-1] - chosen[-1]))
    return found


def _cell(rank: int, member: bool, look: _Look) -> _Drawn:
    """One rank."""
    fill, ink = (look.colour, "#fff") if member else ("#ededed", "#777")
    svg = (
        f'<rect y="10" width="{look.cell}" height="{_TALL}" rx="2" fill="{fill}"/>'
        f'<text x="{(look.cell) / 2}" y="{_TALL + 4}" class="r" text-anchor="middle" '
        f'style="fill:{ink};font-size:11px">{rank}</text>'
    )
    return _Drawn(svg, look.cell, 10 + _TALL, member)


def _row(row: Sequence[_Drawn | int], look: _Look | None) -> _Drawn:
    """Pieces, and numbers of what is left out, side by side, with lines up to the bar above, in
    colour where a look is given."""
    parts, x, height, used = [], 0.0, 0.0, False
    for piece in row:
        if isinstance(piece, int):
            parts.append(
                f'<text x="{x + _GAP / 2}" y="{10 + _TALL / 2 + 4}" text-anchor="middle" '
                f'style="fill:#777;font-size:11px">\u2026 {piece:,}</text>'
            )
            x += _GAP + 4
            continue
        middle = x + piece.width / 2
        colour, width = (look.colour, 2) if look and piece.used else ("#c8c8c8", 1)
        parts.append(
            f'<line x1="{middle:.1f}" y1="0" x2="{middle:.1f}" y2="10" stroke="{colour}" '
            f'stroke-width="{width}"/><g transform="translate({x:.1f} 0)">{piece.svg}</g>'
        )
        x += piece.width + 4
        height = max(height, piece.height)
        used = used or piece.used
    return _Drawn("".join(parts), max(x - 4, 1.0), height, used)


def _boxed(inner: _Drawn, tier: Tier, look: _Look, meets: bool) -> _Drawn:
    """A block in its box, the tier's bar on top in colour where the group meets on it."""
    pad = 8
    wide = max(inner.width + 2 * pad, 6.4 * len(tier.name) + 2 * pad)
    colour, thick = (look.colour, 4) if meets else ("#c8c8c8", 2)
    svg = (
        f'<g transform="translate(0 10)"><rect width="{wide:.1f}" '
        f'height="{inner.height + 34:.1f}" rx="4" fill="none" stroke="#ccc"/>'
        f'<text x="{pad}" y="14" class="r" style="font-size:11px">{escape(tier.name)}</text>'
        f'<line x1="{pad}" y1="22" x2="{wide - pad:.1f}" y2="22" stroke="{colour}" '
        f'stroke-width="{thick}"/><g transform="translate({pad} 22)">{inner.svg}</g></g>'
    )
    return _Drawn(svg, wide, inner.height + 46, inner.used)


def _planes(tier: Tier, start: int, end: int, here: Ints, look: _Look) -> _Drawn:
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
                f'<text x="{x + 14}" y="40" text-anchor="middle" style="fill:#777;font-size:11px">'
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
    return _Drawn("".join(parts), x - 14, 28 + min(high, _SIDE) * _DOT, bool(own))
