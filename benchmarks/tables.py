"""Tables of a report: rows, verdicts, units."""

from __future__ import annotations

from typing import Any

Results = dict[str, Any]


def row(what: str, item: Results, *, target: str = "", met: bool | None = None) -> list[str]:
    """A row of the first table: a measured command."""
    spread = f"{item['fastest']:.2f} - {item['slowest']:.2f} s" if item["runs"] > 1 else "one run"
    peak = f"{item['peak'] / 1e6:,.0f} MB"
    return [what, f"{item['wall']:.2f} s", spread, peak, target, verdict(met)]


def verdict(met: bool | None) -> str:
    """A word for a target that is met, missed, or was never set."""
    return "" if met is None else "yes" if met else "**no**"


def growth_table(item: Results) -> str:
    """A series: sizes against its columns, the exponents below."""
    columns = item["columns"]
    head = [item["axis"], *(f"{name} ({unit(name)})" for name in columns)]
    rows = [
        [f"{size:,}", *(shown(name, values[number]) for name, values in columns.items())]
        for number, size in enumerate(item["sizes"])
    ]
    for label, key in (("exponent, all", "exponents"), ("exponent, last", "last_exponents")):
        rows.append([f"*{label}*", *(f"{item[key][name]:.2f}" for name in columns)])
    return table(head, rows)


def unit(column: str) -> str:
    """The unit of a growth column."""
    return "MB" if column in ("peak", "bytes") else "s"


def shown(column: str, value: float) -> str:
    """A value of a growth column, in its unit."""
    return f"{value / 1e6:,.1f}" if unit(column) == "MB" else f"{value:.2f}"


def table(head: list[str], rows: list[list[str]]) -> str:
    """A Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"
