"""README and docs name what exists, the map shows every room, examples in docstrings run."""

from __future__ import annotations

import doctest
import re
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DOCS = sorted(ROOT.glob("docs/**/*.md"))
PAGES = ["README.md", "benchmarks/README.md", *(str(page.relative_to(ROOT)) for page in DOCS)]

#: The folders at the top of the repository that hold what pages point to.
TOP = ("flint", "frontends", "converters", "models", "tests", "benchmarks", "examples", "docs")

#: A path from the root, such as ``flint/cost/kernels.py``; not inside a longer path or an address.
_PATH = re.compile(rf"(?<![\w/.~-])(?:{'|'.join(TOP)})/[\w./-]*[\w/]")
#: The target of a link within the repository.
_LINK = re.compile(r"\]\((?!https?:)([^)#]+)")
#: A name in the map: a folder, or a file at the root of the core.
_NAME = re.compile(r"\w+/|\w+\.py")


def named(page: Path) -> set[Path]:
    """Every repository path that a page names, in text, in commands and in links."""
    text = page.read_text(encoding="utf-8")
    return {ROOT / path for path in _PATH.findall(text)} | {
        page.parent / path for path in _LINK.findall(text)
    }


def mapped() -> list[Path]:
    """The paths in the README's map: rooms are two levels deep, with their contents next to or
    below them.
    """
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    block = text.partition("## Map")[2].partition("```")[2].partition("```")[0]
    found: list[Path] = []
    top = room = ROOT
    for line in block.splitlines():
        indent = len(line) - len(line.lstrip())
        for number, name in enumerate(_NAME.findall(line)):
            if indent == 0:
                top = ROOT / name
                found.append(top)
            elif name.endswith(".py"):
                found.append(top / name)
            elif indent == 2 and number == 0:
                room = top / name
                found.append(room)
            else:
                found.append(room / name)
    return found


@pytest.mark.parametrize("page", PAGES)
def test_paths_that_a_page_names_exist(page: str) -> None:
    paths = named(ROOT / page)
    assert not [str(path.relative_to(ROOT)) for path in paths if not path.exists()]


def headings(page: Path) -> set[str]:
    """What links to a page's headings call them: lower case, without signs, spaces as dashes."""
    lines = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.M)
    return {re.sub(r"[^\w -]", "", line.lower()).strip().replace(" ", "-") for line in lines}


@pytest.mark.parametrize("page", PAGES)
def test_headings_that_a_page_links_to_exist(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    links = re.findall(r"\]\((?!https?:)([^)#]*)#([^)]+)\)", text)
    wrong = [
        (path, heading)
        for path, heading in links
        if heading not in headings((ROOT / page).parent / path if path else ROOT / page)
    ]
    assert not wrong


def test_the_pages_name_paths() -> None:
    assert len(named(ROOT / "README.md")) > 10
    assert ROOT / "docs/simulation.md" in named(ROOT / "README.md")


def test_the_map_shows_every_room_and_nothing_else() -> None:
    places = mapped()
    assert {path.parent for path in ROOT.glob("flint/*/__init__.py")} <= set(places)
    assert not [str(path.relative_to(ROOT)) for path in places if not path.exists()]


@pytest.mark.parametrize(
    "place",
    [
        "flint/stablehlo/rules/elementwise.py",  # a new StableHLO op's cost
        "flint/mesh/network_dims.py",  # how a group is matched to network dims
        "flint/validation/matching/equivalence.py",  # why two ops count as the same
        "flint/validation/report/page.py",  # the page of a report
        "converters/profilers/kineto/observe.py",  # the reader of a profiler
        "converters/chakra/write/encode.py",  # how an ET node is encoded
    ],
)
def test_the_places_that_newcomers_look_for_are_in_rooms_of_the_map(place: str) -> None:
    assert (ROOT / place).is_file()
    assert (ROOT / place).parent in mapped()


#: Folder in the repository -> its import name.
PACKAGES = {"flint": "flint", "frontends": "flint.frontends", "converters": "flint.converters"}
EXAMPLES = [
    path.relative_to(ROOT)
    for folder in PACKAGES
    for path in sorted((ROOT / folder).rglob("*.py"))
    if ">>> " in path.read_text(encoding="utf-8")
]


@pytest.mark.parametrize("path", EXAMPLES, ids=str)
def test_examples_in_docstrings_say_what_comes_out(path: Path) -> None:
    folder, *inside = path.with_suffix("").parts
    names = [PACKAGES[folder], *(name for name in inside if name != "__init__")]
    assert doctest.testmod(import_module(".".join(names))).failed == 0


@pytest.mark.parametrize("page", DOCS, ids=lambda page: str(page.relative_to(ROOT)))
def test_what_pages_quote_of_the_demo_is_as_in_the_readme(page: Path) -> None:
    """The README's lines are compared with what the commands say."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
    quoted = [line for line in page.read_text(encoding="utf-8").splitlines()
              if line.startswith("out/llama3-8b: ")]  # fmt: skip
    assert not set(quoted) - set(readme)


def test_pages_name_options_that_exist() -> None:
    """Of Flint's own commands; a program's, pip's and others' follow other words."""
    import typer

    from flint.cli import application

    commands = vars(typer.main.get_command(application()))["commands"]
    known = {
        name: {option for item in command.params for option in item.opts} | {"--help"}
        for name, command in commands.items()
    }
    wrong = []
    for page in PAGES:
        for line in (ROOT / page).read_text(encoding="utf-8").splitlines():
            for name, rest in re.findall(r"^(?:\$ )?flint (\w+) (.*)$", line):
                own = re.split(r" -- | #|\||;", rest)[0]
                options = re.findall(r"(?<![\w-])--[a-z][a-z-]+", own)
                wrong += [(page, name, item) for item in options if item not in known[name]]
    assert not wrong
