"""Files stay short enough to be read at once."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDERS = ("flint", "frontends", "converters", "models", "tests", "benchmarks")
#: The beginning of the sentence that explains why a file is longer; it ends the docstring.
REASON = "Longer than 300 lines because "


def longer_than(lines: int) -> set[Path]:
    files = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")]
    assert files
    long = {path for path in files if path.read_text().count("\n") > lines}
    return {path for path in long if not path.stem.endswith("_pb2")}  # made by protoc


def reason_of(path: Path) -> str:
    """The sentence, on one line; "" where the file has none."""
    source = path.read_text()
    if not re.search(REASON.strip().replace(" ", r"\s+"), source):
        return ""  # without parsing it
    text = " ".join((ast.get_docstring(ast.parse(source)) or "").split())
    _, begin, rest = text.rpartition(REASON)
    return begin + rest if begin and ". " not in rest else ""


def test_no_file_has_more_than_400_lines() -> None:
    assert not longer_than(400)


def test_a_file_of_more_than_300_lines_says_why() -> None:
    assert not {path for path in longer_than(300) if not reason_of(path).endswith(".")}


def test_no_shorter_file_says_why_it_is_longer() -> None:
    long = longer_than(300)
    files = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")]
    assert not {path for path in files if path not in long and reason_of(path)}
