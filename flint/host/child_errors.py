"""Errors of a child process, raised again in its parent.

The idea: a child leaves one small file in a folder that both know.  The parent raises the same line
with the same Flint class; the child's traceback is its cause, which ``--debug`` shows.

    leave(error, folder, "the capture")       # in the child
    raise_left(folder)                        # in the parent: returns if nothing was left
"""

from __future__ import annotations

import json
import traceback
from pathlib import Path

from flint.errors import FlintError, UsageError

_FILE = "error.json"
#: The most characters of a message that is not Flint's own.
_MOST = 400


class ChildError(Exception):
    """The traceback of a child, shown by ``--debug``."""


def leave(error: BaseException, folder: Path, what: str) -> None:
    """Record an error for the parent.

    Args:
        error: the raised error.
        folder: the folder that the parent reads.
        what: what the child did, for errors that are not Flint's own: "the capture".
    """
    kind = "usage" if isinstance(error, UsageError) else "failure"
    text = str(error)
    if not isinstance(error, FlintError):
        text = f"{what} failed: {type(error).__name__}: {' '.join(text.split())[:_MOST]}"
    trace = "".join(traceback.format_exception(error))
    (folder / _FILE).write_text(json.dumps({"kind": kind, "text": text, "trace": trace}))


def raise_left(folder: Path, words: str = "") -> None:
    """Raise the error that an ended child left, if it left one.

    Args:
        folder: the folder in which the child left it.
        words: text to show after its traceback.

    Raises:
        UsageError, FlintError: the child's error.
    """
    left = folder / _FILE
    if not left.is_file():
        return
    try:
        document = json.loads(left.read_text())
        error = UsageError if document["kind"] == "usage" else FlintError
        text, trace = str(document["text"]), str(document["trace"])
    except (ValueError, LookupError, TypeError) as damaged:
        raise FlintError(f"a child process left no readable error ({damaged})") from damaged
    raise error(text) from ChildError(trace + words)
