"""The loops of a kernel, run on the values that are known of its tensors.

The idea: each operation is done for all places of a loop at once, on tensors that have a dim for
each of its dims.  What needs an unknown value is unknown, the rest is not: a kernel may fuse a
mask's numbers of blocks with a model's first layer.

    results_of(loops, [tokens, numbers])       # {1: Known(tensor([1, 2, 3]))}
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from flint.frontends.torch.context import capture
from flint.frontends.torch.inductor.loops import Index, Loop, Loops, Part, Place, Ref, Step
from flint.frontends.torch.inductor.memories import Memory, known_in, memory_of
from flint.frontends.torch.inductor.operations import APPLIED, DONE, INDICES
from flint.frontends.torch.modes import with_real_tensors
from flint.frontends.torch.recording.known_values import MOST, Known, is_followed

#: What Inductor's arithmetic cannot do on these values, or on bools: the result is unknown.
_ERRORS = (RuntimeError, TypeError, LookupError, NotImplementedError, OverflowError)


@dataclass(frozen=True, slots=True)
class _Found:
    """A value, and the tensors' numbers that it follows from."""

    value: Any
    sources: frozenset[int] = frozenset()


def results_of(loops: Loops, tensors: Sequence[torch.Tensor]) -> dict[int, Known]:
    """What is known of the tensors that a kernel writes: number of the argument -> the knowledge.

    Args:
        loops: of the kernel.
        tensors: with which it is called.
    """
    values = capture().known_values
    known = {
        number: found
        for number, tensor in enumerate(tensors)
        if tensor.numel() <= MOST and (found := values.get(tensor)) is not None
    }
    results: dict[int, Known] = with_real_tensors(_results)(loops, tensors, known)
    return results


def _results(
    loops: Loops, tensors: Sequence[torch.Tensor], known: Mapping[int, Known]
) -> dict[int, Known]:
    run = _Run(loops.types)
    for number, item in known.items():
        read = memory_of(tensors[number], item, number)
        run.memory.update(dict.fromkeys(loops.arguments[number], read))
    for loop in loops.loops:
        run.loop(loop)
    found = {}
    for number, names in enumerate(loops.arguments):
        memory = run.memory.get(names[-1]) if names[-1] in run.stored else None
        if memory is not None and (memory.sources or is_followed(tensors[number])):
            origins = [known[source] for source in sorted(memory.sources)]
            found[number] = known_in(tensors[number], memory, origins)
    return found


@dataclass(slots=True)
class _Run:
    """A kernel's run.

    Attributes:
        types: of buffers' elements, and their numbers.
        memory: buffer -> its elements; without those that are unknown.
        stored: buffers that were given known values.
    """

    types: Mapping[str, tuple[torch.dtype, int]]
    memory: dict[str, Memory] = field(default_factory=dict)
    stored: set[str] = field(default_factory=set)
    _loop: Loop | None = None
    _found: dict[int, _Found] = field(default_factory=dict)
    _places: tuple[torch.Tensor, ...] = ()

    def loop(self, loop: Loop) -> None:
        """Run a loop."""
        self._loop, self._found = loop, {}
        self._places = tuple(
            torch.arange(size).view([-1 if at == dim else 1 for at in range(len(loop.sizes))])
            for dim, size in enumerate(loop.sizes)
        )
        for step in loop.steps:
            self._step(step)
        for name in loop.lost:
            self.memory.pop(name, None)

    def _step(self, step: Step) -> None:
        """A step; one that needs an unknown value has no result."""
        try:
            sources: set[int] = set()
            args = tuple(self._argument(item, sources) for item in step.args)
            if step.name in DONE:
                do = getattr(self, f"_{step.name}")
                self._found[step.result] = do(frozenset(sources), *args)
            else:
                value = APPLIED[step.name](*args)
                self._found[step.result] = _Found(value, frozenset(sources))
        except _ERRORS:
            if step.name in ("store", "store_reduction"):
                self.memory.pop(step.args[0], None)
                self.stored.discard(step.args[0])

    def _argument(self, item: Any, sources: set[int]) -> Any:
        if isinstance(item, Ref):
            found = self._found[item.number]
            sources |= found.sources
            return found.value
        if isinstance(item, tuple):
            return tuple(self._argument(part, sources) for part in item)
        if isinstance(item, Place):
            return self._places[item.dim]
        if isinstance(item, Index):
            return INDICES[item.name](*(self._argument(part, sources) for part in item.parts))
        return item

    def _whole(self, value: torch.Tensor) -> torch.Tensor:
        """A value at all places, with one reduced dim, the last one."""
        assert self._loop is not None
        sizes, reduced = self._loop.sizes, self._loop.reduced
        return value.expand(sizes).reshape(*sizes[: len(sizes) - reduced], -1)

    def _back(self, value: torch.Tensor) -> torch.Tensor:
        """The inverse."""
        assert self._loop is not None
        return value.reshape(self._loop.sizes)

    # operations, by their names

    def _load(self, sources: frozenset[int], name: str, index: Any) -> _Found:
        memory, index = self.memory[name], torch.as_tensor(index)
        # Where a mask excludes a place, an index may be outside.
        index = index.clamp(0, memory.elements.numel() - 1)
        if not bool(memory.is_set[index].all()):
            raise LookupError(name)
        value = memory.elements[index]
        if value.dtype in (torch.bfloat16, torch.float16):
            value = value.float()
        return _Found(value, sources | memory.sources)

    def _store(
        self, sources: frozenset[int], name: str, index: Any, value: torch.Tensor,
        mode: str | None = None,
    ) -> _Found:  # fmt: skip
        assert self._loop is not None
        if mode not in (None, "atomic_add"):
            raise NotImplementedError(mode)
        before, (dtype, _) = self.memory.get(name), self.types[name]
        if before is None:
            if mode is not None:
                raise LookupError(name)
            before = Memory(torch.zeros(0, dtype=dtype), torch.zeros(0, dtype=torch.bool))
        index, value = torch.ops.aten.broadcast_tensors([torch.as_tensor(index), value])
        size = max(int(index.max()) + 1 if index.numel() else 0, before.elements.numel())
        more = size - before.elements.numel()
        elements = torch.cat([before.elements, before.elements.new_zeros(more)])
        is_set = torch.cat([before.is_set, before.is_set.new_zeros(more)])
        elements.index_put_((index,), value.to(dtype), accumulate=mode is not None)
        is_set[index] = True
        self.memory[name] = Memory(elements, is_set, sources | before.sources)
        self.stored.add(name)
        return _Found(None)

    def _store_reduction(self, *args: Any) -> _Found:
        return self._store(*args)

    def _indirect_indexing(
        self, sources: frozenset[int], value: torch.Tensor, size: Any, check: bool = True,
        wrap: bool = True,
    ) -> _Found:  # fmt: skip
        value = value.to(torch.int64)
        return _Found(torch.where(value < 0, value + size, value) if wrap else value, sources)

    def _reduction(
        self, sources: frozenset[int], dtype: torch.dtype, _: torch.dtype, kind: str,
        value: torch.Tensor,
    ) -> _Found:  # fmt: skip
        assert self._loop is not None
        reduced = _REDUCED[kind](self._whole(value), dtype).to(dtype)
        return _Found(reduced[(..., *[None] * self._loop.reduced)], sources)

    def _scan(
        self, sources: frozenset[int], _: Any, combine: Part, values: tuple[torch.Tensor, ...]
    ) -> _Found:
        """Each place with all before it, in steps of twice the distance."""
        now = tuple(map(self._whole, values))
        distance, length = 1, now[0].shape[-1]
        while distance < length:
            first = tuple(item[..., : length - distance] for item in now)
            second = tuple(item[..., distance:] for item in now)
            combined = self._combined(combine, first, second)
            now = tuple(
                torch.cat([item[..., :distance], end.to(item.dtype)], -1)
                for item, end in zip(now, combined, strict=True)
            )
            distance *= 2
        return _Found(tuple(map(self._back, now)), sources)

    def _combined(self, part: Part, *both: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
        for refs, values in zip((part.first, part.second), both, strict=True):
            self._found.update(
                (ref.number, _Found(value)) for ref, value in zip(refs, values, strict=True)
            )
        for step in part.steps:
            self._step(step)
        return tuple(self._argument(item, set()) for item in part.results)

    def _sort(
        self, sources: frozenset[int], _: Any, values: tuple[torch.Tensor, ...], stable: bool,
        descending: bool,
    ) -> _Found:  # fmt: skip
        whole = tuple(map(self._whole, values))
        order = whole[0].sort(dim=-1, stable=bool(stable), descending=descending).indices
        return _Found(tuple(self._back(item.gather(-1, order)) for item in whole), sources)


#: Reduction -> what reduces the last dim.
_REDUCED: Mapping[str, Callable[[torch.Tensor, torch.dtype], torch.Tensor]] = {
    "sum": lambda value, dtype: value.sum(-1, dtype=dtype),
    "prod": lambda value, dtype: value.prod(-1, dtype=dtype),
    "max": lambda value, _: value.amax(-1),
    "min": lambda value, _: value.amin(-1),
    "any": lambda value, _: value.any(-1),
    "argmax": lambda value, _: value.argmax(-1),
    "argmin": lambda value, _: value.argmin(-1),
}
