"""The wheel, built from a copy of the repository and installed where nothing else of ours is.

The environment for it is empty but for the wheel: the running environment's third-party libraries
are put on its path by a .pth file. That leaves out an editable installation of the repository
(whose own .pth files are read only in a real site directory), so that what the wheel forgot is
really missing.
"""

import os
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import venv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True)
class Installed:
    """An environment with the wheel in it, and a folder outside the repository to run things in."""

    environment: Path
    folder: Path

    @property
    def python(self) -> Path:
        return self.environment / "bin" / "python"

    @property
    def site_packages(self) -> Path:
        version = f"python{sys.version_info.major}.{sys.version_info.minor}"
        return self.environment / "lib" / version / "site-packages"

    def run(self, *command: str | Path, cwd: Path | None = None) -> str:
        """Standard output of a command that must succeed, run outside the repository."""
        return run(command, cwd or self.folder)


def run(command: Sequence[str | Path], cwd: Path) -> str:
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [str(part) for part in command], cwd=cwd, env=environ, capture_output=True, text=True
    )
    assert done.returncode == 0, (
        f"{command} ended with {done.returncode}\n{done.stdout}{done.stderr}"
    )
    return done.stdout


@pytest.fixture(scope="session")
def project() -> dict[str, Any]:
    """pyproject.toml."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory, project: dict[str, Any]) -> Path:
    """The wheel, built from a copy: setuptools would leave build/ in the source and reuse it."""
    source = tmp_path_factory.mktemp("source") / "flint"
    source.mkdir()
    ignored = shutil.ignore_patterns("__pycache__", ".*_cache", "*.egg-info")
    for folder in ("flint", "frontends", "converters", "models"):
        shutil.copytree(ROOT / folder, source / folder, ignore=ignored)
    for name in ("pyproject.toml", "setup.py", "LICENSE", "README.md"):
        if (ROOT / name).exists():
            shutil.copy(ROOT / name, source)
    built = tmp_path_factory.mktemp("wheel")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    offline = ["--no-deps", "--no-build-isolation", "--no-index"]
    run([*pip, "wheel", *offline, "-w", built, source], cwd=built)
    [wheel] = built.glob("*.whl")
    return wheel


@pytest.fixture(scope="session")
def installed(tmp_path_factory: pytest.TempPathFactory, wheel: Path) -> Installed:
    """The wheel in a separate environment."""
    there = Installed(tmp_path_factory.mktemp("environment"), tmp_path_factory.mktemp("elsewhere"))
    venv.create(there.environment, symlinks=True)
    libraries = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    (there.site_packages / "libraries.pth").write_text("\n".join(sorted(libraries)) + "\n")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", there.python]
    run([*pip, "install", "--no-deps", "--no-index", wheel], cwd=there.folder)
    return there
