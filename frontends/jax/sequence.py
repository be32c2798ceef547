"""A step that calls several programs -> a workload with them in sequence.

capture_sequence(prepared, recording, compilers)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from flint.capturing.sequences import workload_of_calls
from flint.frontends.jax.called_modules import Site, called_modules
from flint.frontends.jax.compiled import Compilers
from flint.frontends.jax.host.calls import Called, Recording
from flint.frontends.jax.known_results import known_of_results, placed
from flint.frontends.jax.lower.lowering import lower_call
from flint.frontends.jax.lower.prepared import Prepared
from flint.frontends.jax.origin import origin
from flint.workload.workload import Workload


def capture_sequence(prepared: Prepared, recording: Recording, compilers: Compilers) -> Workload:
    """The workload of a step's calls on the host.

    Args:
        prepared: the step.
        recording: its calls.
        compilers: compile lowered calls.

    Raises:
        FlintError: a call cannot be lowered or compiled, or would fail in a run.
    """
    request = prepared.request
    called = called_modules(
        recording, request.options, lambda number, where: Site(prepared, compilers, where)
    )
    workload = workload_of_calls(
        called.modules,
        called.inputs.all(),
        recording.outputs,
        options=request.options.walk.with_choices(called.by_values),
        read_seconds=request.options.read_seconds,
        source=origin(request.name, called.sha256),
        warnings=called.warnings,
    )
    return replace(workload, compiled=called.compiled)


def partitioned_call(
    prepared: Prepared, call: Called, given: Sequence[Any], compilers: Compilers
) -> tuple[Sequence[Any], bytes]:
    """The placement of a call's results by XLA, None if it is not stated; and the module.

    Args:
        prepared: the step.
        call: the call.
        given: shardings of its operands, None for those that may be moved.
        compilers: compile it.
    """
    lowered = lower_call(prepared, call, given, [""] * len(call.operands))
    program = compilers.compiled(lowered)
    results = known_of_results(prepared, call, given)
    return placed(prepared, program, call, results), program.saved[0]
