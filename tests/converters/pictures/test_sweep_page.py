"""Pages of sweeps: what is shown of each point, in which order, and that a browser opens them."""

from __future__ import annotations

from types import SimpleNamespace

from flint.sweeps.page import page
from flint.sweeps.rows import COLUMNS
from tests.converters.pictures.browser import needs_browser, opened

SWEEP = SimpleNamespace(step="train.py:step", granularity="kernel", algorithm=None, simulation=())


def row(mesh, step_seconds=None, error=None, fits=True, pareto=False, system="dgx-h100"):
    found = dict.fromkeys(COLUMNS) | {
        "step": "train.py:step", "mesh": mesh, "ranks": 8, "system": system, "error": error,
    }  # fmt: skip
    if step_seconds is not None:
        found |= {
            "step_seconds": step_seconds, "compute_seconds": 0.5 * step_seconds,
            "exposed_communication_seconds": 0.0, "peak_memory_bytes": 3 << 29, "fits": fits,
            "mfu": 0.4321, "device_seconds": 8 * step_seconds, "pareto": pareto,
        }  # fmt: skip
    return found


ROWS = [
    row("4,2", 2.0),
    row("8,1", 0.5, pareto=True),
    row("2,4", 1.0, fits=False),
    row("1,8", error="8 <heads> cannot be split"),
]


def test_points_are_fastest_first_and_failures_last_with_their_reasons():
    text = page(SWEEP, ROWS, None)
    places = [text.index(f">{mesh}<") for mesh in ("8,1", "2,4", "4,2", "1,8")]
    assert places == sorted(places)
    assert "8 &lt;heads&gt; cannot be split" in text and "3 of 4 points simulated" in text


def test_figures_have_units_and_all_their_digits():
    text = page(SWEEP, ROWS, None)
    assert 'title="0.5">500 ms</td>' in text and ">2 s</td>" in text
    assert 'title="1610612736">1.5 GiB</td>' in text and "1.5 GiB (too much)" in text
    assert ">43.2%</td>" in text


def test_columns_in_which_points_do_not_differ_are_said_once():
    text = page(SWEEP, ROWS, None)
    assert "<th>mesh</th>" in text and "<th>system</th>" not in text
    assert "system: dgx-h100" in text and "<th>axes</th>" not in text
    text = page(SWEEP, [*ROWS, row("4,2", 3.0, system="hgx-h200")], None)
    assert "<th>system</th>" in text


def test_what_nothing_beats_is_marked():
    lines = [line for line in page(SWEEP, ROWS, None).splitlines() if 'class="best"' in line]
    assert len(lines) == 1 and ">8,1<" in lines[0]


@needs_browser
def test_a_real_browser_opens_the_page(tmp_path):
    path = tmp_path / "sweep.html"
    path.write_text(page(SWEEP, ROWS, None))
    document, console = opened(path, tmp_path / "profile")
    assert console == [] and document.count("<tr") == 5
