"""Diagrams of groups: which ranks communicate, over which tier of the network.

The idea: one strip per kind of group.  It draws the network as nested boxes, ranks in the order in
which they fill it, and one group in colour with the tiers that it uses; equal parts are left out
and counted, so that 16,384 ranks take as much room as 16.  Ranks of a torus are drawn as the planes
of its last two dims.

    write_network(record(workload, "dgx-h100"), Path("groups.svg"))
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from textwrap import wrap
from typing import Final

import numpy as np
from markupsafe import Markup, escape

from flint.converters.pictures.charts import shortened
from flint.converters.pictures.network_boxes import Drawn, Look, draw_block
from flint.cost.hardware import System
from flint.cost.placement import hops, place
from flint.graph.communication import Communication
from flint.graph.graph import NodeKind
from flint.graph.partners import partners
from flint.host.pages import COLOURS
from flint.host.readable import human_seconds
from flint.host.writing import replacing
from flint.mesh.groups import Groups
from flint.mesh.permutation import Permutation
from flint.mesh.ragged import Ints
from flint.simulation.recording import Recording

#: The most strips; those with the most communications in the program text.
MAX_STRIPS: Final = 12
_MARGIN: Final = 12
#: The most steps of a ring of messages that are followed.
_HOPS: Final = 4096
_TEXT: Final = 250
#: Share of its width to which a page may shrink a picture, so that letters have 9 px.
_LEAST: Final = 0.75


@dataclass(slots=True)
class _Strip:
    """One kind of group.

    Attributes:
        name: the ranks of the groups.
        kinds: kinds of communications.
        count: number of communications in the program text.
        item: one of them.
    """

    name: str
    item: Communication
    kinds: dict[str, None] = field(default_factory=dict)
    count: int = 0


def write_network(recording: Recording, path: Path) -> None:
    """Write the diagram of all kinds of groups of a workload as an SVG file.

    Raises:
        FlintError: the file cannot be written.
    """
    with replacing(path) as partial:
        partial.write_text(network(recording, alone=True), encoding="utf-8")


def network(recording: Recording, alone: bool = False) -> Markup:
    """The diagram as an SVG element, empty without communications.

    Args:
        recording: the recording of the workload on the system.
        alone: as a separate file, with its style and a title.
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
    # A page may shrink it as long as its text can be read; beyond that it scrolls.
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


def _strip(strip: _Strip, recording: Recording, colour: str) -> Drawn:
    """One group of a kind: text on the left, the network on the right."""
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
        f'<text x="0" y="14" class="b" fill="{colour}">{escape(shortened(strip.name, 36))}</text>',
        *(
            f'<text x="0" y="{14 + 17 * (number + 1)}">{escape(line)}</text>'
            for number, line in enumerate([*_wrapped(", ".join(strip.kinds)), *lines])
        ),
    ]
    drawn = draw_block(len(system.network) - 1, 0, world, members, Look(system, world, colour))
    svg = f'{"".join(words)}<g transform="translate({_TEXT} 0)">{drawn.svg}</g>'
    height = max(drawn.height, 17.0 * len(words) + 4)
    return Drawn(svg, _TEXT + drawn.width, height, drawn.used)


def _wrapped(words: str) -> list[str]:
    return wrap(words, 38, break_long_words=False, break_on_hyphens=False)


def _levels(groups: Groups, rank: int, system: System) -> list[str]:
    """How a group meets, from the innermost tier."""
    placement = place(groups, system)
    lines = []
    for level in placement.profiles[int(placement.number[rank])]:
        lines += _wrapped(f"{level.parties:,} over {level.tier.name}")
        lines.append(
            f"  {level.bandwidth / 1e9:.4g} GB/s per rank, {human_seconds(level.tier.latency)}"
        )
    return lines


def _ways(permutation: Permutation, members: Ints, system: System) -> list[str]:
    """The paths of messages, by tier and number of links."""
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
