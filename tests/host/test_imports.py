"""Actions after a module's import: once, when it has loaded, whatever imports it."""

from __future__ import annotations

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
