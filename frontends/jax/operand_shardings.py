"""The shardings of a program's operands, and those that it is compiled for.

The idea: a jitted function is compiled for its operands' shardings; one whose jit has
``in_shardings``, or that was lowered and compiled before its call, accepts no others.  The capture
stops if a run would stop.

    where = argument_shardings(recording)           # and, call by call, what each has returned
    lower_call(prepared, call, operand_shardings(prepared, call, where), names)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jax.sharding import Mesh, NamedSharding

from flint.capturing.user_frames import short_path
from flint.errors import FlintError
from flint.frontends.jax.host.calls import Called, Operand, Recording
from flint.frontends.jax.internals.placements import in_hlo, taken
from flint.frontends.jax.lower.lowering import Lowered
from flint.frontends.jax.lower.prepared import Prepared
from flint.passes.in_sequence import Origin
from flint.workload.programs import Level

#: Why a run stops at a call.
OF_A_JIT = (
    "its jit has {} in in_shardings: a run stops here with 'Sharding passed to jit does not match'"
)
AHEAD = (
    "it was compiled for {} before: a run stops here with 'Computation was compiled for input "
    "shardings that disagree'"
)


def argument_shardings(recording: Recording) -> dict[Origin, Any]:
    """The shardings of the step's arguments; None if they have none."""
    return {
        Origin(-1, number): getattr(leaf, "sharding", None)
        for number, leaf in enumerate(recording.arguments)
    }


def operand_shardings(prepared: Prepared, call: Called, where: Mapping[Origin, Any]) -> list[Any]:
    """Shardings that a call's operands are compiled for; None if the compiler chooses.

    Raises:
        FlintError: an operand has another sharding than its program was given or compiled for.
    """
    found = []
    for number, operand in enumerate(call.operands):
        has = _has(operand, where)
        _check_sharding(call, operand, has, call.parameters["in_shardings"][number], OF_A_JIT)
        if call.compiled_for:
            ahead = call.compiled_for[number]
            ahead = where[ahead] if isinstance(ahead, Origin) else ahead
            _check_sharding(call, operand, has, ahead, AHEAD)
            if (
                prepared.devices is None  # all is on the capture's abstract mesh
                and isinstance(ahead, NamedSharding)
                and isinstance(ahead.mesh, Mesh)
            ):
                ahead = NamedSharding(prepared.grid, ahead.spec)
            has = ahead
        found.append(has)
    return found


def _has(operand: Operand, where: Mapping[Origin, Any]) -> Any:
    return where.get(operand.origin) if operand.origin is not None else None


def _check_sharding(call: Called, operand: Operand, has: Any, wanted: Any, words: str) -> None:
    if has is None or in_hlo(wanted, has, operand.aval.ndim):
        return
    raise FlintError(
        f"{short_path(call.file)}:{call.line}: {call.name} is called with an array that is sharded "
        f"as {has.spec}, but {words.format(wanted.spec)}; jax.device_put moves it"
    )


def check_chosen(
    prepared: Prepared, call: Called, lowered: Lowered, proto: bytes, where: Mapping[Origin, Any]
) -> None:
    """Refuse a program that was compiled before its call, for other shardings of XLA's choice.

    Args:
        prepared: the step.
        call: the call.
        lowered: its program.
        proto: the same, compiled.
        where: shardings of arrays.

    Raises:
        FlintError: the program was compiled for other shardings.
    """
    if None not in call.compiled_for or prepared.request.level is Level.LOGICAL:
        return
    chosen = taken(proto, prepared.mesh)
    for number, wanted in zip(lowered.operands, chosen, strict=False):
        if number >= 0 and call.compiled_for[number] is None:
            operand = call.operands[number]
            _check_sharding(call, operand, _has(operand, where), wanted, AHEAD)
