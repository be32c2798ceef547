"""The results of each program: kept next to the tests, shown in README's table.

The idea: a test that compares a program with its real run leaves what it found in build/programs.
This module puts what is new into ``results.json`` and makes README's table of that file.

    python -m tests.programs.results
"""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOUND = ROOT / "build" / "programs" / "found"
KEPT = Path(__file__).parent / "results.json"
BLOCK = re.compile(r"(<!-- programs -->\n).*?(<!-- /programs -->)", re.DOTALL)
EQUAL = "equal"
COLUMNS = ("program", "version", "ranks", "collectives", "bytes sent", "matrix FLOPs", "real run")


@dataclass(frozen=True, slots=True)
class Result:
    """One program.

    Attributes:
        package, version: the distribution that it exercises.
        words: which program of that package, or which of its ways to train.
        ranks: of the real run and the capture beside it.
        collectives, bytes, flops: of rank 0's step; bytes are those that it sends, FLOPs those of
            matrix products.
        found: ``EQUAL``, or what differs.
    """

    package: str
    version: str
    words: str
    ranks: int
    collectives: int
    bytes: int
    flops: int
    found: str = EQUAL


def record(package, words, of_ranks, found=EQUAL):
    """Leave what a test found.

    Args:
        of_ranks: as ``comparing.captured`` returns.
    """
    calls = [call for calls in of_ranks[0]["collectives"].values() for call in calls]
    result = Result(
        package, metadata.version(package), words, len(of_ranks), len(calls),
        sum(size for _, size in calls), of_ranks[0]["flops"], found,
    )  # fmt: skip
    FOUND.mkdir(parents=True, exist_ok=True)
    name = re.sub(r"\W+", "-", f"{package} {words}")
    (FOUND / f"{name}.json").write_text(json.dumps(asdict(result)))


def is_installed(package):
    """Whether a distribution is in this environment."""
    try:
        metadata.version(package)
    except metadata.PackageNotFoundError:
        return False
    return True


def kept():
    """The results that are kept."""
    return [Result(**item) for item in json.loads(KEPT.read_text())]


def table(results):
    """The results as a table of Markdown."""
    rows = [COLUMNS, ("---",) * len(COLUMNS)]
    rows += [
        (
            f"{item.package}: {item.words}", item.version, item.ranks, f"{item.collectives:,}",
            f"{item.bytes:,}", f"{item.flops:,}", item.found,
        )
        for item in results
    ]  # fmt: skip
    return "".join("| " + " | ".join(map(str, row)) + " |\n" for row in rows)


def shown(page, results):
    """A page with the table of these results."""
    return BLOCK.sub(lambda found: found[1] + table(results) + found[2], page)


def main():
    every = {(item.package, item.words): item for item in kept()}
    for path in FOUND.glob("*.json"):
        item = Result(**json.loads(path.read_text()))
        every[item.package, item.words] = item
    results = [every[key] for key in sorted(every, key=lambda key: (key[0].lower(), key[1]))]
    lines = ",\n".join(json.dumps(asdict(item)) for item in results)
    KEPT.write_text(f"[\n{lines}\n]\n")
    page = ROOT / "README.md"
    page.write_text(shown(page.read_text(encoding="utf-8"), results), encoding="utf-8")


if __name__ == "__main__":
    main()
