"""Self-contained HTML pages: the document and its parts, with one style.

The idea: ``pages.html`` has a Jinja macro for each part, and Jinja escapes every value except
``Markup``, which the functions here return.  Pages have no scripts and no external references, and
declare this to the browser in a content security policy.

    page("step", [heading("a & b"), table(("op", ">time"), [("dot", "3 us")])])
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import cycle
from pathlib import Path
from typing import Any, Final

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

#: Colours that people with colour deficiencies can distinguish: Okabe and Ito, "Color Universal
#: Design" (2008), without yellow and black.
COLOURS: Final = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#777777")


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell of a table with more than a value.

    Attributes:
        value: what it shows.
        kind: its CSS classes; "" for those of its column.
        title: shown when the mouse is on it.
        span: number of columns that it spans.
    """

    value: object
    kind: str = ""
    title: str = ""
    span: int = 1


@cache
def _macros() -> Any:
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    return environment.from_string(Path(__file__).with_name("pages.html").read_text()).module


def _made(macro: str, *values: object) -> Markup:
    return Markup(getattr(_macros(), macro)(*values).strip())


def page(title: str, parts: Iterable[str]) -> str:
    """A complete document.  Parts that are not ``Markup`` are escaped."""
    return str(_made("page", title, list(parts))) + "\n"


def heading(title: str, level: int = 2) -> Markup:
    """A heading."""
    return _made("heading", title, level)


def paragraph(text: str, kind: str = "") -> Markup:
    """A paragraph; ``kind`` is "", "warn", "small", "verdict ok" or "verdict bad"."""
    return _made("paragraph", text, kind)


def items(texts: Sequence[str]) -> Markup:
    """A list."""
    return _made("items", texts)


def picture(alternative: str, image: Path) -> Markup:
    """A PNG file, inside the page."""
    return _made("picture", alternative, base64.b64encode(image.read_bytes()).decode())


def table(
    columns: Sequence[str], rows: Iterable[Sequence[object]], kinds: Sequence[str] = ()
) -> Markup:
    """A table.

    Args:
        columns: names; one that starts with ``>`` has numbers; ``?`` in front (for columns that
            terminals may leave out) has no effect here.
        rows: values or ``Cell``s, one for each column.
        kinds: a CSS class for each row, "best", "bad" or ""; by default none has one.
    """
    columns = [name.removeprefix("?") for name in columns]
    classes = ["n" if name.startswith(">") else "" for name in columns]
    shown = []
    for number, row in enumerate(rows):
        cells = [
            Cell(cell.value, cell.kind or kind, cell.title, cell.span)
            if isinstance(cell, Cell)
            else Cell(cell, kind)
            for cell, kind in zip(row, classes, strict=False)
        ]
        shown.append((cells, kinds[number] if kinds else ""))
    names = [name.removeprefix(">") for name in columns]
    return _made("table", list(zip(names, classes, strict=True)), shown)


def bar(parts: Sequence[tuple[str, float, str]], whole: float) -> Markup:
    """One bar with a key below: (name, size, size as text) out of ``whole``."""
    drawn = [
        (f"{name}: {shown}", f"{100 * size / whole if whole else 0:.3f}", colour)
        for (name, size, shown), colour in zip(parts, cycle(COLOURS), strict=False)
    ]
    names = [(label, colour) for label, _, colour in drawn]
    return Markup("\n").join([_made("bar", drawn), key(names)])


def key(names: Sequence[tuple[str, str]]) -> Markup:
    """What the colours mean: (name, colour)."""
    return _made("key", names)
