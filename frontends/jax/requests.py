"""What the parent hands to a compiler's process, and how that process says why it gives up.

The idea: this much both sides share.  It imports no jax, which would double the child's start.  A
child takes one request after another: each has a folder of its own in the child's, for its results
too, and a line on the child's stdin names it.

    send(folder / "1", Compilation(bytecode, shardy=True))      # parent; then the line "1"
    for place, request in requests(folder):                     # child, until its stdin ends
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

#: What a child puts before the reason why it gives up.
REASON = "reason: "

#: Name of the file with a request: one line of JSON, then the module.
_FILE = "request"
#: Name of the file that a child leaves when it is through with one.
_THROUGH = "through"


@dataclass(frozen=True, slots=True)
class Compilation:
    """A global program to partition or to compile.

    Attributes:
        module: MLIR bytecode.
        shardy: whether it is annotated for Shardy, as JAX does by default (else GSPMD).
        inputs_free, outputs_free: parameters and results whose sharding XLA may choose.
        by_batch: custom calls of which each device can do its part of the batch.
        parameters: of the entry function.
        options: the compiler's own, name -> value.
    """

    module: bytes
    shardy: bool = True
    inputs_free: Sequence[bool] = ()
    outputs_free: Sequence[bool] = ()
    by_batch: Sequence[str] = ()
    parameters: int = 0
    options: Mapping[str, Any] = field(default_factory=dict)


def send(place: Path, request: Compilation) -> None:
    """Write a request down, in a new folder."""
    header = {item.name: getattr(request, item.name) for item in fields(request)}
    module = header.pop("module")
    place.mkdir()
    (place / _FILE).write_bytes(json.dumps(header).encode() + b"\n" + module)


def requests(folder: Path) -> Iterator[tuple[Path, Compilation]]:
    """Requests as they come, each with its folder; the child is through when it asks for more."""
    with open(0, "rb", closefd=False) as lines:
        for line in lines:
            place = folder / line.decode().strip()
            header, _, module = (place / _FILE).read_bytes().partition(b"\n")
            yield place, Compilation(**json.loads(header) | {"module": module})
            sys.stderr.flush()
            (place / _THROUGH).touch()


def is_through(place: Path) -> bool:
    """Whether the child is through with a request, with a result or without."""
    return (place / _THROUGH).exists()
