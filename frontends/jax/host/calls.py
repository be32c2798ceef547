"""A step as the host runs it: the programs that it calls, in order.

The idea: a jitted function is one program; a function that calls several, and computes and reads
values in between, is a sequence of them.  The origin of a value is a number, so that the values
themselves are not kept.

    gradient(p, x) -> momentum(p, m, g)       g is Origin(program=0, number=0)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from flint.capturing.user_frames import short_path
from flint.frontends.jax.internals.avals import size_of
from flint.passes.in_sequence import Origin


def _type(aval: Any) -> tuple[Any, Any]:
    return getattr(aval, "shape", None), getattr(aval, "dtype", None)


@dataclass(frozen=True, slots=True)
class Operand:
    """An array that a program is called with.

    Attributes:
        aval: JAX's type of it.
        origin: where it comes from; None for a value that the host has.
    """

    aval: Any
    origin: Origin | None


@dataclass(frozen=True, slots=True)
class ReadValue:
    """A value that the host reads.

    Attributes:
        origin: where it comes from.
        file, line: of the user's code that reads it.
    """

    origin: Origin
    file: str
    line: int


@dataclass(slots=True)
class Called:
    """One call of a compiled program.

    Attributes:
        name: of the jitted function, or of the op if nothing was jitted.
        parameters: of JAX's ``jit`` primitive: jaxpr, shardings, donation, compiler options.
        operands: the operands of the call.
        jitted: whether the user's code, or a library's, jitted it.
        path: scopes and transformations around the call, as JAX writes them.
        file, line: of the user's code that calls it.
        compiled_for: for each operand the sharding that it was compiled for before the call, or the
            origin of an array that has it, None if the compiler chose; empty if it is compiled for
            its operands at the call.
        reads: the host's reads before the next call.
        gone: arrays that are no longer held when the next program is called.
        values: the known values of operands that are one integer: counters, bounds of loops.
    """

    name: str
    parameters: Mapping[str, Any]
    operands: tuple[Operand, ...]
    jitted: bool
    path: str = ""
    file: str = ""
    line: int = 0
    compiled_for: tuple[Any, ...] = ()
    reads: list[ReadValue] = field(default_factory=list)
    gone: set[Origin] = field(default_factory=set)
    values: Mapping[int, int] = field(default_factory=dict)

    @property
    def results(self) -> int:
        """The number of arrays that it returns."""
        return len(self.parameters["jaxpr"].out_avals)

    @property
    def place(self) -> str:
        """The user's line that calls it."""
        return f"{short_path(self.file)}:{self.line}" if self.file else ""

    @property
    def donated(self) -> tuple[bool, ...]:
        """The operands whose buffers it may reuse."""
        return tuple(self.parameters["donated_invars"])

    @property
    def deleted(self) -> list[Origin]:
        """The operands that it ends: the donated ones whose buffers its results take.

        A result takes that of an operand of its type, else of one of as many bytes.  Other operands
        live on, as in a run, in which jax warns of them.
        """
        left = [item for item, donated in zip(self.operands, self.donated, strict=True) if donated]
        results, found = list(self.parameters["jaxpr"].out_avals), []
        for size in (_type, size_of):
            for aval in tuple(results):
                same = next((item for item in left if size(item.aval) == size(aval)), None)
                if same is not None:
                    left.remove(same)
                    results.remove(aval)
                    found.append(same.origin)
        return [origin for origin in found if origin is not None]


@dataclass(frozen=True, slots=True)
class Recording:
    """The host side of one step.

    Attributes:
        calls: the calls in order.
        names: names of the step's arguments, in the order of their numbers.
        arguments: the step's arguments, abstract.
        outputs: its results among the arrays of programs and arguments.
        warnings: assumed values, text -> count.
    """

    calls: tuple[Called, ...]
    names: tuple[str, ...]
    arguments: tuple[Any, ...]
    outputs: tuple[Origin, ...]
    warnings: dict[str, int]

    @property
    def jitted(self) -> bool:
        """Whether the user's code jitted any of the called functions."""
        return any(call.jitted for call in self.calls)
