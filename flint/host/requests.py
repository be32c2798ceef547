"""Requests from a parent to a process that waits for work, and the form of that process's errors.

The idea: this module is shared by both sides.  A process takes one request after another: each is a
few words and some bytes and has its own subfolder, also for its results; a line on the process's
stdin names it.

    send(folder / "1", {"name": "model.mlirbc"}, data)      # parent; then the line "1"
    for place, words, data in requests(folder):             # child, until its stdin ends
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

#: The mark before the reason for a child's failure.
REASON = "reason: "

#: Name of the file with a request: one line of JSON, then the bytes.
_FILE = "request"
#: Name of the file that a child leaves when it has finished a request.
_THROUGH = "through"


def send(place: Path, words: Mapping[str, Any], data: bytes) -> None:
    """Write a request to a new folder."""
    place.mkdir()
    with (place / _FILE).open("wb") as file:
        file.write(json.dumps(words).encode() + b"\n")
        file.write(data)


def requests(folder: Path) -> Iterator[tuple[Path, dict[str, Any], bytes]]:
    """Requests as they come, each with its folder; asking for the next one means that the child has
    finished.
    """
    with open(0, "rb", closefd=False) as lines:
        for line in lines:
            place = folder / line.decode().strip()
            with (place / _FILE).open("rb") as file:
                words, data = json.loads(file.readline()), file.read()
            yield place, words, data
            sys.stderr.flush()
            (place / _THROUGH).touch()


def is_through(place: Path) -> bool:
    """Whether the child has finished a request, with or without a result."""
    return (place / _THROUGH).exists()
