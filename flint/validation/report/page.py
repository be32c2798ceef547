"""A report as one HTML page without scripts and without anything to load.

Path("report.html").write_text(page(report))
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from flint.validation.report.report import WARNED, Report, ordered

_STYLE = """
body { font: 14px/1.5 system-ui, sans-serif; max-width: 72rem; margin: 2rem auto;
  padding: 0 1.5rem; color: #222 }
table { border-collapse: collapse; margin: .5rem 0 2rem }
th, td { padding: .25rem .75rem; text-align: left; border-bottom: 1px solid #ddd }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums }
.verdict { padding: .75rem 1rem; border-left: 4px solid; background: #f6f6f6 }
.ok { border-color: #2a7 } .bad { border-color: #c33 } tr.bad td { background: #fdecec }
code { font-size: 13px }
"""

#: So many traces and steps are named.
_SHOWN = 4

RATIO = (
    "ratio: measured time of matched ops, without waiting for other ranks, by modelled time of the "
    "same ops"
)

#: Heading, and whether it is a number.
CLASS_COLUMNS = (
    ("class", False), ("captured", True), ("executed", True), ("matched", True),
    ("by name", True), ("explained", True), ("in order", True), ("captured bytes", True),
    ("executed bytes", True),
)  # fmt: skip
_TIME_COLUMNS = (
    ("class", False), ("measured", True), ("of matched ops", True), ("waiting", True),
)  # fmt: skip
_MODEL_COLUMNS = (("modelled", True), ("ratio", True))


def class_rows(report: Report) -> list[list[str]]:
    """Cells of the table of classes; "-" where a trace does not tell or nothing is compared."""
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


def time_columns(report: Report) -> tuple[tuple[str, bool], ...]:
    """Headings of the table of times."""
    return _TIME_COLUMNS + _MODEL_COLUMNS if report.times.system else _TIME_COLUMNS


def time_rows(report: Report) -> list[list[str]]:
    """Cells of the table of times, milliseconds per rank; none where the traces have no times."""
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
    """What the table of times is of."""
    times = report.times
    parts = ["time per rank"]
    if times.steps > 1:
        parts.append(f"mean of {times.steps} steps")
    if times.system:
        parts.append(f"modelled for {times.system}")
    return ", ".join(parts)


def page(report: Report) -> str:
    """The page's text."""
    verdict = "ok" if report.ok else "bad"
    body = [
        f'<p class="verdict {verdict}">{escape(report.verdict)}</p>',
        f"<p>{escape(_few(report.traces))}; {escape(_few(sorted(set(report.step))))}</p>",
        "<h2>Classes</h2>",
        _table(CLASS_COLUMNS, class_rows(report)),
    ]
    if times := time_rows(report):
        title = time_title(report)
        body += [
            f"<h2>{escape(title[0].upper() + title[1:])}</h2>",
            _table(time_columns(report), times),
        ]
        if report.times.system:
            body.append(f"<p>{escape(RATIO)}</p>")
    if report.explained:
        rows = [[reason, f"{count:,}"] for reason, count in sorted(report.explained.items())]
        body += [
            "<h2>Explained differences</h2>",
            _table((("reason", False), ("pairs", True)), rows),
        ]
    if report.differences:
        columns = tuple((name, False) for name in ("what", "class", "rank", "op", "where"))
        rows = [
            [d.what, str(d.kind), str(d.rank), d.op, d.where]
            for d in sorted(report.differences, key=lambda d: not d.counts)
        ]
        marks = [d.counts for d in sorted(report.differences, key=lambda d: not d.counts)]
        total = report.failures + report.others
        body += [
            f"<h2>Differences ({len(rows):,} of {total:,})</h2>",
            _table(columns, rows, marks),
        ]
    warned: list[str] = []
    notes: list[str] = []
    for text, count in report.notes.items():
        (warned if text.startswith(WARNED) else notes).append(_counted(text, count))
    body += _items("What the capture left out or assumed", [t.removeprefix(WARNED) for t in warned])
    body.append(f"<p>{report.edges:,} dependencies checked, {report.contradicted:,} reversed.</p>")
    body += _items("Reversed dependencies", report.contradictions)
    body += _items("What the traces do not record", notes)
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Validation</title>'
        f"<style>{_STYLE}</style></head><body><h1>Capture against trace</h1>"
        + "\n".join(body)
        + "</body></html>\n"
    )


def _few(names: Sequence[str]) -> str:
    """The first of many names, and how many there are."""
    shown = ", ".join(names[:_SHOWN])
    return f"{shown}, ... ({len(names):,})" if len(names) > _SHOWN else shown


def _counted(text: str, count: int) -> str:
    return f"{text} ({count:,})" if count > 1 else text


def _items(title: str, texts: Sequence[str]) -> list[str]:
    if not texts:
        return []
    items = "".join(f"<li>{escape(text)}</li>" for text in texts)
    return [f"<h2>{escape(title)}</h2><ul>{items}</ul>"]


def _table(
    columns: Sequence[tuple[str, bool]],
    rows: Iterable[Sequence[str]],
    marks: Sequence[bool] = (),
) -> str:
    kinds = [' class="n"' if number else "" for _, number in columns]
    head = "".join(
        f"<th{k}>{escape(name)}</th>" for k, (name, _) in zip(kinds, columns, strict=True)
    )
    lines = []
    for i, row in enumerate(rows):
        cells = "".join(f"<td{k}>{escape(cell)}</td>" for k, cell in zip(kinds, row, strict=True))
        mark = ' class="bad"' if i < len(marks) and marks[i] else ""
        lines.append(f"<tr{mark}>{cells}</tr>")
    return f"<table><tr>{head}</tr>{''.join(lines)}</table>"
