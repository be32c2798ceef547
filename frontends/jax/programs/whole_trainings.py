"""Programs that are a whole training: one call, with the steps in a loop inside of it.

The idea: what a training step is called with is about as large as what it renews, while a whole
training makes its parameters itself, from a key, and its loop carries them.  A call that gets its
parameters is one if it never comes again, and its loop computes gradients in each of its rounds.

    last_of(recorder.calls)         # the call, or None
    last_loop_of(recorder.calls)
"""

from __future__ import annotations

from collections.abc import Sequence

from flint.frontends.jax.host.calls import Called
from flint.frontends.jax.internals.avals import aval_of, inexact_bytes
from flint.frontends.jax.internals.jaxprs import (
    has_gradients,
    has_training_loop,
    is_backward,
    loop_carries,
)

#: A loop that carries more than this times the operands of its program trains what that has made.
_MADE_INSIDE = 10


def is_whole_training(call: Called) -> bool:
    """Whether a call makes most of what a loop inside of it carries."""
    program = call.parameters["jaxpr"]
    given = inexact_bytes([*(item.aval for item in call.operands), *map(aval_of, program.consts)])
    return call.jitted and loop_carries(program.jaxpr) > _MADE_INSIDE * given


def has_loop(call: Called) -> bool:
    """Whether a call has a loop that carries anything but counters."""
    return call.jitted and loop_carries(call.parameters["jaxpr"].jaxpr) > 0


def computes_gradients(call: Called) -> bool:
    """Whether a call computes gradients, or is part of their computation."""
    return is_backward(call.path) or has_gradients(call.parameters["jaxpr"])


def last_of(calls: Sequence[Called]) -> Called | None:
    """The last such call."""
    return next(filter(is_whole_training, reversed(calls)), None)


def last_loop_of(calls: Sequence[Called]) -> Called | None:
    """The last call whose loop trains what the call is given."""
    return next(filter(trains_in_a_loop, reversed(calls)), None)


def trains_in_a_loop(call: Called) -> bool:
    """Whether a call has a loop with a gradient in each round, and is not part of a gradient."""
    return (
        has_loop(call)
        and not is_backward(call.path)
        and has_training_loop(call.parameters["jaxpr"].jaxpr)
    )
