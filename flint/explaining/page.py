"""An explanation as one HTML page that needs no other file.

page_of(explanation)
"""

from __future__ import annotations

from flint.explaining.explaining import Explanation
from flint.explaining.rows import headline, tables
from flint.host.pages import bar, heading, page, paragraph, table
from flint.host.readable import human_seconds

#: Rows of each table.
_TOP = 100


def page_of(item: Explanation) -> str:
    """The page's text."""
    parts = [heading(headline(item), 1)]
    parts += [paragraph(f"Note: {note}") for note in item.notes]
    shares = [(p.sort, p.seconds, human_seconds(p.seconds)) for p in item.path]
    parts.append(bar(shares, item.step_seconds))
    for rows in tables(item, _TOP):
        parts += [heading(rows.title), table(rows.columns, rows.rows)]
        hidden = f"{rows.hidden:,} more are not shown" if rows.hidden else ""
        if note := "; ".join(filter(None, (rows.note, hidden))):
            parts.append(paragraph(note, "small"))
    return page("Explanation of a step", parts)
