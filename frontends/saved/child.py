"""The process that reads a saved program: ``python -m flint.frontends.saved.child``.

The idea: on a damaged or malicious file MLIR and XLA abort, overflow their stack, take all memory
or never return, so they run in a process where that results in a one-line error.  The arguments are
the limits of the process, seconds of processor time and bytes of memory, and its folder.  A request
says what is made of the file; it comes back in a file, or the error that reading raised.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from flint.errors import FlintError
from flint.host.child_errors import leave
from flint.host.child_processes import end_with_parent, restrict
from flint.host.environment import import_numpy
from flint.host.requests import requests

#: Name of the file with what was made.
MADE = "made"


def main(seconds: int, memory: int, folder: Path) -> None:
    """Read the file of each request."""
    restrict(seconds, memory)
    import_numpy()
    # What needs numpy is imported after it.
    from flint.frontends.saved.parsing import parse, sized
    from flint.stablehlo.packed.packing import packed

    for place, words, data in requests(folder):
        name, shapes = words["name"], words["shapes"]
        given = name, words["entry"], memory // 4, words["advice"]
        try:
            made = sized(data, shapes, *given) if shapes else packed(parse(data, *given))
            (place / f".{MADE}").write_bytes(made)
            (place / f".{MADE}").rename(place / MADE)
        except FlintError as error:
            leave(error, place, "")
        except MemoryError:
            raise
        except Exception as error:
            leave(error, place, f"{name}: reading it")


if __name__ == "__main__":
    end_with_parent()
    main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))
    # Freeing the parsed data takes longer than everything else at the end.
    os._exit(0)
