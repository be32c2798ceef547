"""A JAX step -> a workload, at the logical, the partitioned or the optimized level.

The idea: lower the step, have XLA partition it or compile it for a target (in a child that starts
while the step is traced), read and walk the result.  A step that calls several jitted functions is
several programs in sequence (``sequence.py``).

    workload = capture(request)
"""

from __future__ import annotations

import hashlib
from dataclasses import replace

from flint import registry
from flint.capturing.converting import program_inputs, workload_of
from flint.capturing.request import Request
from flint.capturing.targets import target
from flint.capturing.user_frames import short_path
from flint.errors import FlintError, UsageError
from flint.frontends.jax.compiled import Compilers
from flint.frontends.jax.host.calls import Recording
from flint.frontends.jax.internals.tracing import whole_tracebacks
from flint.frontends.jax.lower.lowering import Lowered, lower, lower_call
from flint.frontends.jax.lower.mlir_interface import named_inputs
from flint.frontends.jax.lower.prepared import ANY_GPU, Prepared, prepare
from flint.frontends.jax.lower.setup_arguments import OtherFrameworkError
from flint.frontends.jax.operand_shardings import argument_shardings, operand_shardings
from flint.frontends.jax.origin import origin
from flint.frontends.jax.sequence import capture_sequence
from flint.frontends.jax.targets.table import table
from flint.passes.one_iteration import one_iteration
from flint.stablehlo.walker import Walked
from flint.workload.programs import ProgramInput
from flint.workload.workload import Workload


def capture(request: Request) -> Workload:
    """Capture a JAX step.

    Raises:
        UsageError, FlintError: as ``flint.capturing.decorator.Capture.capture``.
    """
    if request.options.audit is not None:
        raise UsageError(
            "audit (--audit) is for PyTorch, where a few recorded ranks stand for all; a JAX "
            "capture covers every rank: omit the option"
        )
    if request.target is not None:
        target(request.target)  # names what has to be installed
    with whole_tracebacks(), Compilers(request) as compilers:
        try:
            prepared = _prepared(request)
        except OtherFrameworkError as other:
            compilers.close()
            workload: Workload = registry.frontend(str(other))(request)
            return workload
        lowered = lower(prepared)
        if isinstance(lowered, Recording):
            return capture_recording(prepared, lowered, compilers)
        return _captured(request, lowered, compilers)


def capture_recording(
    prepared: Prepared, recording: Recording, compilers: Compilers, *, one_round: bool = False
) -> Workload:
    """The workload of a step's calls on the host: of one program, or of several in sequence.

    Args:
        prepared: the step.
        recording: its calls.
        compilers: compile lowered calls.
        one_round: the step is one iteration of its only program's main loop.

    Raises:
        FlintError: a program cannot be lowered or compiled, or has no loop.
    """
    alone = _alone(prepared, recording)
    if alone is None:
        return capture_sequence(prepared, recording, compilers)
    return _captured(prepared.request, alone, compilers, one_round)


def _prepared(request: Request) -> Prepared:
    if request.target is None:
        return prepare(request)
    row = table()[request.target]
    return prepare(request, (row.platform,), row.capability or ANY_GPU)


def _alone(prepared: Prepared, recording: Recording) -> Lowered | None:
    """The only program that a step calls, with the step's arguments; None if there are more."""
    if len(recording.calls) != 1:
        return None
    [call] = recording.calls
    where = argument_shardings(recording)
    origins = [item.origin for item in call.operands]
    names = ["" if origin is None else recording.names[origin.number] for origin in origins]
    shardings = operand_shardings(prepared, call, where)
    lowered = lower_call(prepared, call, shardings, names)
    return replace(lowered, warnings=recording.warnings | lowered.warnings)


def _captured(
    request: Request, lowered: Lowered, compilers: Compilers, one_round: bool = False
) -> Workload:
    """The workload of a step that is one program."""
    program = compilers.compiled(lowered)
    compilers.close()
    module = program.module
    module.warnings = module.warnings | lowered.warnings
    walked = compilers.walked(program, lowered)
    options = request.options.walk.with_choices(walked.by_values)
    inputs = named_inputs(program_inputs(module, walked.graph), lowered.interface)
    if one_round:
        walked, inputs = _one_round(request.name, walked)
    workload = workload_of(
        walked,
        module,
        options=options,
        source=origin(request.name, hashlib.sha256(lowered.bytecode).hexdigest()),
        saved=program.saved,
        listing=program.listing,
        inputs=inputs,
    )
    return replace(workload, compiled=program.compiled)


def _one_round(name: str, walked: Walked) -> tuple[Walked, tuple[ProgramInput, ...]]:
    """One iteration of a program's main loop, and its inputs: it updates what the loop carries.

    Raises:
        FlintError: there is no loop.
    """
    found = one_iteration(walked.graph)
    if found is None:
        raise FlintError(f"{name} has no loop: capture it whole, with --step {name}:1")
    graph, rounds = found
    [node] = graph
    loop, source = graph.loops[0], node.source
    at = f" at {short_path(source.file)}:{source.line}" if source.file else ""
    inputs = tuple(
        ProgramInput(type=graph.type_of(number), donated=number if number < loop.carried else -1)
        for number in range(graph.inputs)
    )
    text = (
        f"the step is one of the {rounds:,} iterations of the loop{at} in {name}; "
        f"--step {name}:call captures the whole call"
    )
    return replace(walked, graph=graph, warnings=walked.warnings | {text: 1}), inputs
