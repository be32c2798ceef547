"""The workload of a step that calls several compiled programs in sequence.

The idea: each program is walked and put into issue order separately, as it is compiled and run.
``flint.passes.in_sequence`` joins them into one graph, so that all readers of a workload can read
it; the calls are kept for display and for donated buffers.

    workload_of_calls(calls, step_inputs, outputs, options=options, source=source, warnings={})
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from flint.capturing.converting import (
    assembled,
    in_order,
    level_of,
    of_programs,
    order_of,
    with_input_copies,
)
from flint.capturing.user_frames import short_path
from flint.errors import FlintError
from flint.graph.graph import Source, WorkloadGraph
from flint.mesh.mesh import Mesh
from flint.mesh.ranks import RankSet
from flint.passes.branches import split_by_rank
from flint.passes.in_sequence import Link, Message, Origin, Read, in_sequence
from flint.passes.optimizer_phase import mark_optimizer
from flint.stablehlo.options import WalkOptions
from flint.stablehlo.read.records import Module
from flint.stablehlo.walker import Walked
from flint.workload.programs import Call, Program, ProgramInput
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
    links = [_link(item, read_seconds) for item in calls]
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


@dataclass(frozen=True, slots=True)
class Moved:
    """An array that moves between ranks of different programs, as some ranks see it.

    Attributes:
        call: what is known about it: it takes the array if it is here, and returns it if it
            arrives.
        graph: its messages.
        awaited: whether the host waits for it, where it arrives.
    """

    call: Call
    graph: WorkloadGraph
    awaited: bool = False


@dataclass(frozen=True, slots=True)
class RankSequence:
    """What some ranks run.

    Attributes:
        ranks: the ranks.
        calls: calls of programs and arrays that move, in order; origins are numbers among these.
        inputs: the step's inputs.
        outputs: what the step returns of them.
    """

    ranks: RankSet
    calls: Sequence[CalledModule | Moved]
    inputs: Sequence[ProgramInput]
    outputs: Sequence[Origin]


def workload_of_sequences(
    sequences: Sequence[RankSequence],
    mesh: Mesh,
    *,
    options: WalkOptions,
    read_seconds: float,
    source: dict[str, str],
    warnings: dict[str, int],
) -> Workload:
    """The workload of ranks that call different programs.

    Args:
        sequences: they cover every rank of the mesh once; communications are among all ranks.
        mesh: the device grid.
        options, read_seconds, source, warnings: as of ``workload_of_calls``.

    Raises:
        FlintError: a conditional of a program depends on the rank; ranks would wait forever.
    """
    called = [item for one in sequences for item in one.calls if isinstance(item, CalledModule)]
    for item in called:
        warnings = warnings | item.walked.warnings
        if len(split_by_rank(item.walked.graph, item.walked.world.partitions)) > 1:
            where = f"{short_path(item.call.file)}:{item.call.line}: {item.call.name}"
            raise FlintError(
                f"{where} has a conditional that depends on the device, in a step of several "
                "meshes: not captured yet"
            )
    programs = []
    for number, one in enumerate(sequences):
        calls = tuple(item.call for item in one.calls)
        graph = in_sequence(
            [_link(item, read_seconds) for item in one.calls],
            [item.type for item in one.inputs],
            one.outputs,
        )
        modules = [item.module for item in one.calls if isinstance(item, CalledModule)]
        inputs = _with_donations(one.inputs, calls, one.outputs)
        if modules:
            graph = with_input_copies(mark_optimizer(graph), modules[0], inputs)
        programs.append(Program(f"main_{number}", graph, one.ranks, inputs, calls=calls))
    return of_programs(
        tuple(programs),
        mesh,
        options=options,
        source=source,
        warnings=warnings,
        level=level_of(called[0].module, called[0].walked.per_device),
        order=order_of(called[0].module),
    )


def _link(item: CalledModule | Moved, read_seconds: float) -> Link | Message:
    if isinstance(item, Moved):
        return Message(item.graph, item.call.operands, item.awaited)
    nanoseconds = round(read_seconds * 1e9)
    reads = tuple(
        Read(read.value, Source("", read.file, read.line), nanoseconds) for read in item.call.reads
    )
    graph = in_order(item.module, item.walked.graph)
    return Link(graph, item.call.operands, item.held, reads)


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
