"""The requests of the parent to a compiler's process.

The idea: both sides share only this module.  It does not import jax, which would double the child's
start.

    child.begin(*words_and_module(Compilation(bytecode, shardy=True)))      # parent
    for place, request in compilations(folder):                             # child
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from enum import StrEnum
from pathlib import Path
from typing import Any

from flint.host.requests import requests

#: Advice if a compiler's process goes over a limit.
ADVICE = ", or keep repeated layers in a scan"


class Form(StrEnum):
    """The form of a module's bytes: lowered by JAX, or a saved program."""

    LOWERED = "lowered"
    MLIR = "mlir"
    HLO = "hlo"
    HLO_TEXT = "hlo text"


@dataclass(frozen=True, slots=True)
class Compilation:
    """A global program to partition or to compile.

    Attributes:
        module: MLIR bytecode, or the form in ``form``.
        shardy: whether it is annotated for Shardy, as JAX does by default (otherwise GSPMD).
        inputs_free, outputs_free: parameters and results whose sharding XLA may choose.
        by_batch: custom calls of which each device can do its part of the batch.
        parameters: of the entry function.
        options: the compiler's own, name -> value.
        form: the form of ``module``; for a saved program the child finds the other attributes.
        per_device: for a saved program of one device, the number of devices; 1 if it is global.
        replicas: number of copies of all of that, in parallel.
        donors: of a saved program, arguments whose buffers its results may take.
    """

    module: bytes
    shardy: bool = True
    inputs_free: Sequence[bool] = ()
    outputs_free: Sequence[bool] = ()
    by_batch: Sequence[str] = ()
    parameters: int = 0
    options: Mapping[str, Any] = field(default_factory=dict)
    form: Form = Form.LOWERED
    per_device: int = 1
    replicas: int = 1
    donors: Sequence[int] = ()


def words_and_module(request: Compilation) -> tuple[dict[str, Any], bytes]:
    """A request in the form in which ``host/requests.py`` sends it."""
    words = {item.name: getattr(request, item.name) for item in fields(request)}
    return words, words.pop("module")


def compilations(folder: Path) -> Iterator[tuple[Path, Compilation]]:
    """Requests as they come, each with its folder."""
    for place, words, module in requests(folder):
        words["form"] = Form(words["form"])
        yield place, Compilation(**words, module=module)
