"""The programs that a step calls, compiled one after another.

The idea: each call is lowered with the shardings that its operands really have, those of the step's
arguments and of what the programs before it returned, and compiled separately; a program that is
called twice is compiled once.  The next call gets the placement that the compiler has chosen for
the results, as in a run.

    called = called_modules(recording, options, lambda n, where: Site(prepared, compilers, where))
    called.modules, called.inputs.all()
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from flint.capturing.converting import program_inputs
from flint.capturing.request import CaptureOptions
from flint.capturing.sequences import CalledModule
from flint.capturing.user_frames import named_lines, short_path
from flint.frontends.jax.compiled import CompiledProgram, Compilers
from flint.frontends.jax.host.calls import Called, Recording
from flint.frontends.jax.known_results import Known, known_of_results, placed
from flint.frontends.jax.lower.lowering import NOT_SHARDED, Lowered, lower_call
from flint.frontends.jax.lower.mlir_interface import named_inputs, role_of
from flint.frontends.jax.lower.prepared import Prepared
from flint.frontends.jax.operand_shardings import (
    argument_shardings,
    check_chosen,
    operand_shardings,
)
from flint.graph.tensor_types import TensorType
from flint.passes.in_sequence import Origin
from flint.stablehlo.options import WalkOptions, unused_choices
from flint.stablehlo.sources.phases import within
from flint.stablehlo.walker import Walked
from flint.workload.compiler_report import CompilerReport
from flint.workload.programs import Call, HostRead, ProgramInput

#: Characters that are not allowed in a file's name, and the longest name.
_UNNAMEABLE = re.compile(r"[^A-Za-z0-9_.-]")
_LONGEST = 60


@dataclass(frozen=True, slots=True)
class _Made:
    """A compiled call: its program, its graph by values of its inputs, and where results lie."""

    program: CompiledProgram
    walked: Walked
    shardings: tuple[Any, ...]
    values: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class Site:
    """The devices that a call runs on.

    Attributes:
        prepared: the step on their mesh.
        compilers: compile for it.
        where: shardings of arrays there, as the call gets them.
    """

    prepared: Prepared
    compilers: Compilers
    where: Mapping[Origin, Any]


#: The devices of a call, by its number and the shardings of all arrays so far.
SiteOf = Callable[[int, Mapping[Origin, Any]], Site]


@dataclass(frozen=True, slots=True)
class CalledModules:
    """A step's calls, compiled.

    Attributes:
        modules: one per call.
        inputs: the step's inputs.
        where: shardings of the step's arguments and of all results.
        warnings: text -> count.
        by_values: trip counts and branches that follow from values, by name.
        sha256: hash of all programs.
        compiled: the compiler's report, if one has compiled them.
    """

    modules: list[CalledModule]
    inputs: StepInputs
    where: dict[Origin, Any]
    warnings: dict[str, int]
    by_values: dict[str, int]
    sha256: str
    compiled: CompilerReport | None


def called_modules(
    recording: Recording, request_options: CaptureOptions, site_of: SiteOf
) -> CalledModules:
    """A step's calls, compiled in order.

    Args:
        recording: the calls.
        request_options: limits, and choices of the walk.
        site_of: the devices that a call runs on.

    Raises:
        FlintError: a call cannot be lowered or compiled, or would fail in a run.
    """
    where = argument_shardings(recording)
    known: dict[Any, _Made] = {}
    by_values: dict[str, int] = {}
    modules: list[CalledModule] = []
    reports: list[CompilerReport | None] = []
    ignored: list[frozenset[str]] = []
    inputs = StepInputs(recording)
    warnings = dict(recording.warnings) | _remarks(recording)
    names = _distinct([call.name for call in recording.calls])
    digest = hashlib.sha256()
    unsharded = 0
    for number, call in enumerate(recording.calls):
        site = site_of(number, where)
        prepared, compilers = site.prepared, site.compilers
        given = operand_shardings(prepared, call, site.where)
        lowered = lower_call(prepared, call, given, _names(recording, call))
        results = known_of_results(prepared, call, given)
        unsharded += lowered.warnings.pop(NOT_SHARDED, 0)
        warnings |= lowered.warnings
        content = hashlib.sha256(lowered.bytecode).digest()
        digest.update(content)
        options = request_options.walk.for_program(names[number])
        key = content, repr(options), results, prepared.devices
        made = known.get(key)
        if made is not None and lowered.values != made.values:
            walked = compilers.walked(made.program, lowered, options)
            made = replace(made, walked=walked, values=lowered.values)
        if made is None:
            made = known[key] = _made(prepared, lowered, compilers, call, results, options)
        check_chosen(prepared, call, lowered, made.program.saved[0], site.where)
        for result, sharding in enumerate(made.shardings):
            where[Origin(number, result)] = sharding
        program = made.program
        by_values |= {f"{names[number]}/{name}": n for name, n in made.walked.by_values.items()}
        ignored.append(made.walked.unused)
        alone = unused_choices(options, ("",), ignored[-1:])
        reports.append(program.compiled)
        own = named_inputs(program_inputs(program.module, made.walked.graph), lowered.interface)
        operands = [
            inputs.constant(item) if operand < 0 else inputs.of(call.operands[operand].origin, item)
            for operand, item in zip(lowered.operands, own, strict=True)
        ]
        modules.append(
            CalledModule(
                Call(
                    name=names[number],
                    inputs=own,
                    operands=tuple(operands),
                    outputs=call.results,
                    reads=tuple(HostRead(r.origin, r.file, r.line) for r in call.reads),
                    file=call.file,
                    line=call.line,
                    jitted=call.jitted,
                    module=program.saved,
                    listing=program.listing,
                ),
                replace(
                    made.walked,
                    graph=within(made.walked.graph, call.path),
                    warnings={t: n for t, n in made.walked.warnings.items() if t not in alone},
                ),
                program.module,
                _held(recording.calls, number),
            )
        )
        warnings |= program.module.warnings
    warnings |= unused_choices(request_options.walk, names, ignored)
    spread = any(any(getattr(item, "spec", ())) for item in where.values())  # else on one device
    if unsharded and not spread:
        warnings[NOT_SHARDED] = 1
    return CalledModules(
        modules, inputs, where, warnings, by_values, digest.hexdigest(), _report(reports)
    )


class StepInputs:
    """The inputs of the step: its arguments, and values that the host passes to programs."""

    def __init__(self, recording: Recording) -> None:
        self._found: dict[int, ProgramInput] = {}
        self._names = recording.names
        self._constants: list[ProgramInput] = []

    def of(self, origin: Origin | None, item: ProgramInput) -> Origin:
        """The origin of an operand; ``item`` is the program's description of it."""
        if origin is None:
            return self.constant(item)
        if origin.program < 0:
            self._found.setdefault(origin.number, replace(item, donated=-1))
        return origin

    def constant(self, item: ProgramInput) -> Origin:
        """An operand whose value the host has."""
        self._constants.append(replace(item, role="constant", donated=-1))
        return Origin(-1, len(self._names) + len(self._constants) - 1)

    def all(self) -> list[ProgramInput]:
        """Arguments in order, those that no program takes with no size, and then the rest."""
        unused = TensorType((0,), "i8", 0)
        arguments = [
            self._found.get(number, ProgramInput(unused, role_of(name), name))
            for number, name in enumerate(self._names)
        ]
        return [*arguments, *self._constants]


def _made(
    prepared: Prepared,
    lowered: Lowered,
    compilers: Compilers,
    call: Called,
    results: Known,
    options: WalkOptions,
) -> _Made:
    program = compilers.compiled(lowered)
    walked = compilers.walked(program, lowered, options)
    return _Made(program, walked, placed(prepared, program, call, results), lowered.values)


def _names(recording: Recording, call: Called) -> list[str]:
    """Names of operands that are the step's arguments, "" for others."""
    return [
        recording.names[item.origin.number] if item.origin and item.origin.program < 0 else ""
        for item in call.operands
    ]


def _held(calls: Sequence[Called], number: int) -> tuple[Origin, ...]:
    """Results of earlier programs that are in memory until this one ends."""
    call = calls[number]
    gone = {origin for earlier in calls[:number] for origin in earlier.gone}
    gone -= {item.origin for item in call.operands if item.origin is not None}
    for earlier in calls[: number + 1]:
        gone.update(earlier.deleted)
    made = [Origin(n, result) for n in range(number) for result in range(calls[n].results)]
    return tuple(origin for origin in made if origin not in gone)


def _distinct(names: Sequence[str]) -> list[str]:
    """The names, numbered from the second one of a name on."""
    seen: Counter[str] = Counter()
    found = []
    for name in names:
        plain = _UNNAMEABLE.sub("_", name).strip("_.")[:_LONGEST] or "jit"
        seen[plain] += 1
        found.append(plain if seen[plain] == 1 else f"{plain}_{seen[plain]}")
    return found


def _remarks(recording: Recording) -> dict[str, int]:
    """A warning for ops that run outside of every jit."""
    outside = [call for call in recording.calls if not call.jitted and call.name != "device_put"]
    if not outside or not recording.jitted:
        return {}
    lines = named_lines(f"{short_path(call.file)}:{call.line}" for call in outside)
    return {
        "ops outside of the step's jitted functions, each a program of its own, as in a run "
        f"({lines}): jit the step for one program": len(outside)
    }


def _report(reports: Sequence[CompilerReport | None]) -> CompilerReport | None:
    """The compiler's report on all calls: costs added up, memory of the largest."""
    known = [report for report in reports if report is not None]
    if not known:
        return None
    most = max(known, key=lambda report: report.needed_bytes or 0)

    def total(name: str) -> Any:
        stated = [getattr(report, name) for report in known]
        return None if None in stated else sum(stated)

    costs: dict[str, Any] = {
        name: total(name) for name in ("flops", "bytes_accessed", "transcendentals")
    }
    return replace(most, **costs)
