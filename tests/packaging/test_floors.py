"""The contracts of rooms in pyproject.toml: they hold, and refuse what breaks them."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.packaging.conftest import ROOT
from tests.support.children import HUNG
from tests.support.shared import quick_rows


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The packages as an installation has them: three folders inside the fourth."""
    shutil.copytree(ROOT / "flint", tmp_path / "flint")
    for folder in ("frontends", "converters", "models"):
        shutil.copytree(ROOT / folder, tmp_path / "flint" / folder)
    return tmp_path


def broken(copy: Path) -> str:
    """The output of import-linter, "" if all contracts are kept."""
    done = subprocess.run(
        [Path(sys.executable).with_name("lint-imports"), "--config", ROOT / "pyproject.toml"],
        cwd=copy, capture_output=True, text=True, timeout=HUNG, check=False,
    )  # fmt: skip
    return done.stdout if done.returncode else ""


def test_every_room_uses_only_rooms_below_it(copy: Path) -> None:
    assert broken(copy) == ""


UPWARDS = [
    ("mesh/ranks.py", "import flint.graph.work"),
    ("graph/work.py", "import flint.cli"),
    ("sweeps/rows.py", "import flint.converters.chakra.schema"),
    ("frontends/saved.py", "import flint.converters.chakra.schema"),
]


@pytest.mark.parametrize(("module", "line"), quick_rows(UPWARDS, UPWARDS[0]))
def test_an_arrow_upwards_is_refused(copy: Path, module: str, line: str) -> None:
    with open(copy / "flint" / module, "a") as file:
        file.write(f"\n{line}\n")
    assert "not allowed to import" in broken(copy)


def test_a_circle_is_refused(copy: Path) -> None:
    with open(copy / "flint" / "mesh" / "mesh.py", "a") as file:
        file.write("\nimport flint.mesh.groups\n")
    with open(copy / "flint" / "mesh" / "groups.py", "a") as file:
        file.write("\nimport flint.mesh.mesh\n")
    assert "No cycles are allowed" in broken(copy)
