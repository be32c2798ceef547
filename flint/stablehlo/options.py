"""Decisions about a conversion that a module leaves to the user."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from flint.graph.routing import Routing

#: The names in reports of a choice for all loops whose count is unknown, and all conditionals.
ALL_LOOPS: Final = "--trip-count"
ALL_CONDITIONALS: Final = "--branch"
#: That of opening PyTorch's kernels.
FUSE: Final = "--fuse"
#: Why such a choice was not needed.
_UNUSED = {
    FUSE: "no kernel of PyTorch's to open, only captures of it have them",
    ALL_LOOPS: "every loop's trip count is known without it",
    ALL_CONDITIONALS: "no conditional needs a branch",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class WalkOptions:
    """Options of the walk from a module to a graph.

    Attributes:
        trip_counts: iterations of loops whose count cannot be proved, by loop name (``while_0``);
            the key ``""`` is for every such loop; ``gradient/while_0`` is a loop of the program of
            that name, if a step runs several.
        branches: branch of conditionals whose predicate depends on data, by name (``case_0``); the
            key ``""`` is for every such conditional.
        reduce_scatter: an all-reduce of which a rank keeps only its own slice becomes a
            reduce-scatter, as in backends; False keeps it as written.
        drop_barriers: ``optimization_barrier`` passes each operand through; else its results exist
            when all its operands do.
        strict: an op or custom call without a rule is an error, not a warning.
        fuse: open composites, like a compiler, instead of making each one kernel; streams,
            communications and waits keep the recorded order, optimizers and FSDP's copies their
            kernels.
        lookahead: loop iterations that may overlap (0: sequential, None: no limit).
        routing: how a router distributes tokens, if sizes depend on it; None: sizes are counted at
            their bounds (in a PyTorch capture, which needs numbers: as balanced).
    """

    trip_counts: Mapping[str, int] = field(default_factory=dict)
    branches: Mapping[str, int] = field(default_factory=dict)
    reduce_scatter: bool = True
    drop_barriers: bool = False
    strict: bool = False
    lookahead: int | None = 0
    fuse: bool = False
    routing: Routing | None = None

    @property
    def names(self) -> frozenset[str]:
        """Loops and conditionals with their own choices, and options that nothing may need."""
        return frozenset(
            [name or ALL_LOOPS for name in self.trip_counts]
            + [name or ALL_CONDITIONALS for name in self.branches]
            + [FUSE] * self.fuse
        )

    def with_choices(self, found: Mapping[str, int]) -> WalkOptions:
        """With trip counts and branches that were found, by name: for another walk."""
        counts = {name: n for name, n in found.items() if name.rpartition("/")[2][:5] == "while"}
        return replace(
            self,
            trip_counts={**counts, **self.trip_counts},
            branches={**{n: b for n, b in found.items() if n not in counts}, **self.branches},
        )

    def for_program(self, name: str) -> WalkOptions:
        """The choices for one of the programs that a step runs."""
        return replace(
            self,
            trip_counts=choices_for(self.trip_counts, name),
            branches=choices_for(self.branches, name),
        )


def choices_for(given: Mapping[str, int], program: str) -> dict[str, int]:
    """Choices by name for one program: its own take precedence over those for all."""
    for_all = {name: number for name, number in given.items() if "/" not in name}
    begin = f"{program}/"
    own = {name.removeprefix(begin): n for name, n in given.items() if name.startswith(begin)}
    return for_all | own


def unused_choices(
    options: WalkOptions, programs: Sequence[str], unused: Sequence[frozenset[str]]
) -> dict[str, int]:
    """A warning for each choice that no program needed.

    Args:
        options: the choices.
        programs: names of the programs; a single one is named "".
        unused: the choices that each of them did not need, by the names in it.
    """
    found = {}
    for name in sorted(options.names):
        program, _, plain = name.rpartition("/")
        asked = [at for at, other in enumerate(programs) if not program or other == program]
        if not asked or (plain and all(plain in unused[at] for at in asked)):
            why = _UNUSED.get(name, "no loop or conditional of this name needs a value")
            found[f"{name}: {why}"] = 1
    return found
