"""What the parent hands to a compiler's process, and how that process says why it gives up.

The idea: this much both sides share.  It imports no jax, which would double the child's start.

    send(folder, module, {"shardy": True})      # parent, before it closes the child's stdin
    options, module = received(folder)          # child: waits for that
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

#: What a child puts before the reason why it gives up.
REASON = "reason: "

#: Name of the file with the request: one line of JSON, then the module as MLIR bytecode.
_FILE = "request"


def send(folder: Path, module: bytes, options: Mapping[str, Any]) -> None:
    """Write the request down: MLIR bytecode, and options of the compilation, values of JSON."""
    (folder / _FILE).write_bytes(json.dumps(options).encode() + b"\n" + module)


def received(folder: Path) -> tuple[dict[str, Any], bytes]:
    """Wait for the end of stdin; the request's options and its module."""
    sys.stdin.buffer.read()
    header, _, module = (folder / _FILE).read_bytes().partition(b"\n")
    options: dict[str, Any] = json.loads(header)
    return options, module
