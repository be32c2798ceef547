"""What the parent hands to a compiler's process, and how that process says why it gives up.

The idea: this much both sides share.  It imports no jax, which would double the child's start.

    send(folder, Compilation(bytecode, shardy=True))    # parent, before it closes the child's stdin
    request = received(folder)                      # child: waits for that
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

#: What a child puts before the reason why it gives up.
REASON = "reason: "

#: Name of the file with the request: one line of JSON, then the module.
_FILE = "request"


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


def send(folder: Path, request: Compilation) -> None:
    """Write a request down."""
    header = {item.name: getattr(request, item.name) for item in fields(request)}
    module = header.pop("module")
    (folder / _FILE).write_bytes(json.dumps(header).encode() + b"\n" + module)


def received(folder: Path) -> Compilation:
    """Wait for the end of stdin, then read the request."""
    sys.stdin.buffer.read()
    header, _, module = (folder / _FILE).read_bytes().partition(b"\n")
    return Compilation(**json.loads(header) | {"module": module})
