"""Tables that users give as CSV files."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Final

from flint.errors import UsageError
from flint.host.readable import why_unreadable

_MAX_BYTES: Final = 1 << 28


def csv_lines(path: Path, what: str) -> list[list[str]]:
    """The lines of a CSV file, each as its fields.

    Args:
        path: the file, or a pipe, whose size is unknown.
        what: description of the file.

    Raises:
        UsageError: no such file, too large, or not text.
    """
    try:
        with path.open("rb") as file:
            content = file.read(_MAX_BYTES + 1)
        if len(content) > _MAX_BYTES:
            raise UsageError(f"{path}: too large for {what}")
        return list(csv.reader(io.StringIO(content.decode("utf-8-sig"), newline="")))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise UsageError(f"{path}: cannot be read: {why_unreadable(error)}") from error
