"""`import flint`: light, without a version, from everywhere, and no namesake for sympy."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.shared import quick

from .conftest import ROOT, Installed, run

pytestmark = pytest.mark.xdist_group("packaging")
#: Prints the modules that `import flint` brings.
LOADED = "import sys; before = set(sys.modules); import flint; print(*set(sys.modules) - before)"


def only_flint_is_loaded(shown: str) -> bool:
    return {name.split(".")[0] for name in shown.split()} - sys.stdlib_module_names == {"flint"}


def test_importing_flint_imports_nothing_but_the_standard_library(tmp_path: Path) -> None:
    assert only_flint_is_loaded(run([sys.executable, "-c", LOADED], tmp_path))


@pytest.mark.thorough
def test_importing_an_installed_flint_imports_nothing_else_either(installed: Installed) -> None:
    assert only_flint_is_loaded(installed.run(installed.python, "-c", LOADED))


def test_flint_has_no_version(tmp_path: Path) -> None:
    script = """
import flint
assert not hasattr(flint, "__version__") and "__version__" not in dir(flint)
try:
    from flint import __version__
except ImportError:
    pass
else:
    raise AssertionError(__version__)
"""
    run([sys.executable, "-c", script], tmp_path)


def test_an_unknown_name_is_an_attribute_error(tmp_path: Path) -> None:
    script = """
import flint
try:
    flint.no_such_name
except AttributeError as error:
    print(error)
"""
    shown = run([sys.executable, "-c", script], tmp_path)
    assert shown.strip() == "module 'flint' has no attribute 'no_such_name'"


ORDERS = ["import flint, sympy, torch", "import sympy, torch, flint"]


@pytest.mark.thorough
@pytest.mark.parametrize("order", ORDERS)
def test_torch_and_sympy_work_together_with_flint(installed: Installed, order: str) -> None:
    # sympy takes a `flint` with a version of python-flint's for its number types.
    script = f"""
{order}
from sympy.external.gmpy import GROUND_TYPES
assert GROUND_TYPES != "flint", GROUND_TYPES
assert flint.__file__.startswith({str(installed.environment)!r}), flint.__file__
n = sympy.Symbol("n", integer=True)
assert sympy.factor(n**2 - 1) == (n - 1) * (n + 1)
assert torch.ones(2, 3).sum().item() == 6
"""
    installed.run(installed.python, "-c", script)


@pytest.mark.parametrize("where", quick([".", "tests", "flint/stablehlo"], "tests"))
def test_a_source_checkout_finds_its_folders_from_everywhere_in_it(where: str) -> None:
    # Without an installation: only the root is on the path, as in `python -m` run there.
    script = f"""
import sys
sys.path.insert(0, {str(ROOT)!r})
import flint.converters.chakra, flint.frontends, flint.models
"""
    subprocess.run([sys.executable, "-S", "-c", script], cwd=ROOT / where, check=True)


def test_one_module_is_not_loaded_under_two_names(tmp_path: Path) -> None:
    script = f"""
import sys
sys.path.insert(0, {str(ROOT)!r})
import flint.converters.chakra
files = [getattr(module, "__file__", None) for module in sys.modules.values()]
ours = [file for file in files if file and file.startswith({str(ROOT)!r})]
assert len(ours) == len(set(ours)), ours
"""
    subprocess.run([sys.executable, "-c", script], cwd=tmp_path, check=True)
