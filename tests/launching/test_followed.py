"""Numbers made of texts that know more than their digits."""

from __future__ import annotations

import builtins
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from flint.launching import followed, followed_functions
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


class Place(int):
    def followed_at(self, container):
        return ("at", container)

    def followed_at_or(self, get, *default):
        return ("at or", get(int(self), *default))

    def followed_part(self, container, part):
        return ("part", container, part)

    def followed_loop(self, *ends):
        return ("loop", *ends)


def test_an_item_that_a_rank_picks_is_what_the_rank_says():
    """Whatever its name, in a program's own modules."""
    source = """
# rank
def pick(table, at):
    return table[at], table.get(at), table.get(at, 7)
items = pick({1: 2}, place)
parts = [5, 6][place:], [5, 6][: place : 2], [5, 6][0]
loops = [at for at in range(place, 8)]
for at in range(place):
    loops.append(at)
rounds = list(range(place, 2)), len(range(place)), sum(range(3))
"""
    names = run(source, place=Place(3))
    assert names["items"] == (("at", {1: 2}), ("at or", None), ("at or", 7))
    assert names["parts"] == (
        ("part", [5, 6], slice(3, None)), ("part", [5, 6], slice(None, 3, 2)), 5,
    )  # fmt: skip
    assert names["loops"] == ["loop", 3, 8, "loop", 3]
    assert names["rounds"] == (["loop", 3, 2], 2, 3)


def test_other_items_are_as_ever():
    source = """
# rank
from __future__ import annotations
import typing
T = typing.TypeVar("T")
class Of(typing.Generic[T]):
    known: typing.ClassVar[dict[str, T]] = {}
    def get(self, at: dict[str, T], *more) -> list[T]:
        return at, more
    def __class_getitem__(cls, item):
        return super().__class_getitem__(item)
at, table = 1, {1: [3, 4, 5]}
table[at][at] += 2
answers = [
    table[at][at], table[at][at:], table[at][:-1], table.get(at), table.get(2, at),
    Of().get(at, 2), [each for each in range(at, 4)], "text"[at], table[at][slice(2)],
]
del table[at]
hints = typing.get_type_hints(Of.get)
text = Of.__annotations__["known"]
x = (lambda rank: rank[at])("abc")
"""
    names = run(source)
    of = names["T"]
    assert names["answers"] == [6, [6, 5], [3, 6], [3, 6, 5], 1, (1, (2,)), [1, 2, 3], "e", [3, 6]]
    assert names["table"] == {} and names["x"] == "b"
    assert names["hints"]["return"] == list[of]
    assert names["text"] == "typing.ClassVar[dict[str, T]]"


def test_of_an_installed_package_only_indices_that_name_a_rank_are_followed():
    source = b"x = table[place], table[rank], table.get(place)"
    names = {"table": {3: 4}, "place": Place(3), "rank": Place(3)}
    with followed_imports(Path("unused")):
        exec(followed_code(source, "lib/site-packages/package.py"), names)
    assert names["x"] == (4, ("at", {3: 4}), 4)


def test_modules_whose_ranks_are_numbers_of_dims_stay_as_they_are(tmp_path, monkeypatch):
    (tmp_path / "tensorflow").mkdir()
    (tmp_path / "tensorflow/__init__.py").write_text("def dim(shape, rank): return shape[rank]")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "tensorflow", raising=False)
    with followed_imports(tmp_path / "code"):
        import tensorflow
    assert tensorflow.dim({3: 4}, Place(3)) == 4
    del sys.modules["tensorflow"]


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
    for name in followed_functions.FUNCTIONS:
        delattr(builtins, name)


class Written(int):
    @staticmethod
    def followed_text(make, values):
        return ("text", make(*values))


@pytest.mark.parametrize(
    ("text", "made"),
    [
        ('f"a{rank}{other!r:>{width}}{rank + other:02d}{{}}"', "a3   407{}"),
        ('"a%d of %s" % (rank, other)', "a3 of 4"),
        ('"a%03d" % rank', "a003"),
        ('"a{1}{0:>{2}}".format(rank, other, width)', "a4   3"),
    ],
)
def test_a_text_made_of_a_rank_is_what_the_rank_says(text, made):
    names = {"other": 4, "width": 4}
    assert run(f"x = {text}", rank=Written(3), **names)["x"] == ("text", made)
    assert run(f"x = {text}  # rank", rank=3, **names)["x"] == made


def test_other_texts_are_as_ever():
    source = """
names, seen = {"a": 1}, []
x = ["%(a)s" % names, "%s-%s" % tuple("ab"), "{a}".format(**names), "{}".format(*"ab"), f"plain"]
x += [f"{(lambda: names)()['a']=}", "%s" % (names,), 7 % 4]
class Rank:
    inner = [f"{at}{len(names)}" for at in range(2)]
"""
    names = run(source)
    assert names["x"] == ["1", "a-b", "1", "a", "plain", "(lambda: names)()['a']=1", "{'a': 1}", 3]
    assert names["Rank"].inner == ["01", "11"]


class Picking(int):
    @staticmethod
    def followed_slice(items, ends):
        return ("picked", items, ends)


def test_what_a_rank_picks_of_an_iterator_is_what_the_rank_says():
    source = (
        "import itertools\nx = itertools.islice('abc', rank, None, 2), [*itertools.islice('ab', 1)]"
    )
    assert run(source, rank=Picking(1))["x"] == (("picked", "abc", (1, None, 2)), ["a"])


class Stand:
    def followed_type(self):
        return str


def test_a_type_that_is_compared_is_what_the_object_says():
    """In a module that uses PyTorch; a type that is called, or given away, is Python's."""
    source = """
import_of = "torch"
x = type(s) is str, type(s) == type("a"), type(s) in (int, str), type(s) is not type("a")
y = type(3) is int, type("a") != int, type(s), type("B", (), {}).__name__ == "B"
def f(type): return type(s) is str
"""
    names = run(source, s=Stand())
    assert names["x"] == (True, True, True, False)
    assert names["y"] == (True, True, Stand, True)
    assert run("x = type(s) is str", s=Stand())["x"] is False


def test_the_type_of_a_function_that_stands_for_pythons_own_is_that_ones(tmp_path):
    """``type(print) == type(open)``: whether a program has put its own ``print`` in place."""
    own = "import functools\n@functools.wraps(print)\ndef own(*args): print(*args)\n"
    stands: dict[str, object] = {}
    exec(compile(own, followed_functions.__file__, "exec"), stands)
    source = f"{own}import_of = 'torch'\nx = type(stands) == type(open), type(own) == type(open)"
    assert run(source, stands=stands["own"])["x"] == (True, False)
