"""What a user decides about a conversion that the module alone does not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class WalkOptions:
    """Choices of the walk from a module to a graph.

    Attributes:
        trip_counts: iterations of loops whose count cannot be proved, by loop name (``while_0``);
            the key ``""`` is for every such loop.
        branches: branch of conditionals whose predicate depends on data, by name (``case_0``); the
            key ``""`` is for every such conditional.
        reduce_scatter: an all-reduce of which a rank keeps only its own slice is a reduce-scatter,
            as backends make it; False keeps it as written.
        drop_barriers: ``optimization_barrier`` passes each operand through; else its results exist
            when all its operands do.
        strict: an op or custom call without a rule is an error, not a warning.
        fuse: open composites, as a compiler would, instead of one kernel each; streams,
            communications and waits keep the recorded order.
        lookahead: loop iterations that may overlap (0: sequential, None: no limit).
    """

    trip_counts: Mapping[str, int] = field(default_factory=dict)
    branches: Mapping[str, int] = field(default_factory=dict)
    reduce_scatter: bool = True
    drop_barriers: bool = False
    strict: bool = False
    lookahead: int | None = 0
    fuse: bool = False
