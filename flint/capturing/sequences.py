"""The workload of a step that calls several compiled programs in sequence.

The idea: each program is walked and put into issue order separately, as it is compiled and run.
``flint.passes.in_sequence`` joins them into one graph, so that all readers of a workload can read
it; the calls are kept for display and for donated buffers.

    workload_of_calls(calls, step_inputs, outputs, options=options, source=source, warnings={})
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from flint.capturing.converting import assembled, in_order
from flint.graph.graph import Source
from flint.passes.in_sequence import Link, Origin, Read, in_sequence
from flint.stablehlo.options import WalkOptions
from flint.stablehlo.read.records import Module
from flint.stablehlo.walker import Walked
from flint.workload.programs import Call, ProgramInput
from flint.workload.workload import Workload


@dataclass(frozen=True, slots=True)
class CalledModule:
    """A call, with the module that it runs.

    Attributes:
        call: what is known about it.
        walked: its module's graph.
        module: the records.
        held: values in addition to its outputs that are in memory until it ends.
    """

    call: Call
    walked: Walked
    module: Module
    held: tuple[Origin, ...] = ()


def workload_of_calls(
    calls: Sequence[CalledModule],
    inputs: Sequence[ProgramInput],
    outputs: Sequence[Origin],
    *,
    options: WalkOptions,
    read_seconds: float,
    source: dict[str, str],
    warnings: dict[str, int],
) -> Workload:
    """The workload of programs in sequence: ordered, split by rank, verified.

    Args:
        calls: in order.
        inputs: the step's inputs; ``donated`` is found here, where no call takes the buffer.
        outputs: what the step returns.
        options: the walk's options, for the record.
        read_seconds: from a program's end until the host, which reads a value of it, starts the
            next one.
        source: name and hash of the input.
        warnings: what capturing noticed, text -> count.
    """
    nanoseconds = round(read_seconds * 1e9)
    links = [
        Link(
            in_order(item.module, item.walked.graph),
            item.call.operands,
            item.held,
            tuple(
                Read(read.value, Source("", read.file, read.line), nanoseconds)
                for read in item.call.reads
            ),
        )
        for item in calls
    ]
    graph = in_sequence(links, [item.type for item in inputs], outputs)
    for item in calls:
        warnings = warnings | item.walked.warnings
    first = calls[0]
    return assembled(
        replace(first.walked, graph=graph, warnings=warnings),
        first.module,
        options=options,
        source=source,
        inputs=_with_donations(inputs, [item.call for item in calls], outputs),
        calls=tuple(item.call for item in calls),
    )


def _with_donations(
    inputs: Sequence[ProgramInput], calls: Sequence[Call], outputs: Sequence[Origin]
) -> tuple[ProgramInput, ...]:
    """The step's inputs with the outputs of the step that reuse their buffers."""
    lies_in: dict[Origin, Origin] = {}
    for number, call in enumerate(calls):
        for item, origin in zip(call.inputs, call.operands, strict=True):
            if item.donated >= 0:
                lies_in[Origin(number, item.donated)] = lies_in.get(origin, origin)
    found = {lies_in.get(origin, origin): number for number, origin in enumerate(outputs)}
    return tuple(
        replace(item, donated=found.get(Origin(-1, number), -1))
        if Origin(-1, number) in set(lies_in.values())
        else item
        for number, item in enumerate(inputs)
    )
