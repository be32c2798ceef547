"""What the parent hands to a compiler's process.

The idea: this much both sides share.  It imports no jax, which would double the child's start.

    child.begin(*words_and_module(Compilation(bytecode, shardy=True)))      # parent
    for place, request in compilations(folder):                             # child
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from flint.host.requests import requests

#: What to do where a compiler's process goes over a limit.
ADVICE = ", or keep repeated layers in a scan"


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


def words_and_module(request: Compilation) -> tuple[dict[str, Any], bytes]:
    """A request in the form in which ``host/requests.py`` sends it."""
    words = {item.name: getattr(request, item.name) for item in fields(request)}
    return words, words.pop("module")


def compilations(folder: Path) -> Iterator[tuple[Path, Compilation]]:
    """Requests as they come, each with its folder."""
    for place, words, module in requests(folder):
        yield place, Compilation(**words, module=module)
