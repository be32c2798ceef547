"""Which modules a program imports next, seen from where it asks for its rank."""

from __future__ import annotations

import os
import sys
import textwrap
from types import ModuleType

import pytest

from flint.launching.next_imports import import_next, next_imports


@pytest.fixture
def program(tmp_path, monkeypatch):
    """Run a program as ``__main__``; ``ask()`` in it answers with what it imports next."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def run(text, asked=lambda frame: list(next_imports(frame))):
        path = tmp_path / "train.py"
        path.write_text(textwrap.dedent(text))
        main, found = ModuleType("__main__"), []
        vars(main)["ask"] = lambda: found.append(asked(sys._getframe(1)))
        monkeypatch.setitem(sys.modules, "__main__", main)
        exec(compile(path.read_text(), str(path), "exec"), vars(main))
        return found[0]

    return run


def test_imports_that_follow_are_named_in_order(program):
    assert program("ask()\nimport json, wave\nfrom os import path\n") == ["json", "wave", "os"]


def test_parts_of_a_package_that_are_modules_are_imported_too(program, tmp_path):
    (tmp_path / "package_here").mkdir()
    (tmp_path / "package_here" / "__init__.py").write_text("made = 1\n")
    (tmp_path / "package_here" / "part.py").write_text("")
    program("ask()\nfrom package_here import made, part\n", import_next)
    assert "package_here.part" in sys.modules and "package_here.made" not in sys.modules


@pytest.mark.parametrize(
    "between",
    [
        "'''Text.'''",
        "LARGEST = 4",
        "def double(x, y=None): return 2 * x + os.getpid()",
        "import warnings\nif LEAST != 0: warnings.filterwarnings('ignore', category=UserWarning)",
        "import warnings\nif LEAST: warnings.showwarning = warnings.formatwarning",
    ],
)
def test_statements_on_which_no_import_depends_may_come_between(program, between):
    assert program(f"import os\nLEAST = 0\nask()\n{between}\nimport wave\n")[-1] == "wave"


@pytest.mark.parametrize(
    "between",
    [
        "os.environ['MORE'] = '1'",
        "print(4)",
        "sys.modules['wave_here'] = None",
        "os.linesep = '\\n'",
        "if os.getpid(): pass",
        "@str\ndef made(): pass",
        "def made(x=os.getpid()): pass",
        "class Made: pass",
        "try: import json\nexcept ImportError: pass",
        "for _ in range(3): pass",
    ],
)
def test_nothing_is_imported_beyond_a_statement_that_may_matter(program, between, monkeypatch):
    monkeypatch.setitem(os.environ, "MORE", "0")
    monkeypatch.setitem(sys.modules, "wave_here", None)
    assert program(f"import os, sys\nask()\n{between}\nimport wave\n") == []


@pytest.mark.parametrize(
    "asking",
    ["def first(): ask()\nfirst()", "class First: ask()", "exec('ask()', {'ask': ask})"],
)
def test_only_the_first_level_of_the_main_file_has_next_imports(program, asking):
    assert program(f"{asking}\nimport wave\n") == []


def test_an_import_that_fails_ends_the_imports_quietly(program, tmp_path):
    (tmp_path / "fails_here.py").write_text("1 / 0\n")
    (tmp_path / "comes_later.py").write_text("")
    text = (
        "try: ask()\nexcept ZeroDivisionError: raise AssertionError\nimport fails_here, comes_later"
    )
    with pytest.raises(ZeroDivisionError):  # where the program imports it
        program(text, import_next)
    assert "comes_later" not in sys.modules
