"""FLOPs of a kernel: of its equations, over its grid and its loops.

The idea: the equations are walked once.  Integers that follow from the place in the grid are known
at every point (``points.py``), so a loop to the diagonal and a branch on it are counted exactly.
If a branch depends on data, the most expensive one counts at every point: an upper bound, which is
noted.

    count = counted(jaxpr, (32, 8, 4))
    count.flops, count.notes
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from flint.frontends.jax.kernels.arithmetic import arithmetic_of
from flint.frontends.jax.kernels.integers import is_integer, value_of
from flint.frontends.jax.kernels.loops import induction, of_scan, trips_of
from flint.frontends.jax.kernels.points import Points, Values, whole
from flint.frontends.jax.kernels.remote_copies import Axes, Copy, copies_to_others, copy_of
from flint.graph.work import Unit

BRANCHES = "a branch that depends on data: its most expensive case counts"
EARLY = "a loop that data may end early: all its iterations count"

#: Equations that are a call: name of the primitive -> name of the parameter that is called.
_CALLS = {
    "jit": "jaxpr",
    "pjit": "jaxpr",
    "closed_call": "call_jaxpr",
    "core_call": "call_jaxpr",
    "custom_jvp_call": "call_jaxpr",
    "custom_vjp_call": "call_jaxpr",
    "custom_vjp_call_jaxpr": "fun_jaxpr",
    "checkpoint": "jaxpr",
    "remat2": "jaxpr",
    "jaxpr_call": "jaxpr",
    "run_scoped": "jaxpr",
}


class UnknownCountError(Exception):
    """The arithmetic of a kernel cannot be counted; the text gives the reason."""


@dataclass(slots=True)
class Count:
    """The arithmetic of a kernel.

    Attributes:
        flops: by unit and element type, over the whole grid.
        notes: why they are an upper bound; empty if they are exact.
        copies: to other devices, if asked for.
    """

    flops: Counter[tuple[Unit, str]] = field(default_factory=Counter)
    notes: set[str] = field(default_factory=set)
    copies: list[Copy] = field(default_factory=list)

    def add(self, other: Count) -> None:
        """Add what another part of the kernel does."""
        self.flops.update(other.flops)
        self.notes |= other.notes
        self.copies += other.copies


@dataclass(frozen=True, slots=True)
class Held:
    """Integers in a kernel's memory that are known: a constant that it is called with."""

    content: Values

    def at(self, index: Sequence[Values]) -> Values:
        """One of them, at every point."""
        inside = [
            np.clip(one, 0, size - 1) for one, size in zip(index, self.content.shape, strict=True)
        ]
        found: Values = self.content[tuple(np.broadcast_arrays(*inside))]
        return found if found.dtype == bool else found.astype(np.int64)


def counted(
    kernel: Any,
    grid: tuple[int, ...],
    mapped: Collection[int] = (),
    constants: Sequence[Values | None] = (),
    devices: Axes = (),
    named: Sequence[Any] = (),
) -> Count:
    """Count a kernel's FLOPs.

    Args:
        kernel: its jaxpr, whose variables are references.
        grid: its extents.
        mapped: axes of the grid that are not in the kernel (``jax.vmap``'s).
        constants: the contents of its first references, if known.
        devices: axes of the mesh that it runs on; the FLOPs are then those of all devices, and
            copies to others are listed.
        named: names of the grid's axes, if they have some.

    Raises:
        UnknownCountError: a loop whose trip count depends on data, a primitive of unknown
            arithmetic.
        UnknownTargetError: a copy to a device that depends on data.
    """
    count = Count()
    axes = tuple(axis for axis in range(len(grid)) if axis not in mapped)
    held = [None if one is None else Held(one) for one in constants]
    names = (*(name for name, _ in devices), *(named or [None] * len(grid)))
    found = _Walk(grid, axes, count, devices, names)
    found.body(kernel, held, whole(found.sizes))
    return count


#: The value of an equation's operand at every point: ``Values``, or ``Held``; None if unknown.
Known = Any


@dataclass(frozen=True, slots=True)
class _Walk:
    """A walk over a kernel's equations, which adds to a count."""

    grid: tuple[int, ...]
    axes: tuple[int, ...]
    count: Count
    devices: Axes = ()
    names: Sequence[Any] = ()

    @property
    def sizes(self) -> tuple[int, ...]:
        """Extents of the mesh of devices, if they count, and of the grid."""
        return (*(size for _, size in self.devices), *self.grid)

    def body(self, jaxpr: Any, given: Iterable[Known], at: Points) -> list[Known]:
        """Count a body at some points; returns its results there."""
        jaxpr = getattr(jaxpr, "jaxpr", jaxpr)
        known = dict(zip(map(id, jaxpr.invars), given, strict=False))

        def look(item: Any) -> Known:
            literal = getattr(item, "val", None)
            if literal is None:
                return known.get(id(item))
            return np.asarray(literal) if is_integer(item.aval) else None

        for one in jaxpr.eqns:
            values = [look(item) for item in one.invars]
            results = self._equation(one, values, at)
            known.update(zip(map(id, one.outvars), results, strict=False))
        return [look(item) for item in jaxpr.outvars]

    def _equation(self, one: Any, values: Sequence[Known], at: Points) -> Any:
        name, parameters = one.primitive.name, one.params
        if name in _CALLS:
            inside = parameters[_CALLS[name]]
            return self.body(inside, () if name == "run_scoped" else values, at)
        if name == "cond":
            return self._branch(parameters["branches"], values, at)
        if name == "while":
            return self._while(parameters, values, at)
        if name == "scan":
            return self._scan(parameters, values, at)
        operands, results = ([item.aval for item in items] for items in (one.invars, one.outvars))
        found = arithmetic_of(name, parameters, operands, results)
        if found is None and not self.devices:
            raise UnknownCountError(f"{name} is not known")
        for key, flops in (found or {}).items():
            if flops:
                self.count.flops[key] += flops * at.total()
        if name == "dma_start" and self.devices:
            copy = copy_of(one, values, self.devices, at, len(self.grid))
            self.count.copies += [] if copy is None else [copy]
        return self._integers(name, parameters, values, results, at)

    def _integers(
        self, name: str, parameters: Any, values: Sequence[Any], results: Sequence[Any], at: Points
    ) -> list[Known]:
        if len(results) != 1 or not is_integer(results[0]):
            return []
        if name == "program_id":
            return [at.along(self.axes[parameters["axis"]] - len(self.grid))]
        if name == "num_programs":
            return [np.asarray(self.grid[self.axes[parameters["axis"]]])]
        if name == "axis_index" and self.names:
            return [self._place(parameters["axis_name"], at)]
        if any(value is None for value in values):
            return []
        memory = values[0] if values else None
        if isinstance(memory, Held):
            whole_index = name == "get" and len(values) == 1 + memory.content.ndim
            return [memory.at(values[1:])] if whole_index else []
        return [value_of(name, parameters, values)]

    def _place(self, names: Any, at: Points) -> Values | None:
        """The place along named axes: of the mesh of devices, or of the grid."""
        place = np.zeros((), np.int64)
        for name in names if isinstance(names, list | tuple) else (names,):
            if name not in self.names:
                return None
            number = list(self.names).index(name)
            place = place * self.sizes[number] + at.along(number - len(self.sizes))
        return place

    def _branch(self, branches: Any, values: Sequence[Known], at: Points) -> list[None]:
        index, *given = values
        if index is not None:
            for number, branch in enumerate(branches):
                chosen = np.clip(index.astype(np.int64), 0, len(branches) - 1) == number
                if chosen.any():
                    self.body(branch, given, at.where(chosen))
            return []
        cases = [Count() for _ in branches]
        for case, branch in zip(cases, branches, strict=True):
            replace(self, count=case).body(branch, given, at)
        dearest = max(cases, key=_size)
        if any(_size(case) != _size(dearest) or case.flops != dearest.flops for case in cases):
            self.count.notes.add(BRANCHES)
        self.count.add(dearest)
        return []

    def _while(
        self, parameters: Mapping[str, Any], values: Sequence[Known], at: Points
    ) -> list[None]:
        condition = parameters["cond_jaxpr"].jaxpr
        outside, inside = parameters["cond_nconsts"], parameters["body_nconsts"]
        body, first = parameters["body_jaxpr"].jaxpr, values[outside + inside :]
        steps = induction(body, inside)
        trips, early = trips_of(condition, values[:outside], first, steps)
        if trips is None:
            self._idle(body)
            return []
        if early:
            self.count.notes.add(EARLY)
        self._loop(condition, values[:outside], first, steps, trips + 1, at)
        self._loop(body, values[outside : outside + inside], first, steps, trips, at)
        return []

    def _idle(self, body: Any) -> None:
        """A loop of unknown length, which must have no arithmetic (a waiting loop)."""
        once = Count()
        replace(self, count=once).body(body, (), whole(self.sizes))
        if once.flops or any(copies_to_others(body)):
            raise UnknownCountError("a loop whose trip count depends on data")

    def _scan(
        self, parameters: Mapping[str, Any], values: Sequence[Known], at: Points
    ) -> list[None]:
        constants, carried = of_scan(parameters)
        body = parameters["jaxpr"].jaxpr
        steps = induction(body, constants)[:carried]
        first = values[constants : constants + carried]
        trips = np.asarray(parameters["length"])
        self._loop(body, values[:constants], first, steps, trips, at)
        return []

    def _loop(
        self,
        body: Any,
        constants: Sequence[Values | None],
        first: Sequence[Values | None],
        steps: Sequence[int | None],
        trips: Values,
        at: Points,
    ) -> None:
        """Count a loop's body, at every iteration of every point."""
        if not trips.any():
            return
        inside, index = at.looped(trips)
        carried = [
            None if start is None else _carried(start, step, index)
            for start, step in zip(first, steps, strict=True)
        ]
        self.body(body, (*constants, *carried), inside)


def _carried(start: Values, step: int | None, index: Values | None) -> Values | None:
    """The carried values of a loop at each iteration."""
    if step is None or (step and index is None):
        return None
    return start + step * index if step and index is not None else start


def _size(count: Count) -> tuple[int, int]:
    return sum(copy.total for copy in count.copies), sum(count.flops.values())
