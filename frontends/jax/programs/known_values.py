"""Values that are known though most of their program is never run: step counters, keys.

The idea: a training step of any size returns ``step + 1``, and programs read it.  The part of a
program that computes a small whole number, bool or random key is cut out; if it needs only known
values, it is computed for real.

    KnownResults().of(jaxpr, [None, 3])            # {1: Array(4)}: the second result is known
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from flint.frontends.jax.internals.avals import size_of
from flint.frontends.jax.internals.evaluating import evaluated
from flint.frontends.jax.internals.host_evaluation import computing
from flint.frontends.jax.internals.jaxprs import MOST_OPERATIONS, needed_for, operations

#: The most bytes of a value that is computed.
_MOST_BYTES = 1 << 12


class KnownResults:
    """The parts of programs for small results, kept from call to call."""

    def __init__(self) -> None:
        self._parts: dict[tuple[int, int], Any] = {}
        self._programs: list[Any] = []  # so that no other gets the same id
        self._failed: set[tuple[int, int]] = set()

    def of(self, program: Any, operands: Sequence[Any]) -> dict[int, Any]:
        """Results that are known, by their number.

        Args:
            program: a closed jaxpr.
            operands: real values; None if there is none.
        """
        found = {}
        for number, aval in enumerate(program.out_avals):
            if not _is_small_and_exact(aval) or (id(program), number) in self._failed:
                continue
            part, inputs = self._part(program, number)
            given = [operands[place] for place in inputs]
            if any(item is None for item in given):
                continue
            if operations(part) > MOST_OPERATIONS:  # a training of its own
                self._failed.add((id(program), number))
                continue
            try:
                with computing():
                    [found[number]] = evaluated(part, program.consts, given)
            except Exception:  # it needs devices, or fails in a run as well
                self._failed.add((id(program), number))
        return found

    def _part(self, program: Any, number: int) -> tuple[Any, Sequence[int]]:
        key = id(program), number
        if key not in self._parts:
            self._programs.append(program)
            self._parts[key] = needed_for(program, number)
        part: tuple[Any, Sequence[int]] = self._parts[key]
        return part


def _is_small_and_exact(aval: Any) -> bool:
    dtype = getattr(aval, "dtype", None)
    if dtype is None or size_of(aval) > _MOST_BYTES:
        return False
    kinds = (jnp.integer, jnp.bool_, jax.dtypes.prng_key)
    return any(jnp.issubdtype(dtype, kind) for kind in kinds)
