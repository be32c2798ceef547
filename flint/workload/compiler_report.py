"""A compiler's report about a program that it has compiled for a target.

The idea: memory and cost as reported by the compiler are kept next to the graph made from its
output, so that the two can be compared.

    workload.compiled.peak_bytes, workload.compiled.flops
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class CompilerReport:
    """The compiler's own figures, per device.

    Attributes:
        target: the target that it was compiled for.
        compiler: distributions and versions that compiled.
        options: the compiler options that the user gave.
        memory: bytes of memory of a target device.
        argument_bytes, output_bytes, alias_bytes, temporary_bytes: XLA's memory analysis: inputs,
            results, results that share an input's buffer, and everything in between; None if the
            compiler gave up before.
        flops, bytes_accessed, transcendentals: XLA's cost analysis, which counts a loop's body once
            and nothing for library calls; None if it gives no figure.
    """

    target: str
    compiler: str
    options: Mapping[str, Any] = field(default_factory=dict)
    memory: int
    argument_bytes: int | None = None
    output_bytes: int | None = None
    alias_bytes: int | None = None
    temporary_bytes: int | None = None
    flops: float | None = None
    bytes_accessed: float | None = None
    transcendentals: float | None = None

    @property
    def needed_bytes(self) -> int | None:
        """Memory that the program needs on a device, in bytes; None if unknown."""
        sizes = (self.argument_bytes, self.output_bytes, self.temporary_bytes, self.alias_bytes)
        if None in sizes:
            return None
        arguments, outputs, temporary, aliased = (size or 0 for size in sizes)
        return arguments + outputs + temporary - aliased

    def to_json(self) -> dict[str, Any]:
        """The record in JSON's types."""
        return asdict(self)

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> CompilerReport:
        """The record of ``to_json``.

        Raises:
            KeyError, TypeError, ValueError: it is not such a document.
        """
        sizes = ("argument_bytes", "output_bytes", "alias_bytes", "temporary_bytes")
        costs = ("flops", "bytes_accessed", "transcendentals")
        figures: dict[str, Any] = {
            **{key: None if document[key] is None else int(document[key]) for key in sizes},
            **{key: None if document[key] is None else float(document[key]) for key in costs},
        }
        return cls(
            target=str(document["target"]),
            compiler=str(document["compiler"]),
            options=dict(document["options"]),
            memory=int(document["memory"]),
            **figures,
        )
