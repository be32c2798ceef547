"""docs/assumptions.md quotes warnings and options as they are."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType

import pytest

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "assumptions.md").read_text()
OPTIONS = (ROOT / "tests" / "data" / "command_line.txt").read_text()


@cache
def literals() -> tuple[str, ...]:
    """Every text in the code, or part of one between what is filled in when it runs.

    Python keeps compiled files, which are read faster than source."""
    found: list[str] = []
    for folder in ("flint", "frontends", "converters"):
        for file in (ROOT / folder).rglob("*.py"):
            code = SourceFileLoader(file.stem, str(file)).get_code(file.stem)
            if code is not None:
                found.extend(texts(code))
    return tuple(found)


def texts(code: CodeType) -> Iterator[str]:
    waiting: list[object] = [code]
    while waiting:
        item = waiting.pop()
        if isinstance(item, CodeType):
            waiting.extend(item.co_consts)
        elif isinstance(item, tuple | frozenset):
            waiting.extend(item)
        elif isinstance(item, str):
            yield item


def quoted() -> list[str]:
    return [text for text in re.findall(r'"([^"]+)"', PAGE) if " " in text]


@pytest.mark.parametrize("text", quoted())
def test_every_quoted_message_is_in_the_code(text) -> None:
    """Each run of words between two placeholders stands in some text of the code."""
    for part in re.split(r"\.\.\.", text):
        words = part.strip(" :;,'()")
        assert len(words) < 12 or any(words in literal for literal in literals()), words


def test_every_option_exists() -> None:
    named = set(re.findall(r"`(--[a-z-]+)", PAGE))
    assert named
    assert not {name for name in named if f" {name}" not in OPTIONS}
