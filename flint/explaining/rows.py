"""An explanation as tables, the same on a terminal and on a page.

for title, columns, rows in tables(explanation, top=10): ...
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from flint.explaining.breakdown import Breakdown
from flint.explaining.explaining import DeviceBreakdown, Explanation
from flint.host.readable import counted, human_seconds, percentage


class Rows(NamedTuple):
    """A table.

    Attributes:
        title: what it lists.
        columns: headings, as for ``flint.cli.tables`` and ``flint.host.pages``.
        rows: cells.
        hidden: rows that are left out.
        note: a note to show below it ("" for none).
    """

    title: str
    columns: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    hidden: int = 0
    note: str = ""


def headline(item: Explanation) -> str:
    """What was explained, and how."""
    result = item.result
    ranks = counted(result.ranks, "rank")
    if result.kernels == "measured":
        how = f"replayed: communication {result.communication}, host {result.host}"
    else:
        how = f"simulated on {result.system}"
    return f"one step on {ranks} (mesh {item.mesh}), {how}: {human_seconds(result.step_seconds)}"


def tables(item: Explanation, top: int) -> Iterator[Rows]:
    """All tables; longer ones are cut after ``top`` rows."""
    step = item.step_seconds
    yield Rows(
        "critical path",
        ("what", ">time", ">of step"),
        [(p.sort, human_seconds(p.seconds), percentage(p.seconds, step)) for p in item.path],
        note=f"the critical path has {item.pieces:,} successive pieces",
    )
    yield _causes(item, top)
    if item.remedies:
        yield Rows(
            "what would help, each change alone",
            ("what", ">step", ">shorter by", ">of step", "how"),
            [
                (r.name, human_seconds(r.step_seconds), _signed(r.gain_seconds),
                 percentage(r.gain_seconds, step), r.how)
                for r in item.remedies[:top]
            ],
            max(0, len(item.remedies) - top),
        )  # fmt: skip
    if item.waits:
        yield Rows(
            "waiting for other ranks",
            ("first rank", ">ranks", "program", ">waited", ">of step", ">others waited for it"),
            [
                (str(w.rank), f"{w.ranks:,}", w.program, human_seconds(w.waited_seconds),
                 percentage(w.waited_seconds, step), human_seconds(w.awaited_seconds))
                for w in item.waits[:top]
            ],
            max(0, len(item.waits) - top),
            "a waiting rank did nothing else; the last column is a mean over all ranks",
        )  # fmt: skip
    for part in item.step:
        title = f"device time of the step, rank {part.rank}"
        yield from _breakdown(part, title, top, whole=part.breakdown.seconds >= step)
    for part in item.traces:
        title = f"device time of the whole trace, rank {part.rank}, as in HolisticTraceAnalysis"
        yield from _breakdown(part, title, top)


def _causes(item: Explanation, top: int) -> Rows:
    rows = []
    for cause in item.causes[:top]:
        first, *others = cause.sources or (None,)
        rows.append(
            (
                cause.name,
                human_seconds(cause.seconds),
                percentage(cause.share, 1),
                _signed(cause.gain_seconds),
                "" if first is None else f"{first.source}: {human_seconds(first.seconds)}",
            )
        )
        rows += [
            ("", "", "", "", f"{source.source}: {human_seconds(source.seconds)}")
            for source in others[:2]
            if source is not None
        ]
    return Rows(
        "causes",
        ("what", ">on the path", ">of step", ">gain without it", "where"),
        rows,
        max(0, len(item.causes) - top),
        "the gain is simulated: the same step with this cause taking no time",
    )


def _signed(seconds: float) -> str:
    return f"-{human_seconds(-seconds)}" if seconds < 0 else human_seconds(seconds)


def _breakdown(
    part: DeviceBreakdown, title: str, top: int, *, whole: bool = False
) -> Iterator[Rows]:
    found = part.breakdown
    yield Rows(
        title,
        ("what", ">time", ">share"),
        [
            (name, human_seconds(value), percentage(value, found.seconds))
            for name, value in _parts(found, whole)
        ],
        note=_overlap(found),
    )
    if found.idle:
        yield Rows(
            "idle time between kernels of a stream, by cause",
            ("stream", ">host", ">kernel launch", ">other"),
            [
                (str(s.stream), _signed(s.host_wait_seconds), _signed(s.kernel_wait_seconds),
                 _signed(s.other_seconds))
                for s in found.idle[:top]
            ],
            max(0, len(found.idle) - top),
        )  # fmt: skip
    yield Rows(
        "kernels",
        ("name", "kind", ">count", ">time", ">mean", "?>least", "?>most"),
        [
            (k.name[:80], k.kind, f"{k.count:,}", human_seconds(k.seconds),
             human_seconds(k.mean_seconds), human_seconds(k.least_seconds),
             human_seconds(k.most_seconds))
            for k in found.kernels[:top]
        ],
        max(0, len(found.kernels) - top),
    )  # fmt: skip


def _parts(found: Breakdown, whole: bool) -> list[tuple[str, float]]:
    own = [("  kernels that exchange data on their own", found.exchange_seconds)]
    return [
        ("the whole step" if whole else "from the first kernel to the last", found.seconds),
        ("compute", found.compute_seconds),
        *(own if found.exchange_seconds else ()),
        ("no compute", found.non_compute_seconds),
        ("  exposed communication", found.exposed_communication_seconds),
        ("  copies and fills alone", found.memory_seconds),
        ("idle", found.idle_seconds),
        ("  waiting for the host", found.host_wait_seconds),
        ("  waiting for the launch", found.kernel_wait_seconds),
        ("  other waits", found.other_wait_seconds),
    ]


def _overlap(found: Breakdown) -> str:
    if math.isnan(found.overlap):
        return "no communication"
    communication = human_seconds(found.communication_seconds)
    return f"{percentage(found.overlap, 1)} of {communication} of communication overlaps compute"
