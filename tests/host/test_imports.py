"""Actions after a module's import: once, when it has loaded, whatever imports it."""

from __future__ import annotations

import importlib.util
import sys

import pytest

from flint.host.imports import after_import


def test_it_acts_once_when_the_module_has_loaded(tmp_path, monkeypatch):
    (tmp_path / "seen_later.py").write_text("VALUE = 3\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    found = []
    with after_import({"seen_later": lambda: found.append(sys.modules["seen_later"].VALUE)}):
        assert found == []
        import seen_later

        assert found == [seen_later.VALUE]
        import seen_later

        assert found == [3]
    with after_import({"seen_later": lambda: found.append("at once")}):
        assert found == [3, "at once"]


def test_a_module_that_is_not_there_is_missing_as_ever():
    with (
        after_import({"nobody_has_this": lambda: pytest.fail("it was loaded")}),
        pytest.raises(ModuleNotFoundError),
    ):
        import nobody_has_this  # noqa: F401


def test_whoever_asks_whether_a_module_is_installed_does_not_load_it(tmp_path, monkeypatch):
    """Libraries do so for optional packages, which the program may import later."""
    (tmp_path / "asked_first.py").write_text("VALUE = 3\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    found = []
    with after_import({"asked_first": lambda: found.append("loaded")}):
        assert importlib.util.find_spec("asked_first") is not None
        assert found == []
        import asked_first

        assert (found, asked_first.VALUE) == (["loaded"], 3)
