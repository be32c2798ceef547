"""Profile folders of JAX (xplane files) -> observed ops: which HLO ops every device has executed.

The idea: the events name HLO ops; shapes, groups and source lines are in the HLO module.  A fusion
is opened: its contractions count.

    observe(Path("profile/")).rows(rank=3, step=0)
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from google.protobuf.message import DecodeError

from flint.converters.profilers.xplane.branches import in_branches, taken
from flint.converters.profilers.xplane.hlo_facts import facts_of
from flint.converters.profilers.xplane.loops import iterations
from flint.converters.profilers.xplane.products import Multiplied
from flint.converters.profilers.xplane.profile import Profile, profile_of
from flint.converters.profilers.xplane.program import Program
from flint.converters.profilers.xplane.types import narrower, parameters, results
from flint.errors import FlintError
from flint.observed.classes import OpClass, hlo_class, hlo_says
from flint.observed.columns import Fault, Functions, NamedOp, Observed, OpFacts, Taken
from flint.observed.program_runs import AskedProgram
from flint.stablehlo.sources.phases import named_by, source_of

#: Exceptions from reading parts of a damaged program.
_DAMAGED = (ValueError, LookupError, RecursionError, DecodeError)
#: Ops that a compiler does not replace by others, whatever their numbers are.
_OF_ANY_TYPE = frozenset({"sort", "fft"})


def observe(path: Path, program: AskedProgram | None = None) -> Observed:
    """The HLO ops in a profile folder or in one ``.xplane.pb`` file.

    Args:
        path: the folder or file.
        program: the requested program; by default the one that took most time.

    Raises:
        FlintError: no such file in the folder, files of several runs, of several hosts that do not
            name their devices, a damaged file, or one without HLO ops.
    """
    try:
        return _observed(path, program)
    except _DAMAGED as error:
        raise FlintError(f"{path}: damaged HLO ({error})") from error


def _observed(path: Path, program: AskedProgram | None) -> Observed:
    profile = profile_of(path, program)
    rows, module = profile.rows, profile.program
    multiplied = Multiplied(module)
    ran: dict[tuple[int, int], Counter[str]] = defaultdict(Counter)
    products: dict[str, tuple[OpFacts, ...]] = {}
    known: dict[tuple[str, int], tuple[OpFacts, ...]] = {}
    runs: dict[int, dict[int, int]] = {}
    for event in profile.events:
        rank, run, start, duration, name = event[:5]
        step = runs.setdefault(rank, {}).setdefault(run, len(runs[rank]))
        ran[rank, step][name] += 1
        if (name, rank) not in known:
            raw = facts_of(module, name, rank)
            try:
                known[name, rank] = _converted(raw, module)
            except _DAMAGED as error:
                raise FlintError(f"{path}: damaged HLO at {name} ({error})") from error
        inside = known[name, rank]
        if not inside:
            rows.note("ops that are missing from the HLO in the trace")
        for place, facts in enumerate(inside):
            # A fusion's time is that of all its products together.
            share = duration * (place + 1) // len(inside) - duration * place // len(inside)
            rows.add(facts, rank=rank, step=step, start=start, duration=share, end=event.end)
        if name not in products:
            products[name] = multiplied.of(name)
        for facts in products[name]:  # their time is in what they are fused with
            rows.add(facts, rank=rank, step=step, start=start, duration=-1, end=event.end)
    steps = max(map(len, runs.values()), default=0)
    if len({len(found) for found in runs.values()}) > 1:
        rows.note("the devices did not all run the same number of steps in the trace")
    names = tuple(f"run {number}" for number in range(steps))
    observed = rows.finish(
        form="xplane", backend=profile.backend, world=module.devices, steps=names
    )
    return replace(
        observed,
        faults=tuple(_uneven(profile, known, runs)),
        taken=tuple(_taken(module, ran, known)),
        iterated=iterations(module, ran) if profile.backend == "cpu" else (),
        parameters=parameters(module),
        results=results(module),
        functions=_functions(module, ran),
        devices=profile.devices,
        version=profile.version,
    )


class _Found(NamedTuple):
    """What is inside an executed instruction, as the fields of ``Functions``."""

    found: frozenset[tuple[str, str]]
    named: frozenset[NamedOp]
    traces: frozenset[tuple[str, str]]


def _functions(program: Program, ran: dict[tuple[int, int], Counter[str]]) -> tuple[Functions, ...]:
    """The light ops inside the executed ops, each with its layer."""
    of: dict[str, _Found] = {}
    for name in {name for counts in ran.values() for name in counts}:
        instruction = program.by_name.get(name)
        inside = program.inside(instruction) if instruction is not None else []
        names = {item.name: [*named_by(program.place(item).name)] for item in inside}
        if instruction is not None:
            names[name] = [*named_by(program.place(instruction).name)]
        of[name] = _Found(
            frozenset(
                (item.opcode, source_of(program.place(item)).layer)
                for item in inside
                if item.opcode in _OF_ANY_TYPE
                or (hlo_class(item.opcode) == OpClass.ELEMENTWISE and _of_floats(program, item))
            ),
            frozenset(one for item in inside if hlo_says(item.opcode) for one in names[item.name]),
            frozenset((layer, op) for some in names.values() for layer, _, op in some),
        )
    layers = frozenset(
        source_of(program.place(item)).layer
        for name in of
        if name in program.by_name
        for item in program.inside(program.by_name[name])
    )
    same: dict[frozenset[str], Functions] = {}
    made = []
    for (rank, step), counts in ran.items():
        key = frozenset(counts)
        if key not in same:
            every = [of[name] for name in key]
            found, named, traces = (
                frozenset().union(*column) for column in zip(*every, strict=True)
            )
            same[key] = Functions(rank, step, found, layers, named, traces)
        made.append(same[key]._replace(rank=rank, step=step))
    return tuple(made)


def _of_floats(program: Program, instruction: Any) -> bool:
    found = program.tensor(instruction)
    return found is not None and found.dtype.startswith(("f", "bf"))


def _taken(
    program: Program,
    ran: dict[tuple[int, int], Counter[str]],
    known: dict[tuple[str, int], tuple[OpFacts, ...]],
) -> Iterator[Taken]:
    """The branch that each conditional took, and its possible branches."""
    names = in_branches(program)
    inside: dict[tuple[str, int], tuple[OpFacts, ...]] = {}
    for one in taken(program, ran):
        key = one.name, one.rank
        if key not in inside:
            facts = (
                facts
                for name in names[one.name]
                for facts in known.get((name, one.rank)) or facts_of(program, name, one.rank)
            )
            inside[key] = tuple(dict.fromkeys(item for item in facts if item.kind.must_match))
        yield one._replace(inside=inside[key])


def _converted(inside: tuple[OpFacts, ...], program: Program) -> tuple[OpFacts, ...]:
    """The facts of an instruction; for those that must match, also its operands' earlier types."""
    name = inside[0].name if inside else ""
    if not any(map(_reads_wider, inside)):
        return inside
    readers = [
        item
        for item in program.inside(program.by_name[name])
        if item.opcode == "dot" or hlo_class(item.opcode).collective
    ]
    if len(readers) != sum(map(_reads_wider, inside)):
        return inside
    left = iter(readers)
    return tuple(
        replace(facts, stored=narrower(program, next(left))) if _reads_wider(facts) else facts
        for facts in inside
    )


def _reads_wider(facts: OpFacts) -> bool:
    """Whether a backend may give an op wider operands than its program has."""
    return facts.kind == OpClass.GEMM or facts.kind.collective


def _uneven(
    profile: Profile,
    known: dict[tuple[str, int], tuple[OpFacts, ...]],
    runs: dict[int, dict[int, int]],
) -> Iterator[Fault]:
    """Instructions that ran another number of times than most of their computation.

    Compilers may move a computation's other work, but communications run.
    """
    program = profile.program
    communicate: dict[int, list[str]] = defaultdict(list)
    for instruction in program.by_name.values():
        if hlo_class(instruction.opcode).collective:
            communicate[program.home(instruction)].append(instruction.name)
    counts: dict[tuple[int, int, int], Counter[str]] = defaultdict(Counter)
    for event in profile.events:
        inside = known[event.hlo, event.device]
        if any(facts.kind.must_match for facts in inside):
            step = runs[event.device][event.run]
            home = program.home(program.by_name[event.hlo])
            counts[event.device, step, home][event.hlo] += 1
    for (rank, step, where), of in counts.items():
        for name in communicate[where]:
            if (name, rank) not in known:
                known[name, rank] = facts_of(program, name, rank)
            if name not in of and len(known[name, rank][0].group or ()) > 1:
                of[name] = 0
        if len(set(of.values())) > 1:
            usual = Counter(of.values()).most_common(1)[0][0]
            for name, times in of.items():
                if times != usual:
                    yield Fault(rank, step, known[name, rank][0], times, usual)
