"""A JAX step as global StableHLO programs, without devices.

The idea: ``jit(step).trace(abstract arguments).lower(...)`` with everything on an abstract mesh.
A function that is already jitted is used unchanged, with its donation, static arguments and
shardings.  One that calls jitted functions, or hides one (a wrapper with ``lower``), is run as on
the host, and the functions that it calls are the programs.  Any other is jitted with the
decorator's keywords.

    lowered = lower(prepare(request))
    lowered.bytecode, lowered.mesh, lowered.interface
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import jax

from flint.capturing.user_frames import short_path
from flint.errors import FlintError
from flint.frontends.jax.host.calls import Called, Recording
from flint.frontends.jax.host.recording import NothingJittedError, calls_jitted, record
from flint.frontends.jax.internals.avals import size_of
from flint.frontends.jax.internals.closures import closed_over, constants_of
from flint.frontends.jax.internals.device_attributes import assumed
from flint.frontends.jax.internals.host_arrays import HostArray
from flint.frontends.jax.internals.platform_forms import lower_for
from flint.frontends.jax.internals.traced_calls import (
    donated_inside,
    kept_operands,
    options_of,
    place_typed_results,
    source_of,
    traced_call,
)
from flint.frontends.jax.lower.arguments import name_of
from flint.frontends.jax.lower.jitting import is_jitted, is_opaque, jitted, parameters_of
from flint.frontends.jax.lower.mlir_interface import Interface, interface_of
from flint.frontends.jax.lower.prepared import Check, Prepared
from flint.frontends.jax.lower.shard_map_names import name_bodies
from flint.frontends.jax.lower.tokens import without_tokens
from flint.frontends.jax.platforms import on_first
from flint.host.readable import human_bytes
from flint.mesh.mesh import Mesh
from flint.workload.programs import Level

NOT_SHARDED = "nothing is sharded: every rank does the whole step"
NO_RESULTS = "no results: JAX leaves out what a step computes and does not return"
#: Words in a module that has values in the host's memory.
_IN_HOST_MEMORY = (b"annotate_device_placement", b"pinned_host")
TIMED_AS_ON_DEVICE = (
    "values in host memory: peak memory counts them on the device, and copies between host and "
    "device are timed as copies within the device"
)


@dataclass(frozen=True, slots=True)
class Lowered:
    """A global program.

    Attributes:
        bytecode: the module, MLIR bytecode.
        mesh: its mesh.
        interface: names, donation and shardings of its inputs and outputs.
        shardy: whether it is annotated for Shardy (otherwise GSPMD).
        warnings: text -> count.
        compiler_options: that its jit was given, name -> value.
        operands: for each input its operand of the call, -1 for a constant; empty if the step is
            one program.
        values: number of an input that is one integer -> its value, if it is known.
        function: the called function and its line, if it is one of those that a step calls.
    """

    bytecode: bytes
    mesh: Mesh
    interface: Interface
    shardy: bool
    warnings: dict[str, int]
    compiler_options: Mapping[str, Any] = field(default_factory=dict)
    operands: tuple[int, ...] = ()
    values: Mapping[int, int] = field(default_factory=dict)
    function: str = ""


def lower(prepared: Prepared) -> Lowered | Recording:
    """Trace and lower a step, as one program if it is one.

    Returns:
        The program; the host side of the step, if it calls several programs or its function is not
        the compiled one.

    Raises:
        FlintError: the step cannot be traced; the text contains the user's source line.
    """
    request, args, kwargs = prepared.request, prepared.args, prepared.kwargs
    if not prepared.settings and is_opaque(request.function):
        return _recorded(prepared)
    plain = not prepared.settings and not is_jitted(request.function)

    def whole(check: Check) -> tuple[Any, dict[str, int], dict[str, Any]] | None:
        step, given, named = jitted(request.function, args, kwargs, prepared.settings)
        traced = step.trace(*given, **named)
        check(traced)
        if plain and calls_jitted(traced):
            return None
        lowered, warnings = _lowered(traced, prepared)
        return lowered, warnings | _not_donated(donated_inside(traced)), options_of(traced)

    try:
        found, context = prepared.in_context(whole)
    except FlintError as error:
        # Host code may read values, and some jits cannot be inside of another.
        recording = _recorded(prepared, instead_of=error) if plain else None
        if recording is None or not recording.jitted:
            raise
        return recording
    if found is None:
        return _recorded(prepared)
    lowered, warnings, options = found
    return _whole(prepared, lowered, warnings | context, options)


def lower_call(
    prepared: Prepared, call: Called, shardings: Sequence[Any], names: Sequence[str]
) -> Lowered:
    """Lower one of the programs that a step calls.

    Args:
        prepared: the step.
        call: the call.
        shardings: of its operands; None if one may be moved.
        names: of its operands, "" if the program's own name for one is best.

    Raises:
        FlintError: it cannot be lowered.
    """

    where = f"{short_path(call.file)}:{call.line}: {call.name}"
    captured = constants_of(call.parameters["jaxpr"], where)

    def one(check: Check) -> tuple[Any, dict[str, int]]:
        avals = [operand.aval for operand in call.operands]
        traced = traced_call(call.parameters, avals, shardings)
        check(traced)
        lowered, warnings = _lowered(traced, prepared)
        return lowered, warnings | _not_donated(donated_inside(traced)) | _closed_over(
            call, captured
        )

    (lowered, warnings), context = prepared.in_context(one)
    constants, kept = kept_operands(lowered)
    options = dict(call.parameters["compiler_options_kvs"])
    result = _whole(prepared, lowered, warnings | context, options)
    operands = (*[-1] * constants, *kept)
    own = result.interface.names
    known = tuple(
        (names[number] if number >= 0 else "") or name
        for number, name in zip(operands, own, strict=True)
    )
    values = {n: call.values[given] for n, given in enumerate(operands) if given in call.values}
    interface = replace(result.interface, names=known)
    function = source_of(call.parameters)
    return replace(result, interface=interface, operands=operands, values=values, function=function)


def _recorded(prepared: Prepared, instead_of: FlintError | None = None) -> Recording:
    """The host side of the step.

    Args:
        prepared: the step.
        instead_of: why it could not be traced whole, which is the error if nothing is jitted.
    """

    def run(_check: Check) -> Recording:
        function = prepared.request.function
        parameters = parameters_of(function)
        try:
            return record(
                function, prepared.args, prepared.kwargs, lambda keys: name_of(keys, parameters)
            )
        except NothingJittedError as error:
            raise instead_of or error.__cause__ or error from error

    recording, warnings = prepared.in_context(run)
    return replace(recording, warnings=recording.warnings | warnings)


def _whole(
    prepared: Prepared, lowered: Any, warnings: dict[str, int], options: Mapping[str, Any]
) -> Lowered:
    mesh = prepared.mesh
    module = lowered.compiler_ir("stablehlo")
    without_tokens(module)
    interface = interface_of(module)
    if not interface.sharded and mesh.size > 1:
        warnings[NOT_SHARDED] = 1
    if not interface.outputs_free:
        warnings[NO_RESULTS] = 1
    warnings |= assumed()
    bytecode = _bytecode(module)
    compiled = prepared.request.level is Level.OPTIMIZED
    if compiled and any(word in bytecode for word in _IN_HOST_MEMORY):
        warnings[TIMED_AS_ON_DEVICE] = 1
    if b"manual_computation" in bytecode:  # in its table of op names: much faster than a walk
        name_bodies(module)
        bytecode = _bytecode(module)
    return Lowered(
        bytecode,
        Mesh(tuple(mesh.axis_sizes), tuple(map(str, mesh.axis_names))),
        interface,
        bool(jax.config.values["jax_use_shardy_partitioner"]),
        warnings if prepared.request.level is Level.OPTIMIZED else warnings | _without(options),
        options,
    )


def _not_donated(sizes: Sequence[int]) -> dict[str, int]:
    """A warning for buffers donated by a jit inside of a jitted function: they are not reused."""
    if not sizes:
        return {}
    text = (
        "donated by a jit inside a jitted function, which has no effect, as in a run: "
        f"{human_bytes(sum(sizes))} of whole arrays stay in memory beside their replacements; "
        "donate them to the outer jit"
    )
    return {text: len(sizes)}


def _closed_over(call: Called, arrays: Sequence[HostArray]) -> dict[str, int]:
    """A warning for arrays that a jitted function closes over."""
    if not arrays:
        return {}
    size = human_bytes(sum(size_of(item.aval) for item in arrays))
    text = (
        f"{call.name} closes over arrays of {size}: every device has all of them as constants, "
        "however they are sharded, as in a run; pass them as arguments"
    )
    return {text: len(arrays)}


def _without(options: Mapping[str, Any]) -> dict[str, int]:
    """A warning for compiler options of a jit that no compiler receives."""
    if not options:
        return {}
    text = (
        f"compiler options of jit ({', '.join(options)}) are for the optimized level (--target): "
        "only the partitioner has run, and memory is that without them"
    )
    return {text: 1}


def _bytecode(module: Any) -> bytes:
    written = io.BytesIO()
    module.operation.write_bytecode(written)
    return written.getvalue()


def _lowered(traced: Any, prepared: Prepared) -> tuple[Any, dict[str, int]]:
    platforms = prepared.platforms
    compiled = prepared.request.level is Level.OPTIMIZED
    if prepared.devices is None:
        place_typed_results(traced)
    with closed_over():
        (lowered, warnings), platform = on_first(
            platforms, lambda platform: lower_for(traced, platform, compiled=compiled)
        )
    if platform != platforms[0]:
        warnings[f"lowered for {platform}: an op of the step has no CPU form"] = 1
    return lowered, warnings
