"""Paths that a program makes of its rank, against what Python makes of them on every rank."""

from __future__ import annotations

import pickle

import pytest

pytest.importorskip("torch")

from flint.frontends.torch import context
from tests.frontends.torch.followed_expressions import asked, plainly, verdict

PATHS = """
Path(f"log_{rank}").name
pathlib.Path("runs", f"log_{rank}").name
Path("runs").joinpath(f"s{rank}", "log").parts[1]
(Path("runs") / f"s{rank}").name
(Path(f"s{rank}") / "log.txt").parent.name
("runs" / Path(f"s{rank}")).parts[-1]
Path(f"s{rank}.txt").stem
Path(f"s.{rank}").suffix
Path("s.txt").with_suffix(f".{rank}").suffix
Path("a/b").with_name(str(rank)).name
str(Path("runs") / str(rank))
f"{Path(str(rank))}-{rank}"
f"{Path(str(rank))!r}"
Path(f"s{rank}").as_posix().split("s")[1]
Path(f"s{rank}").match("s?")
Path(f"s{rank}") == Path(f"s{rank // 2 * 2 + 1}")
Path(f"runs/{rank}").relative_to("runs").name
os.path.split(f"runs/{rank}")[1]
os.path.relpath(f"/runs/{rank}", "/runs")
os.path.basename(os.path.abspath(f"runs/{rank}"))
changed(Path("runs"), f"s{rank}").name
os.path.join("runs", Path(f"s{rank}")).removeprefix("runs/")
"""


def _each(expressions):
    return expressions.split("\n")[1:-1]


@pytest.fixture(autouse=True)
def begun():
    before = context.capture()
    yield
    context.begin(before)


@pytest.mark.parametrize("expression", _each(PATHS))
def test_what_is_made_of_a_path_tells_ranks_apart_as_python_does(expression):
    assert verdict(expression) == "followed"


@pytest.mark.parametrize("expression", ['Path(f"s{rank}")', '(Path("runs") / f"s{rank}").parent'])
def test_a_path_of_the_rank_is_pythons(expression, tmp_path, monkeypatch):
    """For files, for libraries, and where nobody asks."""
    monkeypatch.chdir(tmp_path)
    found, seen = asked(expression)
    plain = plainly(expression)[3]
    found.mkdir()
    (found / "log").write_text("a")
    assert [type(item) for item in plain.iterdir()] == [type(plain)]
    assert type(found.resolve()) is type(plain) and hash(found) == hash(plain)
    assert pickle.loads(pickle.dumps(found)) == plain
    assert not seen.evidence.all() and not seen.unseen
    assert found == plain and repr(found) == repr(plain)
