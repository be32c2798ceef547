"""Files stay short enough to be read at once."""

from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDERS = ("flint", "frontends", "converters", "models", "tests", "benchmarks")


def test_no_file_has_more_than_400_lines() -> None:
    files = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")]
    assert files
    long = {path for path in files if path.read_text().count("\n") > 400}
    assert not {path for path in long if not path.stem.endswith("_pb2")}  # made by protoc
