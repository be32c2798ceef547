"""The published profiles in ``tests/data``: unpacked, with what others counted in them."""

from __future__ import annotations

import csv
import lzma
import shutil
from pathlib import Path

DATA = Path(__file__).parents[1] / "data"
PROFILES = DATA / "profiles"


def published():
    """The rows of ``counts.csv`` by file; what was not counted is ""."""
    with (PROFILES / "counts.csv").open() as file:
        return {row["file"]: row for row in csv.DictReader(file)}


def unpacked(name, folder):
    """Where a profile lies; one that xz has packed, in ``folder``."""
    path = PROFILES / name
    if path.suffix != ".xz":
        return path
    with lzma.open(path) as source, (folder / path.stem).open("wb") as target:
        shutil.copyfileobj(source, target)
    return folder / path.stem
