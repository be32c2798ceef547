"""The placement of a step's arrays after some repetitions.

The idea: XLA chooses where a step's results lie, and the next step is compiled for that.  From the
second one on, most steps return their arrays where they got them; one that does not is compiled
anew until it does, and from then on it stays the same.

    settled(recording, carried={0: Origin(0, 1)}, places=places)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import jax
import numpy as np
from jax.sharding import NamedSharding

from flint.frontends.jax.host.calls import Recording
from flint.frontends.jax.internals.jaxprs import used
from flint.frontends.jax.internals.placements import in_hlo
from flint.frontends.jax.operand_shardings import argument_shardings
from flint.frontends.jax.programs.placing import Places
from flint.passes.in_sequence import Origin

#: The most repetitions that are tried.
_MOST = 8
SETTLED = (
    "XLA places the step's results elsewhere than its arguments at first, and compiles it anew: "
    "captured as it is from step {} on"
)
NOT_SETTLED = (
    "XLA places the step's results elsewhere than its arguments, again and again: later steps "
    "communicate otherwise; state the jit's out_shardings"
)


def settled(recording: Recording, carried: Mapping[int, Origin], places: Places) -> Recording:
    """The second step with its arguments where those of later steps lie.

    Args:
        recording: the step.
        carried: number of an argument -> the step's result that is the next step's argument.
        places: placements of a call's results.
    """
    if not carried or any(call.compiled_for for call in recording.calls):
        return recording  # compiled ahead, which accepts no other placement
    current = recording
    for number in range(2, 2 + _MOST):
        after = _after(current, places)
        moved = {
            argument: after[origin]
            for argument, origin in carried.items()
            if not _is_same(current.arguments[argument], after[origin])
        }
        if not moved:
            found = {} if number == 2 else {SETTLED.format(number): 1}
            return replace(current, warnings=current.warnings | found)
        current = replace(
            current,
            arguments=tuple(
                _placed_on(leaf, moved[argument]) if argument in moved else leaf
                for argument, leaf in enumerate(current.arguments)
            ),
        )
    return replace(recording, warnings=recording.warnings | {NOT_SETTLED: 1})


def _after(recording: Recording, places: Places) -> dict[Origin, Any]:
    """The shardings of a step's arguments and results; None for those that may be moved."""
    where = argument_shardings(recording)
    for number, call in enumerate(recording.calls):
        given = [
            where[operand.origin] if is_used and operand.origin is not None else None
            for operand, is_used in zip(call.operands, used(call.parameters), strict=True)
        ]
        for result, sharding in enumerate(places.of_results(call, given)):
            where[Origin(number, result)] = sharding
    return where


def _is_same(argument: Any, after: Any) -> bool:
    """Whether an argument lies where the next step's does, as far as that is known."""
    if not isinstance(after, NamedSharding) or not isinstance(argument.dtype, np.dtype):
        return True
    before = argument.sharding
    return isinstance(before, NamedSharding) and in_hlo(after, before, len(argument.shape))


def _placed_on(argument: Any, sharding: Any) -> Any:
    abstract: Any = jax.ShapeDtypeStruct
    return abstract(argument.shape, argument.dtype, sharding=sharding)
