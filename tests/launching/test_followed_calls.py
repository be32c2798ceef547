"""Calls of functions in C: what is given a rank says what they give, and others are as ever."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from flint.launching.followed import followed_code, followed_imports


class Rank(int):
    @staticmethod
    def followed_call(function, args, kwargs):
        return ("followed", function, args, kwargs)


def run(source, **names):
    with followed_imports(Path("unused")):
        exec(followed_code(source.encode(), "train.py"), names)
    return names


@pytest.mark.parametrize(
    ("call", "function", "given"),
    [
        ("np.array([rank, 1])", np.array, ([3, 1],)),
        ("arange(rank)", np.arange, (3,)),
        ("bytes([rank])", bytes, ([3],)),
        ("np.linalg.norm([[rank]])", np.linalg.norm, ([[3]],)),
        ("np.add.reduce((rank, 1))", np.add.reduce, ((3, 1),)),
        ("float(rank)", float, (3,)),
    ],
)
def test_a_function_that_is_given_a_rank_gives_what_the_rank_says(call, function, given):
    source = f"import numpy as np\nfrom numpy import arange\nx = {call}"
    word, called, args, kwargs = run(source, rank=Rank(3))["x"]
    assert (word, called, args, kwargs) == ("followed", function, given, {})


def test_keywords_and_what_is_unpacked_are_given_as_well():
    found = run("import numpy as np\nx = np.full(*[2], fill_value=rank)", rank=Rank(3))["x"]
    assert found == ("followed", np.full, (2,), {"fill_value": 3})


def test_texts_that_are_joined_are_a_list_of_which_one_may_follow():
    word, join, args, _ = run("x = ','.join(t for t in [rank, 'a'])", rank=Rank(3))["x"]
    assert word == "followed" and join.__self__ == "," and args == ([3, "a"],)


def test_indices_of_several_dims_are_given_to_the_array():
    table = np.arange(6).reshape(2, 3)
    word, getitem, args, _ = run("x = table[:, rank]", rank=Rank(1), table=table)["x"]
    assert word == "followed" and args[1] == (slice(None), 1)
    assert getitem(*args).tolist() == [1, 4]


def test_other_calls_are_as_ever():
    source = """# rank
import os.path, threading
import numpy as np
thread = threading.Thread(target=int)
thread.start()
thread.join(timeout=5)
class Table(dict):
    def __class_getitem__(cls, item): return item
x = [
    np.array([1, 2]).sum(), bytes([7]), float("2.5"), "-".join(c for c in "ab"),
    os.path.join("a", "b"), [1, 2].pop(), {"a": 3}.pop("b", 4), np.zeros((2, 3))[1, 0:2].shape,
    Table[int, ...], {(1, 2): 5}[1, 2], [*range(2), 7],
]
"""
    assert run(source)["x"] == [
        3, b"\x07", 2.5, "a-b", "a/b", 2, 4, (2,), (int, ...), 5, [0, 1, 7]
    ]  # fmt: skip


def test_a_program_with_its_own_function_keeps_it():
    assert run("def float(x): return 'own'\nx = float(rank)", rank=Rank(3))["x"] == "own"


def test_random_numbers_and_files_are_not_asked_twice():
    source = "import numpy as np\nx = np.random.default_rng(rank)\nnp.random.seed(rank)"
    assert isinstance(run(source, rank=Rank(3))["x"], np.random.Generator)


def test_a_packages_calls_stay_as_they_are():
    path = f"{sys.prefix}/lib/site-packages/module.py"
    names = {"rank": Rank(3)}
    with followed_imports(Path("unused")):
        exec(followed_code(b"import numpy as np\nx = np.array([rank])", path), names)
    assert names["x"].tolist() == [3]


def test_methods_are_followed_by_what_they_belong_to():
    source = """import re
class Index:
    def search(self, rank): return rank + 1
x = Index().search(rank)
y = re.compile("3").search(rank)
z = eval("rank + x")
"""
    found = run(source, rank=Rank(3))
    assert (found["x"], found["z"], type(found["y"])) == (4, 7, tuple)


def test_a_text_is_evaluated_in_the_line_that_asks():
    source = """rank = 1
def inside(rank):
    return eval("rank"), [eval("item") for item in (5, 6)], eval("rank", {"rank": 8})
x = eval("rank"), inside(7)
"""
    assert run(source)["x"] == (1, (7, [5, 6], 8))
