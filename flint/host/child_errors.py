"""What a child process raised, raised again in its parent.

The idea: a child leaves one small file in a folder that both know.  The parent raises the same
line, of the same of Flint's classes; the child's traceback is its cause, which ``--debug`` shows.

    leave(error, folder, "the capture")       # in the child
    raise_left(folder)                        # in the parent: returns where nothing was left
"""

from __future__ import annotations

import json
import traceback
from pathlib import Path

from flint.errors import FlintError, UsageError

_FILE = "error.json"
#: Characters of a message that is not Flint's own.
_MOST = 400


class ChildError(Exception):
    """The traceback of a child, shown by ``--debug``."""


def leave(error: BaseException, folder: Path, what: str) -> None:
    """Write down what went wrong, for the parent.

    Args:
        error: that was raised.
        folder: that the parent looks into.
        what: the child did, for errors that are not Flint's own: "the capture".
    """
    kind = "usage" if isinstance(error, UsageError) else "failure"
    text = str(error)
    if not isinstance(error, FlintError):
        text = f"{what} failed: {type(error).__name__}: {' '.join(text.split())[:_MOST]}"
    trace = "".join(traceback.format_exception(error))
    (folder / _FILE).write_text(json.dumps({"kind": kind, "text": text, "trace": trace}))


def raise_left(folder: Path, words: str = "") -> None:
    """Raise what a child that has ended left, if it left anything.

    Args:
        folder: that the child left it in.
        words: shown after its traceback.

    Raises:
        UsageError, FlintError: that.
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
