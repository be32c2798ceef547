"""Points: which ones are distinguished, and how passes are joined."""

from __future__ import annotations

from pathlib import Path

from flint.cost import systems
from flint.sweeps.commands import capture
from flint.sweeps.description import Sweep
from flint.sweeps.points import points


def sweep(folder: Path, **options: object) -> Sweep:
    (folder / "step.py").write_text("def f(): ...\n")
    given = {"meshes": ("4,2",), "systems": ("dgx-h100",), **options}
    return Sweep((f"{folder / 'step.py'}:f",), folder=folder, **given)  # type: ignore[arg-type]


def test_systems_that_call_themselves_alike_are_distinguished(tmp_path: Path) -> None:
    """Two changed copies of a known system keep its name."""
    known = Path(systems.__file__).with_name("systems") / "dgx-h100.toml"
    files = [tmp_path / name for name in ("slow.toml", "slower.toml", "same.toml")]
    for file, rate in zip(files, ("200 Gb/s", "100 Gb/s", "400 Gb/s"), strict=True):
        file.write_text(known.read_text().replace('"400 Gb/s"', f'"{rate}"'))
    found = points(sweep(tmp_path, systems=("dgx-h100", *map(str, files), "dgx-a100")))
    assert [point.system_name for point in found] == [
        "dgx-h100", str(files[0]), str(files[1]), "dgx-a100"
    ]  # fmt: skip


def test_an_algorithms_name_is_not_two_passes(tmp_path: Path) -> None:
    joined = "hoist:by=1 + replace:by=reduce_scatter+all_gather+split"
    texts = ("replace:by=reduce-scatter+all-gather", joined)
    assert [point.passes for point in points(sweep(tmp_path, passes=texts))] == [
        ("replace:by=reduce-scatter+all-gather",),
        ("hoist:by=1", "replace:by=reduce_scatter+all_gather", "split"),
    ]


def test_the_names_in_a_mesh_are_those_of_its_capture(tmp_path: Path) -> None:
    meshes = ("rows=4,columns=2", "data=8", "4,2")
    swept = sweep(tmp_path, meshes=meshes)
    found = points(swept)
    assert [point.axes for point in found] == ["rows,columns", "data", None]
    assert len({point.workload for point in found}) == 3
    commands = [capture(swept, point, point.step, tmp_path) for point in found]
    assert ["rows,columns" in command for command in commands] == [True, False, False]
