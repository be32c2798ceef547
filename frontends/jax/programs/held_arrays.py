"""The arrays that a program holds: their types, and the values of those that have one.

The idea: an array is entered when a program makes it, or the host puts it on the cluster, and
leaves when Python releases it or a program takes its buffer.

    arrays.made(results, call, operands, None)
    arrays.value(result)                    # of a step counter: Array(4); None if it is not known
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax

from flint.frontends.jax.host.calls import Called
from flint.frontends.jax.internals.avals import size_of
from flint.frontends.jax.internals.host_arrays import HostArray
from flint.frontends.jax.programs.known_values import KnownResults
from flint.frontends.jax.programs.made_at import MadeAt
from flint.passes.in_sequence import Origin

#: The most bytes of an array that keeps its value on several devices.
_KEPT_BYTES = 1 << 16


class HeldArrays:
    """The arrays of a program.

    Attributes:
        made_at: where the program was when it made them.
    """

    def __init__(self) -> None:
        self.made_at = MadeAt()
        self._avals: dict[Origin, Any] = {}
        self._values: dict[Origin, Any] = {}
        self._known = KnownResults()

    def put(self, origin: Origin, aval: Any, value: Any) -> None:
        """Enter an array that the host has put on devices.

        Args:
            origin: the array.
            aval: JAX's type of it.
            value: its value; None if it is not known.
        """
        self._avals[origin] = aval
        self.made_at.note(origin)
        if value is not None and size_of(aval) <= _KEPT_BYTES:
            self._values[origin] = value

    def made(
        self,
        results: Sequence[HostArray],
        call: Called,
        operands: Sequence[Any],
        known: Sequence[Any] | None,
    ) -> None:
        """Enter the results of a call, and take out the arrays that it ends.

        Args:
            results: the results.
            call: the call.
            operands: its operands: arrays of this kind and others.
            known: values of all results, if it was run for real.
        """
        for origin in call.deleted:
            self._avals.pop(origin, None)
        if results:
            self.made_at.note(results[0].origin)
        self._avals |= {result.origin: result.aval for result in results}
        if known is None:
            given = [self.value(item) if isinstance(item, HostArray) else item for item in operands]
            found = self._known.of(call.parameters["jaxpr"], given)
        else:
            found = dict(enumerate(known))
        for number, value in found.items():
            self._values[results[number].origin] = value

    def value(self, array: HostArray) -> Any:
        """The value of an array or of a part of one; None if it is not known."""
        found = self._values.get(array.origin)
        if found is None or array.part_of is None:
            return found
        return found[array.part_of[1]]

    def integers(self, call: Called, operands: Sequence[Any]) -> dict[int, int]:
        """The values of a call's operands that are one integer or bool, by number, if known."""
        found = {}
        for number, (operand, item) in enumerate(zip(call.operands, operands, strict=True)):
            kind = getattr(getattr(operand.aval, "dtype", None), "kind", "")
            if not kind or kind not in "biu" or operand.aval.shape:
                continue
            value = self.value(item) if isinstance(item, HostArray) else item
            if value is not None and not getattr(value, "is_deleted", bool)():
                found[number] = int(value)
        return found

    def dropped(self, origin: Origin) -> None:
        """Take out an array that is no longer held."""
        self._values.pop(origin, None)
        self._avals.pop(origin, None)

    def bytes_of_a_device(self, placed: Callable[[Origin], Any]) -> int:
        """Bytes of the arrays on this process's first device.

        Args:
            placed: the sharding of an array.
        """
        first = jax.local_devices()[0]
        return sum(
            size_of(aval.update(shape=place.shard_shape(aval.shape), sharding=None))
            for origin, aval in [*self._avals.items()]
            if first in (place := placed(origin)).device_set
        )
