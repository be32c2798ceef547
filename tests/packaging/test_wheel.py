"""What a user gets who installs the wheel and is not in the repository."""

import sys
import textwrap
import zipfile
from pathlib import Path
from typing import Any

import pytest

from .conftest import ROOT, Installed

pytestmark = pytest.mark.xdist_group("packaging")

# Import name -> folder in the repository, for everything that the wheel holds.
FOLDERS = {
    "flint": ROOT / "flint",
    "flint/frontends": ROOT / "frontends",
    "flint/converters": ROOT / "converters",
    "flint/models": ROOT / "models",
}


def test_only_flint_lands_in_site_packages(wheel: Path, project: dict[str, Any]) -> None:
    version = project["project"]["version"]
    top_level = {name.split("/")[0] for name in zipfile.ZipFile(wheel).namelist()}
    assert top_level == {"flint", f"flint_workload-{version}.dist-info"}


def test_every_file_of_the_packages_is_in_the_wheel(wheel: Path) -> None:
    expected = {
        f"{inside}/{path.relative_to(folder).as_posix()}"
        for inside, folder in FOLDERS.items()
        for path in folder.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and not path.name.startswith(".")
    }
    assert expected - set(zipfile.ZipFile(wheel).namelist()) == set()


@pytest.mark.thorough
def test_every_module_of_the_packages_imports_outside_the_repository(installed: Installed) -> None:
    script = """
        import importlib, pkgutil, flint
        names = [module.name for module in pkgutil.walk_packages(flint.__path__, "flint.")
                 if not module.name.startswith(("flint.frontends.torch", "flint.models."))]
        for name in names:
            importlib.import_module(name)
        print(*names)
        print(flint.__file__)
    """
    names, file = installed.run(installed.python, "-c", textwrap.dedent(script)).splitlines()
    assert {"flint.frontends", "flint.converters.chakra", "flint.models"} <= set(names.split())
    assert Path(file).is_relative_to(installed.environment)


def test_every_public_name_is_there(installed: Installed) -> None:
    script = "import flint; print([getattr(flint, name) for name in flint.__all__])"
    installed.run(installed.python, "-c", script)


def test_the_command_runs(installed: Installed) -> None:
    shown = installed.run(installed.environment / "bin" / "flint", "--help")
    assert all(command in shown for command in ("convert", "inspect", "check"))


def test_the_wheel_works_in_the_repository_root_too(installed: Installed) -> None:
    # `python -c` puts the working directory first, and there ./flint hides the installed one.
    script = "import flint.converters.chakra as c, flint; print(flint.__file__, c.__file__)"
    files = installed.run(installed.python, "-c", script, cwd=ROOT).split()
    assert [Path(file) for file in files] == [
        ROOT / "flint" / "__init__.py",
        ROOT / "converters" / "chakra" / "__init__.py",
    ]


def test_the_version_is_the_distribution_s(installed: Installed, project: dict[str, Any]) -> None:
    script = "from importlib.metadata import version; print(version('flint-workload'))"
    shown = installed.run(installed.python, "-c", script)
    assert shown.strip() == project["project"]["version"]


@pytest.mark.thorough
def test_types_reach_the_user_s_type_checker(installed: Installed) -> None:
    (installed.folder / "user.py").write_text(
        textwrap.dedent(
            """
            import flint
            from flint.converters import chakra

            def convert(path: str) -> flint.Workload:
                return flint.convert(path)

            def explain(error: flint.FlintError) -> int:
                return error.exit_status

            def wrong(error: flint.UsageError) -> str:
                return error.exit_status  # type: ignore[return-value]

            def missing() -> None:
                flint.no_such_name  # type: ignore[attr-defined]
            """
        )
    )
    # --strict reports an ignore comment without an error under it: had the types not arrived,
    # everything would be Any, and the two mistakes above would go unseen.
    mypy = [sys.executable, "-m", "mypy", "--strict", "--config-file", "", "--no-incremental"]
    installed.run(*mypy, "--python-executable", installed.python, "user.py")
