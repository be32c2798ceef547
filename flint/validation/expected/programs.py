"""The programs that are compared one by one, if a step calls several.

The idea: a profiler distinguishes programs, and each is compiled separately.  So each is compared
with its own runs; one that the step calls several times is compared once.

    for part in compared(workload):       # part.asked None: the step is one program
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from typing import NamedTuple

from google.protobuf.message import DecodeError

from flint.errors import FlintError
from flint.graph.graph import NodeKind
from flint.graph.work import Role
from flint.hlo.messages import parse_module, signature
from flint.observed.columns import Observed
from flint.observed.program_runs import AskedProgram
from flint.passes.one_of_sequence import alone
from flint.stablehlo.options import choices_for
from flint.workload.programs import DEVICES, Call, Program
from flint.workload.workload import Workload

_MOVE = re.compile(r"device_put(_\d+)?")
NOT_COMPARED = "jax.device_put, which copies within one process: not compared"


class Part(NamedTuple):
    """One program of a step.

    Attributes:
        workload: the programs of the ranks that run it, of this program alone.
        asked: the program in a run; None: the step is one program.
        ranks: the ranks that run it, in the order of its devices; () for all.
    """

    workload: Workload
    asked: AskedProgram | None
    ranks: tuple[int, ...] = ()


def compared(workload: Workload) -> list[Part]:
    """The programs of a step, each as a workload of its own.

    Raises:
        FlintError: a program in sequence without its module.
    """
    if not any(program.calls for program in workload.programs):
        return [Part(workload, None)]
    # For each module, and the ranks that run it, the first call of each program.
    first: dict[tuple[bytes, tuple[int, ...]], dict[int, int]] = {}
    for place, program in enumerate(workload.programs):
        for number, call in enumerate(program.calls):
            if not is_move(call):
                key = call.module[0] if call.module else b"", call.ranks
                first.setdefault(key, {}).setdefault(place, number)
    devices = workload.options.get(DEVICES, ())
    known = []
    for (_, ranks), numbers in first.items():
        [(place, number), *_] = numbers.items()
        ids = tuple(sorted(devices[rank] for rank in ranks)) if devices else ()
        known.append(in_run(workload.programs[place].calls[number])._replace(devices=ids))
    of, before = Counter(known), Counter[AskedProgram]()
    parts = []
    for ((_, ranks), numbers), found in zip(first.items(), known, strict=True):
        programs = tuple(_part(workload.programs[place], n) for place, n in numbers.items())
        [(place, number), *_] = numbers.items()
        name = workload.programs[place].calls[number].name
        chosen = {
            key: choices_for(workload.options.get(key, {}), name)
            for key in ("trip_counts", "branches")
        }
        part = replace(workload, programs=programs, options=workload.options | chosen)
        parts.append(Part(part, found._replace(number=before[found], of=of[found]), ranks))
        before[found] += 1
    return parts


def is_move(call: Call) -> bool:
    """Whether it only moves an array: a program in a cluster, but copies within one process.

    Between devices of different programs, messages move it.
    """
    return not call.jitted and (call.module is None or _MOVE.fullmatch(call.name) is not None)


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
