"""What arrays without values ask of the recorder of a step's host code.

class Recording: ...                # has these methods; HostArray(aval, recording, origin)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol


class Host(Protocol):
    """The recorder of host code's calls with arrays."""

    def call(
        self,
        name: str,
        parameters: Mapping[str, Any],
        operands: Sequence[Any],
        source: str,
        compiled_for: Sequence[Any] = (),
        known: Sequence[Any] | None = None,
    ) -> list[Any]:
        """A program is called; its results.

        Args:
            name: of the function or op.
            parameters: of the ``jit`` primitive.
            operands: arrays of this kind and others.
            source: "function at file:line" of a jitted function, "" for an op.
            compiled_for: for each operand the sharding that it was compiled for before the call, or
                the origin of an array that has it, None if the compiler chose; empty if it is
                compiled for its operands at the call.
            known: the results, if it has been run for real.
        """

    def read(self, array: Any, kind: str) -> Any:
        """A value of an array is read; returns the assumed value.

        Args:
            array: whose.
            kind: "bool", "int", "float", "complex", "array", "text" or "wait".
        """

    def lowers(self) -> None:
        """A jitted function is lowered, to be compiled and called."""

    def computed(self) -> None:
        """A program that needs none of these arrays has been run for real."""

    def sharding(self, array: Any) -> Any:
        """The sharding of an array that was created without one.

        Raises:
            AttributeError: it is not known before the program is compiled.
        """

    def results(
        self, name: str, parameters: Mapping[str, Any], compiled_for: Sequence[Any]
    ) -> Sequence[Any]:
        """The shardings of the results of a program that is compiled, and not called yet.

        Args:
            name, parameters, compiled_for: as for ``call``.

        Raises:
            NotImplementedError: they are not known before the step has run.
        """

    def module(
        self, name: str, parameters: Mapping[str, Any], compiled_for: Sequence[Any]
    ) -> bytes:
        """A program that is compiled, and not called yet, after partitioning: an ``HloProto``.

        Args:
            name, parameters, compiled_for: as for ``call``.

        Raises:
            NotImplementedError: it is not known before the step has run.
        """

    def value(self, array: Any) -> Any:
        """The real array that an array represents; None if its value is not known."""

    def keeps(self, source: str) -> bool:
        """Whether a jitted function is recorded even if it has been run for real."""

    def spans(self, program: Any) -> bool:
        """Whether a closed jaxpr is not run for real because of its devices."""

    def put(self, value: Any, sharding: Any) -> Any:
        """A real array is put on devices; returns the array there, None if JAX should place it."""

    def is_deleted(self, array: Any) -> bool:
        """Whether an array was donated, or deleted by the program."""

    def deleted(self, array: Any) -> None:
        """The program deletes an array, which it may still hold."""

    def dropped(self, array: Any) -> None:
        """An array is no longer held."""
