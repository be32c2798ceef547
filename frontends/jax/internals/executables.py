"""What a program asks of its compiled functions: their text, costs, sizes and modules.

The idea: a capture has no compiler for the device, and answers from the module that XLA's
partitioner makes.  Before fusion its FLOPs are those of a run, while more bytes are read and
written; temporary memory is not known.

    executable = PartitionedExecutable(proto)
    executable.cost_analysis()["flops"]
"""

from __future__ import annotations

import functools
import os
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
from jaxlib import _jax, xla_client

from flint.hlo.messages import parse_module

#: Fields of ``CompiledMemoryStats`` that no partitioner plans.
_NOT_PLANNED = (
    "generated_code_size_in_bytes", "temp_size_in_bytes", "peak_memory_in_bytes",
    "host_generated_code_size_in_bytes", "host_argument_size_in_bytes",
    "host_output_size_in_bytes", "host_alias_size_in_bytes", "host_temp_size_in_bytes",
)  # fmt: skip


@dataclass(frozen=True)
class PartitionedExecutable:
    """The substitute for XLA's executable of a program on one of its devices.

    Attributes:
        proto: the module after partitioning, an ``HloProto`` or ``HloModuleProto``.
    """

    proto: bytes

    def hlo_modules(self) -> list[Any]:
        """The module, XLA's own object."""
        return [self._computation.get_hlo_module()]

    def runtime_executable(self) -> PartitionedExecutable:
        """Itself: of the runtime's executable, programs read the modules."""
        return self

    def as_text(self) -> str:
        """The module's text."""
        text: str = self.hlo_modules()[0].to_string()
        return text

    def cost_analysis(self) -> dict[str, float]:
        """XLA's generic analysis of the module."""
        module = self.hlo_modules()[0]
        found: dict[str, float] = _jax.hlo_module_cost_analysis(_client(), module)
        return found

    def memory_analysis(self) -> Any:
        """Sizes of arguments and results on a device; 0 for what only a compiler plans."""
        module, shape = parse_module(self.proto), self._computation.program_shape()
        given = [_bytes_of(one) for one in shape.parameter_shapes()]
        entries: tuple[Any, ...] = (
            *module.input_output_alias.entries,
            *module.buffer_donor.entries,
        )
        return SimpleNamespace(
            argument_size_in_bytes=sum(given),
            output_size_in_bytes=_bytes_of(shape.result_shape()),
            alias_size_in_bytes=sum(given[one] for one in {e.parameter_number for e in entries}),
            serialized_buffer_assignment_proto=b"",
            **dict.fromkeys(_NOT_PLANNED, 0),
        )

    get_compiled_memory_stats = memory_analysis

    @functools.cached_property
    def _computation(self) -> Any:
        return xla_client.XlaComputation(parse_module(self.proto).SerializeToString())


@functools.cache
def _client() -> Any:
    return xla_client.make_cpu_client(num_devices=1)


def _bytes_of(shape: Any) -> int:
    if shape.is_tuple():
        return sum(map(_bytes_of, shape.tuple_shapes()))
    if not shape.is_array():  # a token
        return 0
    return int(np.prod(shape.dimensions(), dtype=np.int64)) * int(shape.numpy_dtype().itemsize)


class SavedExecutables:
    """Executables that a program serializes and loads again, within one run.

    The bytes only name one that is held here: nothing is compiled that could be saved.
    """

    def __init__(self) -> None:
        self._held: dict[bytes, Any] = {}

    def serialize(self, compiled: Any) -> tuple[bytes, Any, Any]:
        """The substitute for ``jax.experimental.serialize_executable.serialize``."""
        name = f"flint: executable {len(self._held)} of process {os.getpid()}".encode()
        self._held[name] = compiled
        return name, compiled.in_tree, compiled.out_tree

    def load(self, serialized: bytes, *_trees_and_devices: Any, **_known: Any) -> Any:
        """The substitute for ``deserialize_and_load``.

        Raises:
            ValueError: it was serialized elsewhere.
        """
        found = self._held.get(bytes(serialized))
        if found is None:
            raise ValueError(
                "an executable of another run contains no program that could be captured: let the "
                "program compile, without its saved executables"
            )
        return found
