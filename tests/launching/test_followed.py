"""Numbers made of texts that know more than their digits."""

from __future__ import annotations

import builtins
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from flint.launching import followed
from flint.launching.followed import followed_code, followed_imports


class Text(str):
    def followed_int(self):
        return ("followed", self)


def run(source, **names):
    with followed_imports(Path("unused")):
        exec(followed_code(source.encode(), "train.py"), names)
    return names


def test_a_number_made_of_a_followed_text_is_what_the_text_says():
    assert run("x = int(t)  # RANK", t=Text("3"))["x"] == ("followed", "3")


def test_other_numbers_are_as_ever():
    source = "x = int('7'), int('ff', base=16), int(2.5), isinstance(1, int), int.from_bytes(b'a')"
    assert run(f"{source}  # RANK")["x"] == (7, 255, 2, True, 97)


def test_a_program_with_its_own_int_keeps_it():
    assert run("def f(int): return int(t)\nint = str\nx = int(t)  # RANK", t=3)["x"] == "3"


class Rank(int):
    def followed_among(self, container):
        return ("followed", self, container)


@pytest.mark.parametrize("rank", ["rank", "self.global_rank", "get_rank()", "dist.get_rank(group)"])
def test_a_rank_among_others_is_what_the_rank_says(rank):
    names = {
        "rank": Rank(3),
        "self": SimpleNamespace(global_rank=Rank(3)),
        "get_rank": lambda: Rank(3),
        "dist": SimpleNamespace(get_rank=Rank),
        "group": 3,
    }
    names = run(f"x = {rank} in [1, 2]\ny = {rank} not in [1, 2]", **names)
    assert names["x"] == ("followed", 3, [1, 2])
    assert names["y"] is False


def test_other_memberships_are_as_ever():
    source = """
ranks = [rank for rank in (1, 2)]
answers = rank in (1, 2), rank not in (1, 2), rank in "ab", rank in "cd", 1 in ranks, 3 in ranks
order = []
rank_of = lambda at: order.append(at) or at
rank_of(1) in [rank_of(2)]
chained = 1 < rank_of(2) in [2]
"""
    names = run(source.replace("rank in (1, 2), rank not", "ranks[0] in (1, 2), ranks[1] not"),
                rank="a")  # fmt: skip
    assert names["answers"] == (True, False, True, False, True, False)
    assert names["order"] == [1, 2, 2] and names["chained"]


def test_errors_name_the_programs_line():
    with pytest.raises(ValueError) as raised:
        run("# RANK\n\nint('x')")
    assert any("train.py" in str(item.path) and item.lineno == 2 for item in raised.traceback)


def test_imported_modules_are_followed_too_and_compiled_once(tmp_path, monkeypatch):
    (tmp_path / "speaks_of_ranks.py").write_text("def f(t): return int(t)  # RANK")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    for again in (False, True):
        if again:
            monkeypatch.setattr(followed, "followed_code", None)
            del sys.modules["speaks_of_ranks"]
        with followed_imports(tmp_path / "code"):
            import speaks_of_ranks
        assert speaks_of_ranks.f(Text("3")) == ("followed", "3")
    del sys.modules["speaks_of_ranks"]
    assert not (tmp_path / "__pycache__").exists()
    del builtins.__flint_int__, builtins.__flint_in__
