"""Kineto traces of PyTorch's profiler -> observed ops: what ran, inside of what, on which stream.

The idea: an op is a CPU event; kernels belong to the op that launched them, which their
``External id`` names, or, where it is missing, the runtime call with their ``correlation``.
Collectives are told by ``record_param_comms`` on NCCL and RCCL; gloo has none, there the c10d op
itself is taken, its element type from gloo's own annotation.

    observe(Path("rank0.json.gz")).steps        # ("ProfilerStep#3", "ProfilerStep#4")
"""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from flint.converters.json_traces import JsonTrace
from flint.converters.torch_ops import (
    comms_facts,
    dtype_of,
    groups_of,
    op_facts,
    ranks_of,
    tensors_of,
)
from flint.errors import FlintError
from flint.tensor_types import DTYPE_BITS
from flint.validation.classes import OpClass, c10d_class
from flint.validation.observed import Observed, ObservedRows, OpFacts

#: Categories, those of older versions included (torch/csrc/profiler and libkineto).
_OPS = frozenset({"cpu_op", "operator"})
_DEVICE = frozenset({"kernel", "gpu_memcpy", "gpu_memset", "memcpy", "memset"})
_RUNTIME = frozenset({"cuda_runtime", "cuda_driver", "runtime", "hip_runtime"})
_RECORD = "record_param_comms"
#: An op has at most so many inside of it before the runtime call that launches its kernel.
_LOOKED_BACK = 256
_RANK = re.compile(r"rank[-_.]?(\d{1,7})", re.IGNORECASE)


class _Op(NamedTuple):
    start: int
    duration: int
    thread: object
    name: str
    args: dict[str, Any]


class _Kernel(NamedTuple):
    start: int
    duration: int
    stream: object
    name: str
    external: object
    correlation: object


class _Thread(NamedTuple):
    """The ops of one thread in the order in which they began."""

    starts: list[int]
    ends: list[int]
    rows: list[int]


class _Events(NamedTuple):
    ops: list[_Op]
    kernels: list[_Kernel]
    runtime: dict[object, tuple[object, int]]
    steps: list[tuple[int, int, str]]
    annotations: list[_Op]


#: What is kept of an op's arguments.
_KEPT = frozenset(
    {
        "External id", "Record function id", "Input Dims", "Input type", "Concrete Inputs",
        "Collective name", "dtype", "In msg nelems", "Group size", "Process Group Ranks",
        "Process Group Name", "Global rank start", "Global rank stride",
    }
)  # fmt: skip


def observe(path: Path) -> Observed:
    """The ops of a Kineto JSON file, gzip allowed.

    Raises:
        FlintError: it is not such a file, is cut off or damaged, or has no ops.
    """
    trace = JsonTrace.read(path)
    events = _events(trace)
    rest = trace.rest("traceEvents")
    if not events.ops:
        raise FlintError(
            f"{path}: no CPU ops in it: profile with ProfilerActivity.CPU as well, and export "
            "before the schedule's cycle ends"
        )
    info = rest.get("distributedInfo")
    info = info if isinstance(info, dict) else {}
    rows = ObservedRows(str(path))
    rank = _rank(path, info, rows)
    groups = groups_of(info.get("pg_config"))
    world = info.get("world_size")
    starts = [step[0] for step in events.steps]
    _add_ops(rows, events, groups, rank, starts)
    backend = "gpu" if events.kernels else "cpu"
    names = tuple(step[2] for step in events.steps) or ("whole trace",)
    if not events.steps:
        rows.note("no ProfilerStep in the trace: all of it is taken as one step")
    return rows.finish(
        form="kineto",
        backend=backend,
        world=world if type(world) is int and world > 0 else None,
        steps=names,
    )


def _rank(path: Path, info: dict[str, Any], rows: ObservedRows) -> int:
    rank = info.get("rank")
    if type(rank) is int and rank >= 0:
        return rank
    named = _RANK.search(path.name)
    if named:
        return int(named[1])
    rows.note("the trace does not say which rank it is of: taken as rank 0")
    return 0


def _events(trace: JsonTrace) -> _Events:
    found = _Events([], [], {}, [], [])
    for event in trace.items("traceEvents"):
        if event.get("ph") != "X":
            continue
        category = str(event.get("cat", "")).lower()
        try:
            start = round(float(event["ts"]) * 1000)
            duration = max(0, round(float(event.get("dur", 0)) * 1000))
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise FlintError(f"{trace.path}: an event without times: {str(event)[:80]}") from error
        args = event.get("args")
        args = args if isinstance(args, dict) else {}
        name = str(event.get("name", ""))
        if category in _OPS:
            kept = {key: value for key, value in args.items() if key in _KEPT}
            found.ops.append(_Op(start, duration, event.get("tid"), name, kept))
        elif category in _DEVICE:
            found.kernels.append(
                _Kernel(
                    start, duration, args.get("stream"), name,
                    args.get("External id", args.get("external id")), args.get("correlation"),
                )
            )  # fmt: skip
        elif category in _RUNTIME:
            found.runtime[args.get("correlation")] = event.get("tid"), start
        elif category == "user_annotation":
            if name.startswith("ProfilerStep"):
                found.steps.append((start, start + duration, name))
            elif name.startswith("gloo:"):
                found.annotations.append(_Op(start, duration, event.get("tid"), name, args))
    found.steps.sort()
    return found


def _add_ops(
    rows: ObservedRows,
    events: _Events,
    groups: dict[str, tuple[int, ...]],
    rank: int,
    step_starts: list[int],
) -> None:
    """Rows in the order of issue over all threads, and the kernels of each."""
    order = sorted(events.ops, key=lambda op: (op.start, -op.duration))
    gloo = _gloo_types(events.annotations)
    known: dict[str, OpFacts] = {}
    stacks: dict[object, list[tuple[int, int, OpFacts]]] = {}
    by_external: dict[object, int] = {}
    per_thread: dict[object, _Thread] = {}
    threads: dict[object, int] = {}
    for op in order:
        facts = _facts(op, groups, gloo, known)
        stack = stacks.setdefault(op.thread, [])
        while stack and stack[-1][0] <= op.start:
            stack.pop()
        if facts.kind.collective and any(outer == facts for _, _, outer in stack):
            rows.note("collectives that the profiler recorded twice, counted once")
            facts = OpFacts(OpClass.FREE, op.name)
        number = rows.add(
            facts,
            rank=rank,
            step=_step(op.start, events, step_starts),
            start=op.start,
            duration=op.duration,
            stream=threads.setdefault(op.thread, len(threads)),
            parent=stack[-1][1] if stack else -1,
            launches=0 if events.kernels else -1,
        )
        stack.append((op.start + op.duration, number, facts))
        by_external[op.args.get("External id")] = number
        thread = per_thread.setdefault(op.thread, _Thread([], [], []))
        thread.starts.append(op.start)
        thread.ends.append(op.start + op.duration)
        thread.rows.append(number)
    by_external.pop(None, None)
    _add_kernels(rows, events, by_external, per_thread)


def _step(start: int, events: _Events, starts: list[int]) -> int:
    if not starts:
        return 0
    number = bisect_right(starts, start) - 1
    return number if number >= 0 and start < events.steps[number][1] else -1


def _facts(
    op: _Op,
    groups: dict[str, tuple[int, ...]],
    gloo: list[tuple[int, str]],
    known: dict[str, OpFacts],
) -> OpFacts:
    args = op.args
    if op.name == _RECORD:
        found = comms_facts(args, groups) or _old_record(args)
        return found if found is not None else OpFacts(OpClass.FREE, op.name)
    dims = args.get("Input Dims")
    if not isinstance(dims, list):
        if op.name not in known:
            known[op.name] = op_facts(op.name, None)
        return known[op.name]
    types = args.get("Input type")
    facts = op_facts(op.name, tensors_of(dims, types if isinstance(types, list) else []))
    if facts.kind.collective:
        facts = replace(facts, group=_functional_group(args, groups))
        if facts.parts is None and facts.operands:
            facts = _with_type(facts, _gloo_type(args, gloo))
    return facts


def _old_record(args: dict[str, Any]) -> OpFacts | None:
    """Records before PyTorch 2.1 have their name among the inputs (with ``record_shapes``)."""
    concrete, dims = args.get("Concrete Inputs"), args.get("Input Dims")
    if not isinstance(concrete, list):
        return None
    for item in concrete:
        kind = c10d_class(str(item)) if isinstance(item, str) and item else None
        if kind is not None:
            types = args.get("Input type")
            tensors = tensors_of(dims or [], types if isinstance(types, list) else [])
            sent = tuple(tensors[0]) if tensors else ()
            return _with_type(OpFacts(kind, str(item), sent or None), sent[0][1] if sent else "")
    return None


def _with_type(facts: OpFacts, dtype: str) -> OpFacts:
    if not dtype or facts.operands is None:
        return facts
    operands = tuple((shape, kind or dtype) for shape, kind in facts.operands)
    sizes = []
    for shape, kind in operands:
        count = 1
        for size in shape:
            count *= size
        sizes.append(count * DTYPE_BITS[kind] // 8)
    return replace(facts, operands=operands, parts=tuple(sizes), dtype=dtype)


def _functional_group(args: dict[str, Any], groups: dict[str, tuple[int, ...]]) -> Any:
    """A functional collective's group: its last text argument is the process group's name."""
    concrete = args.get("Concrete Inputs")
    for item in reversed(concrete if isinstance(concrete, list) else []):
        if isinstance(item, str) and item in groups:
            return groups[item]
    return ranks_of(args.get("Process Group Ranks")) or None


def _gloo_types(annotations: list[_Op]) -> list[tuple[int, str]]:
    """(record number, element type) of gloo's annotations, which follow their c10d op's number."""
    found = []
    for note in annotations:
        number, types = note.args.get("Record function id"), note.args.get("Input type")
        if type(number) is int and isinstance(types, list) and types:
            found.append((number, dtype_of(types[0])))
    return sorted(found)


def _gloo_type(args: dict[str, Any], gloo: list[tuple[int, str]]) -> str:
    number = args.get("Record function id")
    if type(number) is not int:
        return ""
    place = bisect_right(gloo, (number, "\uffff"))
    # The annotation is recorded right behind the op; a later one belongs to another collective.
    return gloo[place][1] if place < len(gloo) and gloo[place][0] - number <= 3 else ""


def _add_kernels(
    rows: ObservedRows,
    events: _Events,
    by_external: dict[object, int],
    per_thread: dict[object, _Thread],
) -> None:
    """Give each kernel to its op: count, first start, time, stream."""
    _, _, _, starts, durations, streams, _, launches = rows.columns
    numbers: dict[object, int] = {}
    for kernel in sorted(events.kernels):
        number = by_external.get(kernel.external)
        if number is None and kernel.correlation in events.runtime:
            number = _enclosing(*events.runtime[kernel.correlation], per_thread)
        if number is None:
            rows.note("kernels that no op of the trace launched")
            continue
        stream = numbers.setdefault(kernel.stream, len(numbers))
        if launches[number] == 0:
            starts[number], durations[number] = kernel.start, 0
            streams[number] = 1000 + stream
        durations[number] += kernel.duration
        launches[number] += 1


def _enclosing(name: object, when: int, per_thread: dict[object, _Thread]) -> int | None:
    """The innermost op of a thread that was running at a moment."""
    thread = per_thread.get(name)
    if thread is None:
        return None
    place = bisect_right(thread.starts, when) - 1
    # Of the ops that began before, those inside of others come later: the first that still runs.
    for back in range(place, max(-1, place - _LOOKED_BACK), -1):
        if thread.ends[back] >= when:
            return thread.rows[back]
    return None
