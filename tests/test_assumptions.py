"""docs/assumptions.md quotes warnings and options as they are."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "assumptions.md").read_text()
OPTIONS = (ROOT / "tests" / "data" / "command_line.txt").read_text()


@cache
def literals() -> tuple[str, ...]:
    """Every text in the code; ``...`` for what is filled in when it runs."""
    found = []
    for folder in ("flint", "frontends", "converters"):
        for file in (ROOT / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(file.read_text())):
                if isinstance(node, ast.Constant) and isinstance(node.value, str):
                    found.append(node.value)
                elif isinstance(node, ast.JoinedStr):
                    parts = [v.value if isinstance(v, ast.Constant) else "..." for v in node.values]
                    found.append("".join(map(str, parts)))
    return tuple(found)


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
