"""A report as one HTML page without scripts and without anything to load.

Path("report.html").write_text(page(report))
"""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from flint.host.pages import heading, items, paragraph, table
from flint.host.pages import page as document
from flint.validation.report.report import WARNED, Report, ordered

#: The most traces and steps that are named.
_SHOWN = 4

_RATIO = (
    "ratio: measured time of matched ops{without}, divided by the modelled time of the same "
    "ops{but}"
)
#: What a ratio leaves out, by whether the waiting time of collectives is known: of all, some or
#: none (None: a step without collectives).
_WAITING = {
    None: ("", ""),
    "all": (", without waiting for other ranks", ""),
    "some": (
        ", without waiting for other ranks",
        "; the measured time of messages, of collectives with only one traced rank, and of "
        "those with an uncertain partner includes waiting",
    ),
    "none": ("", "; the measured time of collectives includes their waiting for other ranks"),
}

#: As in tables: ``>`` precedes numbers, ``?`` columns that a narrow terminal leaves out.
CLASS_COLUMNS = (
    "class", ">captured", ">executed", ">matched", ">by name", ">explained", "?>in order",
    "?>captured bytes", "?>executed bytes",
)  # fmt: skip
_TIME_COLUMNS = ("class", ">measured", ">of matched ops", ">waiting")
_MODEL_COLUMNS = (">modelled", ">ratio")


def class_rows(report: Report) -> list[list[str]]:
    """Cells of the table of classes; "-" if not recorded or not compared."""
    rows = []
    for kind in ordered(report.classes):
        count = report.classes[kind]
        compared = report.comparable or kind.must_match
        rows.append(
            [
                str(kind),
                f"{count.captured:,}",
                f"{count.executed:,}",
                f"{count.matched:,}" if compared else "-",
                f"{count.by_name:,}" if compared else "-",
                f"{count.explained_captured:,}" if compared else "-",
                f"{count.in_order:,}" if compared else "-",
                f"{count.captured_bytes:,}" if kind.collective else "-",
                f"{count.executed_bytes:,}" if kind.collective else "-",
            ]
        )
    return rows


def ratio_note(report: Report) -> str:
    """The explanation of the ratio, below the table of times."""
    times = report.times
    known = None
    if times.collectives:
        known = "none" if not times.met else "all" if times.met == times.collectives else "some"
    without, but = _WAITING[known]
    return _RATIO.format(without=without, but=but)


def time_columns(report: Report) -> tuple[str, ...]:
    """Headings of the table of times."""
    return _TIME_COLUMNS + _MODEL_COLUMNS if report.times.system else _TIME_COLUMNS


def time_rows(report: Report) -> list[list[str]]:
    """Cells of the table of times, in milliseconds per rank; none if the traces have no times."""
    times = report.times
    if not times.known:
        return []
    shown = [(str(kind), times.classes[kind]) for kind in ordered(times.classes)]
    shown = [(name, time) for name, time in shown if time.measured]
    shown += [
        (name, times.total(collective=collective))
        for name, collective in (("compute", False), ("communication", True))
    ]

    def cell(seconds: float) -> str:
        return f"{seconds / times.ranks * 1e3:,.3f} ms" if seconds else "-"

    rows = [
        [
            name, cell(time.measured), cell(time.matched), cell(time.waiting),
            cell(time.modelled), f"{time.ratio:.2f}" if time.ratio is not None else "-",
        ]
        for name, time in shown
    ]  # fmt: skip
    return [row[: len(time_columns(report))] for row in rows]


def time_title(report: Report) -> str:
    """The title of the table of times."""
    times = report.times
    parts = ["time per rank"]
    if times.steps > 1:
        parts.append(f"mean of {times.steps} steps")
    if times.system:
        parts.append(f"modelled for {times.system}")
    return ", ".join(parts)


def page(report: Report) -> str:
    """The page's text."""
    parts = [
        heading("Capture against trace", 1),
        paragraph(report.verdict, f"verdict {'ok' if report.ok else 'bad'}"),
        paragraph(f"{_few(report.traces)}; {_few(sorted(set(report.step)))}"),
        heading("Classes"),
        table(CLASS_COLUMNS, class_rows(report)),
    ]
    if times := time_rows(report):
        title = time_title(report)
        parts += [heading(title[0].upper() + title[1:]), table(time_columns(report), times)]
        if report.times.system:
            parts.append(paragraph(ratio_note(report)))
    if report.unrecorded:
        facts = [[fact, f"{count:,}"] for fact, count in report.unrecorded.items()]
        parts += [heading("Not recorded in the traces"), table(("fact", ">captured ops"), facts)]
    parts += _list("Not compared", report.not_compared)
    if report.explained:
        rows = [[reason, f"{count:,}"] for reason, count in sorted(report.explained.items())]
        parts += [heading("Explained differences"), table(("reason", ">pairs"), rows)]
    if report.differences:
        shown = sorted(report.differences, key=lambda d: not d.counts)
        total = report.failures + report.others
        parts += [
            heading(f"Differences ({len(shown):,} of {total:,})"),
            table(
                ("what", "class", "rank", "op", "where"),
                [(d.what, d.kind, d.rank, d.op, d.where) for d in shown],
                ["bad" if d.counts else "" for d in shown],
            ),
        ]
    warned: list[str] = []
    notes: list[str] = []
    for text, count in report.notes.items():
        counted = f"{text} ({count:,})" if count > 1 else text
        (warned if text.startswith(WARNED) else notes).append(counted)
    parts += _list("What the capture left out or assumed", [t.removeprefix(WARNED) for t in warned])
    parts.append(
        paragraph(f"{report.edges:,} dependencies checked, {report.contradicted:,} reversed.")
    )
    parts += _list("Reversed dependencies", report.contradictions)
    parts += _list("Facts that the traces do not record", notes)
    return document("Validation", parts)


def _few(names: Sequence[str]) -> str:
    """The first of many names, and their number."""
    shown = ", ".join(names[:_SHOWN])
    return f"{shown}, ... ({len(names):,})" if len(names) > _SHOWN else shown


def _list(title: str, texts: Sequence[str]) -> list[Markup]:
    return [heading(title), items(texts)] if texts else []
