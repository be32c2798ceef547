"""PyTorch's functions are replaced in every module that has imported them."""

from __future__ import annotations

import importlib
import sys
import types

import pytest

torch = pytest.importorskip("torch")

import torch.distributed as dist  # noqa: E402

from flint.frontends.torch import everywhere  # noqa: E402
from tests.frontends.torch.in_child import in_child  # noqa: E402


def left_after_search(then):
    """Names of modules that have the original function after it was replaced in a child."""
    everywhere.search()
    then()
    original = dist.get_rank
    everywhere.replace_everywhere(original, lambda: 7)
    assert dist.get_rank() == 7
    return [
        name for name, item in list(sys.modules.items()) if vars(item).get("get_rank") is original
    ]


def test_no_module_keeps_the_function():
    holders = [name for name, item in list(sys.modules.items()) if "get_rank" in vars(item)]
    assert len(holders) > 3  # installed ones as well: PyTorch's own
    assert in_child(left_after_search, lambda: None) == ()


def test_modules_that_come_or_change_after_the_search_are_found(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "early_program.py").write_text(
        "def late():\n    global get_rank\n    from torch.distributed import get_rank\n"
    )
    (tmp_path / "later_program.py").write_text("from torch.distributed import get_rank\n")
    early = importlib.import_module("early_program")

    def then():
        early.late()
        assert early.get_rank is importlib.import_module("later_program").get_rank

    assert in_child(left_after_search, then) == ()


def test_a_search_from_the_start_follows_the_removal_of_the_newest_module(monkeypatch):
    def then():
        name, _ = everywhere._searched.last
        del sys.modules[name]
        sys.modules["before"] = types.SimpleNamespace(get_rank=dist.get_rank)
        sys.modules[name] = types.ModuleType(name)

    assert in_child(left_after_search, then) == ()
