"""The loops of a kernel as plain data, of which those on small tensors can be run on known values.

The idea: Inductor calls a loop's body with a handler of its operations; here the handler notes
them.  What is left out depends on a tensor too large for its values to be known, on random numbers,
or on an operation without a rule (``evaluated.py``).

    loops_of(nodes, kernel, graph, ["buf0", "buf1"])    # Loops((Loop(sizes=(8, 512), ...),), ...)

Private parts of torch._inductor, as in torch 2.12 to 2.14 (``adapter.py`` has the rest).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from flint.frontends.torch.inductor.operations import APPLIED, DONE
from flint.frontends.torch.recording.known_values import MOST

#: Most places of a loop that is run on values.
_MOST_PLACES = 1 << 22

_STORES = ("store", "store_reduction")
#: Reductions and operations of floats that have several results -> how many.
_SEVERAL = {"welford_reduce": 3, "welford_combine": 3, "online_softmax_reduce": 2, "frexp": 2}
#: Stands for them.
_UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Ref:
    """The result of a step, by its number."""

    number: int


@dataclass(frozen=True, slots=True)
class Place:
    """Where a loop is in one of its dims."""

    dim: int


@dataclass(frozen=True, slots=True)
class Index:
    """An index expression.

    Attributes:
        name: of what combines its parts, as in ``operations.INDICES``.
        parts: numbers, places, results and other expressions.
    """

    name: str
    parts: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Part:
    """A function of two sets of values, given to an operation.

    Attributes:
        first, second: the values that it is given.
        steps: what it does.
        results: what it returns.
    """

    first: tuple[Ref, ...]
    second: tuple[Ref, ...]
    steps: tuple[Step, ...]
    results: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Step:
    """An operation of a loop's body.

    Attributes:
        name: as Inductor names it.
        args: numbers, types of numbers, index expressions, results, functions, names of buffers.
        result: its number.
    """

    name: str
    args: tuple[Any, ...]
    result: int


@dataclass(frozen=True, slots=True)
class Loop:
    """A loop nest.

    Attributes:
        sizes: of its dims, the reduced ones last.
        reduced: how many are reduced.
        steps: what it does at each place.
        lost: buffers that it gives values which cannot be known.
    """

    sizes: tuple[int, ...]
    reduced: int
    steps: tuple[Step, ...]
    lost: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Loops:
    """What a kernel does.

    Attributes:
        loops: in their order.
        types: buffer -> the type of its elements and how many there are.
        arguments: names of each of the kernel's tensors, the last one at its end.
    """

    loops: tuple[Loop, ...]
    types: Mapping[str, tuple[torch.dtype, int]]
    arguments: tuple[tuple[str, ...], ...]


def loops_of(nodes: Iterable[Any], args: Any, graph: Any, given: Sequence[str]) -> Loops | None:
    """The loops of a kernel; None if all values that it gives are lost.

    Args:
        nodes: its scheduled nodes.
        args: Inductor's description of its arguments.
        graph: the graph being lowered (``V.graph``).
        given: the buffers that it is called with, in the order of its call.
    """
    names, scratch = graph.scheduler.mutation_real_name, _scratch(args)
    types: dict[str, tuple[torch.dtype, int]] = {}

    def real(name: str) -> str:
        name = names.get(name, name)
        if name in scratch:
            types[name] = torch.uint8, MOST + 1
        elif name not in types:
            size = graph.sizevars.optimization_hint(graph.get_numel(name), fallback=MOST + 1)
            types[name] = graph.get_dtype(name), int(size)
        return name

    loops = tuple(_loop(node, real, types) for node in nodes)
    if not any(loop.steps for loop in loops):
        return None
    inplace = {item.other_names[-1]: item.other_names for item in args.inplace_buffers
               .values() if hasattr(item, "other_names")}  # fmt: skip
    arguments = tuple(tuple(map(real, inplace.get(name, (name,)))) for name in given)
    return Loops(loops, types, arguments)


def _scratch(args: Any) -> frozenset[str]:
    """Names of memory that is no tensor's of the program."""
    return frozenset(
        name for item in args.workspace_args for name in (item.inner_name, item.outer_name)
    )


def _loop(node: Any, real: Callable[[str], str], types: Mapping[str, Any]) -> Loop:
    written = [real(dep.name) for dep in node.read_writes.writes]
    nothing = Loop((), 0, (), tuple(dict.fromkeys(written)))
    if node.is_template() or all(types[name][1] > MOST for name in written):
        return nothing
    body = node._body
    sizes = [*body.sizes[0], *body.sizes[1]]
    if any(getattr(size, "free_symbols", None) for size in sizes):
        return nothing
    if math.prod(map(int, sizes)) > _MOST_PLACES:
        return nothing
    variables = (*body.iter_vars, *body.reduce_vars)
    noted = _Noted(real, {str(name): Place(dim) for dim, name in enumerate(variables)})
    with _handler(noted):
        body(body.iter_vars, body.reduce_vars, allow_same_symbol_in_index=True)
    steps = tuple(_needed(noted.steps, types))
    stored = {step.args[0] for step in steps if step.name in _STORES}
    lost = tuple(name for name in nothing.lost if name not in stored)
    return Loop(tuple(map(int, sizes)), len(body.reduce_vars), steps, lost)


def _needed(steps: Sequence[Step], types: Mapping[str, tuple[torch.dtype, int]]) -> list[Step]:
    """The steps that lead to values which may be known."""
    lost: set[int] = set()
    for step in steps:
        is_lost = any(ref.number in lost for ref in _refs(step.args))
        if step.name == "load" or step.name in _STORES:
            is_lost = is_lost or types[step.args[0]][1] > MOST
        elif step.name not in APPLIED and step.name not in DONE:
            is_lost = True
        if is_lost:
            lost.add(step.result)
    # A buffer that one of several stores gives an unknown value is lost.
    ruined = {step.args[0] for step in steps if step.name in _STORES and step.result in lost}
    needed: set[int] = set()
    found = []
    for step in reversed(steps):
        is_end = step.name in _STORES and step.args[0] not in ruined
        if is_end or step.result in needed:
            needed.update(ref.number for ref in _refs(step.args))
            found.append(step)
    return found[::-1]


def _refs(item: Any) -> Iterator[Ref]:
    """The results of steps that an argument has in it."""
    if isinstance(item, Ref):
        yield item
    elif isinstance(item, tuple):
        for part in item:
            yield from _refs(part)
    elif isinstance(item, Part):
        for step in item.steps:
            yield from _refs(step.args)
    elif isinstance(item, Index):
        yield from _refs(item.parts)


class _Noted:
    """Notes the operations of a body."""

    def __init__(self, real: Callable[[str], str], places: Mapping[str, Place]) -> None:
        self.steps: list[Step] = []
        self._real = real
        self._symbols: dict[str, Place | Ref] = {**places}
        self._count = 0

    def add(self, name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """An operation; returns its result, or several."""
        if name == "masked":
            mask, body, other = args
            return self._step(name, (mask, body(), other))
        if name == "indirect_indexing":
            return self._symbol(self._step(name, (*args, *kwargs.values())))
        if name == "scan":
            dtypes, combine, values = args
            result = self._step(name, (dtypes, self._part(combine, len(values)), tuple(values)))
            return self._parts(result, len(values))
        if name == "sort":
            return self._parts(self._step(name, (*args, *kwargs.values())), len(args[1]))
        if name in ("load", *_STORES):
            args = (self._real(args[0]), *args[1:])
        several = _SEVERAL.get(args[2] if name == "reduction" else name)
        if several is not None:
            return self._parts(self._step(_UNKNOWN, ()), several)
        return self._step(name, (*args, *kwargs.values()))

    def _step(self, name: str, args: tuple[Any, ...]) -> Ref:
        self._count += 1
        self.steps.append(Step(name, self._plain(args), self._count))
        return Ref(self._count)

    def _symbol(self, ref: Ref) -> Any:
        """A result in index expressions."""
        from sympy import Symbol

        name = f"result{ref.number}"
        self._symbols[name] = ref
        return Symbol(name, integer=True)

    def _plain(self, item: Any) -> Any:
        """An argument as it is kept."""
        from sympy import Basic, Integer
        from torch._inductor.virtualized import OpsValue

        if isinstance(item, list | tuple):
            return tuple(map(self._plain, item))
        if isinstance(item, Integer):
            return int(item)
        if isinstance(item, Basic):
            found = self._symbols.get(str(item))
            parts = tuple(map(self._plain, item.args))
            return found or Index(type(item).__name__, parts)
        return item.value if isinstance(item, OpsValue) else item

    def _parts(self, whole: Ref, count: int) -> tuple[Ref, ...]:
        return tuple(self._step("part", (whole, index)) for index in range(count))

    def _part(self, function: Callable[..., Any], count: int) -> Part:
        before, self.steps = self.steps, []
        numbers = range(self._count + 1, self._count + 1 + 2 * count)
        self._count += 2 * count
        refs = tuple(map(Ref, numbers))
        first, second = refs[:count], refs[count:]
        results = self._plain(function(first, second))
        steps, self.steps = tuple(self.steps), before
        return Part(first, second, steps, results)


def _handler(noted: _Noted) -> Any:
    """The context within which a body's operations are noted."""
    from torch._inductor.ops_handler import DefaultHandler
    from torch._inductor.virtualized import V

    class Handler(DefaultHandler):
        def _default(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            return noted.add(name, args, kwargs)

    return V.set_ops_handler(Handler())
