"""Which arrays the calls of a program take, for comparing one stretch of calls with another.

The idea: an array is the one that a call has made, or that the host has put on devices; a result
that is an unchanged operand is the operand.  A small array on one device is real: JAX's own, which
no call has made.

    taken = TakenArrays()
    taken.of(0, call, operands, thread=0)           # (Given(Origin(-1, 0), None, 4096, (32, 32)),)
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Hashable, Sequence
from typing import Any

import jax

from flint.frontends.jax.host.calls import Called, Operand
from flint.frontends.jax.internals.avals import is_inexact, size_of
from flint.frontends.jax.internals.host_arrays import HostArray
from flint.frontends.jax.internals.jaxprs import forwarded
from flint.frontends.jax.programs import whole_trainings
from flint.frontends.jax.programs.operand_sizes import Given
from flint.passes.in_sequence import Origin


class TakenArrays:
    """The arrays that calls take and make."""

    def __init__(self) -> None:
        self._same: dict[Origin, Origin] = {}
        self._given_back: set[Origin] = set()  # results that are a value of the host, unchanged
        self._made_by: list[int] = []  # the threads of the calls
        self._real = RealArrays()
        self._have_gradients: dict[Hashable, bool] = {}

    def of(
        self, number: int, call: Called, operands: Sequence[Any], thread: int
    ) -> tuple[Given, ...]:
        """The operands of the next call.

        Args:
            number: of the call.
            call: the call.
            operands: its operands: arrays without values and others.
            thread: that makes it.
        """
        self._made_by.append(thread)
        for result, operand in forwarded(call.parameters["jaxpr"]):
            origin = call.operands[operand].origin
            if origin is not None:
                self._same[Origin(number, result)] = self._same.get(origin, origin)
            else:
                self._given_back.add(Origin(number, result))
        given = (self._given(*pair) for pair in zip(call.operands, operands, strict=True))
        return tuple(one for one in given if one is not None)

    def gradients(self, call: Called) -> bool:
        """Whether a call computes gradients; found out once for each program."""
        key = id(call.parameters["jaxpr"]), call.path
        if key not in self._have_gradients:
            self._have_gradients[key] = whole_trainings.computes_gradients(call)
        return self._have_gradients[key]

    def _given(self, operand: Operand, item: Any) -> Given | None:
        aval, origin = operand.aval, operand.origin
        if origin is not None:
            array = self._same.get(origin, origin)
            return Given(array, self._since(array, aval), size_of(aval), aval.shape)
        number = self._real.of(item)
        return None if number is None else Given(number, None, size_of(aval), aval.shape)

    def _since(self, origin: Origin, aval: Any) -> int | None:
        """The earliest call before which an array existed; None for data.

        Keys and counters are data too, because code that makes batches renews them.
        """
        if origin.program < 0 or origin in self._given_back:
            return None
        if self._made_by[origin.program] != self._made_by[-1]:
            return None
        return origin.program + 1 if is_inexact(aval) else None


class RealArrays:
    """Which of JAX's own arrays a program has: its small ones on one device.

    NumPy's are not followed, because they may be written again.
    """

    def __init__(self) -> None:
        self._held: dict[int, tuple[weakref.ref[Any], int]] = {}  # by their ids
        self._numbers = itertools.count(1)

    def of(self, item: Any) -> int | None:
        """A number that no other array has or had; None for anything else than an array."""
        if isinstance(item, HostArray) or not isinstance(item, jax.Array):
            return None
        place = id(item)
        if place not in self._held:
            gone = weakref.ref(item, lambda _: self._held.pop(place, None))
            self._held[place] = gone, next(self._numbers)
        return self._held[place][1]
