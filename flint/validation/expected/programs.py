"""The programs that are compared one by one, if a step calls several.

The idea: a profiler distinguishes programs, and each is compiled separately.  So each is compared
with its own runs; one that the step calls several times is compared once.

    for part, name in compared(workload):       # name None: the step is one program
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from google.protobuf.message import DecodeError

from flint.errors import FlintError
from flint.graph.graph import NodeKind
from flint.graph.work import Role
from flint.hlo.messages import parse_module, signature
from flint.observed.columns import Observed
from flint.observed.program_runs import AskedProgram
from flint.passes.one_of_sequence import alone
from flint.stablehlo.options import choices_for
from flint.workload.programs import Call, Program
from flint.workload.workload import Workload

_MOVE = re.compile(r"device_put(_\d+)?")
NOT_COMPARED = "jax.device_put, which copies within one process: not compared"


def compared(workload: Workload) -> Iterator[tuple[Workload, AskedProgram | None]]:
    """Workloads of one program each, with the program that it is in a run.

    Raises:
        FlintError: a program in sequence without its module.
    """
    calls = workload.programs[0].calls
    if not calls:
        yield workload, None
        return
    first: dict[bytes, int] = {}
    for number, call in enumerate(calls):
        if not is_move(call):
            first.setdefault(call.module[0] if call.module else b"", number)
    known = [in_run(calls[number]) for number in first.values()]
    of, before = Counter(known), Counter[AskedProgram]()
    for number, found in zip(first.values(), known, strict=True):
        call = calls[number]
        programs = tuple(_part(program, number) for program in workload.programs)
        chosen = {
            key: choices_for(workload.options.get(key, {}), call.name)
            for key in ("trip_counts", "branches")
        }
        options = workload.options | chosen
        asked = found._replace(number=before[found], of=of[found])
        yield replace(workload, programs=programs, options=options), asked
        before[found] += 1


def is_move(call: Call) -> bool:
    """Whether it only moves an array: a program in a cluster, but copies within one process."""
    return not call.jitted and _MOVE.fullmatch(call.name) is not None


def is_light(part: Workload, trace: Observed) -> bool:
    """Whether no op of a program must match: neither the capture nor the run has such an op."""
    heavy = any(
        bool(((graph.kind == NodeKind.COMMUNICATION) | (graph.role == Role.CONTRACTION)).any())
        for program in part.programs
        for graph, _ in program.graph.walk()
    )
    return not heavy and not any(facts.kind.must_match for facts in trace.facts)


def _part(program: Program, number: int) -> Program:
    call = program.calls[number]
    outputs = [item.outputs for item in program.calls]
    return replace(
        program,
        graph=alone(program.graph, number, call.operands, outputs),
        inputs=call.inputs,
        module=call.module,
        listing=call.listing,
        calls=(),
    )


def in_run(call: Call) -> AskedProgram:
    """The program in a run: it has the module's name and types."""
    try:
        module = parse_module(call.module[0] if call.module else b"")
    except DecodeError as error:
        raise FlintError(f"the module of {call.name} is damaged ({error})") from error
    if not module.name:
        raise FlintError(f"the workload lacks the module of {call.name}, one of its programs")
    return AskedProgram(module.name, types=signature(module))
