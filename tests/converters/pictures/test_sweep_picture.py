"""The picture of a sweep: nothing of it is cut off, and the best points can be seen."""

from __future__ import annotations

import sys

import pytest

from flint.sweeps import picture

pytest.importorskip("matplotlib")


def drawn(tmp_path, steps, memory, device_seconds):
    """Pixels, height x width x RGBA, of points with those figures."""
    from matplotlib.image import imread

    rows = [
        {
            "error": None, "step_seconds": step, "peak_memory_bytes": size, "device_seconds": cost,
            "system": "dgx-h100-superpod", "mesh": f"{number},1024,8", "fits": number % 2 == 0,
        }
        for number, (step, size, cost) in enumerate(zip(steps, memory, device_seconds, strict=True))
    ]  # fmt: skip
    assert picture.draw(rows, tmp_path / "sweep.png")
    return imread(tmp_path / "sweep.png")


@pytest.mark.parametrize(
    ("steps", "memory", "device_seconds"),
    [
        ((0.1, 0.2), (8 << 30, 9 << 30), (51.0, 100.0)),
        ((10.00001, 10.00002), (8 << 30, (8 << 30) + 1000), (12.3456e6, 12.4e6)),  # 1e7, 1e-6+8
        ((1e-6, 5e-2), (1000, 80 << 30), (1e-6, 1e5)),  # logarithms
        ((1.0, 1.0), (1 << 30, 1 << 30), (1.0, 1.0)),
        ((12345.6, 12399.9), (999 << 30, 1000 << 30), (99999.0, 100001.0)),
    ],
)
def test_nothing_is_cut_off_at_the_border(steps, memory, device_seconds, tmp_path):
    pixels = drawn(tmp_path, steps, memory, device_seconds)[:, :, :3]
    for border in (pixels[:2], pixels[-2:], pixels[:, :2], pixels[:, -2:]):
        assert (border == 1).all()


def test_a_matplotlib_that_cannot_be_imported_is_not_a_picture(tmp_path, monkeypatch):
    monkeypatch.setattr(picture, "_loading", None)
    for name in [name for name in sys.modules if name.startswith("matplotlib")]:
        monkeypatch.delitem(sys.modules, name)
    (tmp_path / "matplotlib").mkdir()
    (tmp_path / "matplotlib" / "__init__.py").write_text("raise ImportError('built for numpy 1')")
    monkeypatch.syspath_prepend(str(tmp_path))
    picture.prepare()
    row = {"error": None, "step_seconds": 1.0, "peak_memory_bytes": 1, "device_seconds": 1.0}
    assert not picture.draw([row], tmp_path / "sweep.png")
    assert not (tmp_path / "sweep.png").exists()


def test_a_best_point_alone_is_ringed(tmp_path, monkeypatch):
    """Grey, 0.5 of red, green and blue, is there within 10 pixels of it and not of the other."""
    from matplotlib.figure import Figure

    saved, figures = Figure.savefig, []
    monkeypatch.setattr(
        Figure, "savefig", lambda f, *a, **k: (figures.append(f), saved(f, *a, **k))
    )
    pixels = drawn(tmp_path, (1.0, 2.0), (8 << 30, 9 << 30), (1.0, 2.0))
    panel = figures[-1].axes[0]
    scale = pixels.shape[1] / figures[-1].bbox.width

    def ringed(step, memory):
        x, y = (int(scale * part) for part in panel.transData.transform((step, memory)))
        y = pixels.shape[0] - y
        near = pixels[y - 10 : y + 11, x - 10 : x + 11, :3]
        return bool((abs(near - 0.5).max(axis=2) < 0.01).any())

    assert (ringed(1.0, 8.0), ringed(2.0, 9.0)) == (True, False)
