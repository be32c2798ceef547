"""Which of the programs in a JAX profile is meant.

The idea: programs of one name differ in the types of their arguments and results, in the devices
that they ran on, or only in their number.

    asked_events(file, events, AskedProgram("jit_step"), protos)
"""

from __future__ import annotations

import contextlib
from collections import Counter
from pathlib import Path

from google.protobuf.message import DecodeError

from flint.converters.profilers.xplane.events import Event
from flint.errors import FlintError
from flint.hlo.messages import parse_module, signature
from flint.observed.program_runs import AskedProgram


def asked_events(
    file: Path, events: list[Event], asked: AskedProgram, protos: dict[str, bytes]
) -> list[Event]:
    """The events of a program."""
    name, number, types, of, devices = asked
    found = labels_of(events, name)
    if devices:
        on = {label: {e.device for e in events if e.program == label} for label in found}
        found = [label for label in found if on[label] <= {*devices}]
    if types and len(found) > 1:
        same = [label for label in found if types_of(label, protos) == types]
        found = same[-of:] or found
    if number >= len(found):
        ran = ", ".join(sorted({event.program.rpartition("(")[0] for event in events})[:8])
        times = f" {number + 1} different ones" if number else ""
        raise FlintError(f"{file}: the step runs{times} {name}; the trace contains {ran}")
    return [event for event in events if event.program == found[number]]


def types_of(label: str, protos: dict[str, bytes]) -> str:
    """The types of a program's arguments and results; "" without its HLO."""
    with contextlib.suppress(DecodeError, KeyError):
        return signature(parse_module(protos[label]))
    return ""


def labels_of(events: list[Event], name: str) -> list[str]:
    """The programs of a name, in the order in which they began."""
    begun: dict[str, int] = {}
    for event in events:
        if event.program.rpartition("(")[0] == name:
            begun[event.program] = min(begun.get(event.program, event.start), event.start)
    return sorted(begun, key=lambda label: begun[label])


def chosen_program(file: Path, events: list[Event], protos: dict[str, bytes]) -> tuple[str, bytes]:
    """The profiled program: the one with the most time among those with HLO.

    A step that ran once, and then was compiled anew for the shardings of its own results, is
    represented by what ran from then on.
    """
    spent: dict[str, int] = {}
    for event in events:
        spent[event.program] = spent.get(event.program, 0) + event.duration
    for program in sorted(spent, key=lambda item: -spent[item]):
        # Programs of one name differ in their number; some backends leave it out.
        name = program.rpartition("(")[0]
        named = [label for label in protos if label.rpartition("(")[0] == name]
        label = program if program in protos else named[0] if len(named) == 1 else None
        if label is not None:
            settled = _compiled_anew(program, events, protos) if program in protos else None
            return (settled, protos[settled]) if settled else (program, protos[label])
    raise FlintError(
        f"{file}: the HLO of {', '.join(sorted(spent)[:4])} is not in the trace, so its ops have "
        "no shapes; trace with the profiler's option enable_hlo_proto (the default)"
    )


def _compiled_anew(program: str, events: list[Event], protos: dict[str, bytes]) -> str | None:
    """The later version of a program that ran once, with as many arguments and results, which ran
    more often, and longest; None without.
    """
    labels = labels_of(events, program.rpartition("(")[0])
    later = [label for label in labels[labels.index(program) + 1 :] if label in protos]
    if not later:
        return None
    runs: dict[str, Counter[tuple[int, str]]] = {label: Counter() for label in labels}
    spent: Counter[str] = Counter()
    for event in events:
        if event.program in runs:
            runs[event.program][event.device, event.hlo] += 1
            spent[event.program] += event.duration
    # What is in no loop runs once in each run.
    often = {label: min(counts.values()) for label, counts in runs.items()}
    arity = _arity(protos[program])
    same = [label for label in later if often[label] > 1 and _arity(protos[label]) == arity]
    if often[program] > 1 or not same:
        return None
    return max(same, key=lambda label: spent[label])


def _arity(proto: bytes) -> tuple[int, int] | None:
    """How many arguments and results a program has; None if it cannot be read."""
    with contextlib.suppress(DecodeError):
        shapes = parse_module(proto).host_program_shape
        return len(shapes.parameters), len(shapes.result.tuple_shapes)
    return None
