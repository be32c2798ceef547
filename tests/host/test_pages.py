"""Parts of pages: what comes from outside is text, and never markup."""

from __future__ import annotations

import pytest
from markupsafe import Markup

from flint.host.pages import Cell, bar, heading, items, key, page, paragraph, picture, table

EVIL = "<script>alert('1')</script>\" onload=\"x"


@pytest.mark.parametrize(
    "part",
    [
        heading(EVIL),
        paragraph(EVIL, EVIL),
        items([EVIL]),
        table((EVIL, f">{EVIL}"), [(EVIL, Cell(EVIL, EVIL, EVIL))], [EVIL]),
        bar([(EVIL, 1.0, EVIL)], 2.0),
        key([(EVIL, EVIL)]),
    ],
    ids=["heading", "paragraph", "items", "table", "bar", "key"],
)
def test_values_are_escaped(part):
    assert "<script" not in part and 'onload="' not in part and "&lt;script" in part


def test_a_page_escapes_what_no_part_made():
    text = page(EVIL, [EVIL, heading("a & b"), Markup("<svg></svg>")])
    assert "<script" not in text
    assert "<h2>a &amp; b</h2>" in text and "<svg></svg>" in text
    assert "default-src 'none'" in text


def test_a_table_has_numbers_titles_and_rows_that_stand_out():
    text = table(("op", ">time"), [("dot", Cell("3 us", title="3.14")), ("add", 2)], ["best", ""])
    assert '<th class="n">time</th>' in text
    assert '<tr class="best"><td>dot</td><td class="n" title="3.14">3 us</td></tr>' in text
    assert '<tr><td>add</td><td class="n">2</td></tr>' in text


def test_a_picture_is_inside_the_page(tmp_path):
    (tmp_path / "a.png").write_bytes(b"\x89PNG")
    assert 'src="data:image/png;base64,iVBORw=="' in picture("what it shows", tmp_path / "a.png")
