"""What-if passes: the same step, issued or grouped in another way.

The idea: each pass is a function from graph to graph with options, by name in a table.  They run on
graphs that are already at a granularity (kernels, say), and graphs are verified before and after
each.  Hoisting, deferring, bucketing and splitting keep every payload byte and every FLOP.

    passes = parse_passes(["bucket:kind=all_gather,bytes=64MiB", "hoist:by=1"])
    graph = transform(graph, passes)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from types import MappingProxyType
from typing import Any, Final

import numpy as np

from flint.errors import UsageError
from flint.graph.communication import COLLECTIVES, POINT_TO_POINT
from flint.graph.graph import WorkloadGraph
from flint.graph.verification import verify

#: A pass's function.
_COLUMNS: Final = (
    "op", "operand_ptr", "operand", "order_ptr", "order_node", "outputs", "bytes_read",
    "bytes_written", "work_flops",
)  # fmt: skip

_UNITS: Final = {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "kB": 10**3, "MB": 10**6, "GB": 10**9}


def _count(text: str) -> int:
    number = int(text)
    if number < 1:
        raise ValueError("a whole number of at least 1")
    return number


def _bytes(text: str) -> int:
    for unit, size in _UNITS.items():
        if text.endswith(unit):
            return _count(str(int(float(text.removesuffix(unit)) * size)))
    return _count(text.removesuffix("B"))


def _factor(text: str) -> float:
    number = float(text)
    if not 0 <= number < 1e6:
        raise ValueError("a factor from 0 to 1e6")
    return number


def _kind(text: str) -> str:
    kind = text.replace("-", "_")
    if kind not in COLLECTIVES or kind in POINT_TO_POINT:
        raise ValueError("a collective")
    return kind


def _algorithm(text: str) -> str:
    name = text.replace("_", "-")
    if name not in _ALGORITHMS:
        raise ValueError("an algorithm")
    return name


@dataclass(frozen=True, slots=True)
class WhatIf:
    """One pass of the table.

    Attributes:
        module: module of this package, imported on call; its function of the same name makes a
            graph from a graph and options.
        options: name -> (parser of its text, its description in a message, default).
    """

    module: str
    options: Mapping[str, tuple[Callable[[str], Any], str, Any]]

    def __call__(self, graph: WorkloadGraph, **options: Any) -> WorkloadGraph:
        """The graph after the pass."""
        function = getattr(import_module(f"{__name__}.{self.module}"), self.module)
        made: WorkloadGraph = function(graph, **options)
        return made


_KIND = (_kind, "a collective such as all_gather or reduce_scatter")
_COUNT = (_count, "a whole number of at least 1")
_ALGORITHMS = ("reduce-scatter+all-gather", "hierarchical")

#: What-if passes by name.
WHAT_IF: Final[Mapping[str, WhatIf]] = MappingProxyType(
    {
        "bucket": WhatIf(
            "bucket",
            {
                "kind": (*_KIND, "reduce_scatter"),
                "bytes": (_bytes, "a size such as 25MiB", 25 * 2**20),
            },
        ),
        "hoist": WhatIf("hoist", {"by": (*_COUNT, 1)}),
        "defer": WhatIf("defer", {"by": (*_COUNT, 1)}),
        "split": WhatIf("split", {"kind": (*_KIND, "all_gather"), "chunks": (*_COUNT, 2)}),
        "replace": WhatIf(
            "replace_algorithm",
            {
                "kind": (*_KIND, "all_reduce"),
                "by": (_algorithm, " or ".join(_ALGORITHMS), _ALGORITHMS[0]),
                "inner": (*_COUNT, 8),
            },
        ),
        "decompose": WhatIf("decompose", {"ranks": (*_COUNT, 16)}),
        "narrow": WhatIf("narrow", {"bits": (*_COUNT, 8)}),
        "scale": WhatIf("scale", {"factor": (_factor, "a number from 0 to 1e6", 1.0)}),
    }
)


@dataclass(frozen=True, slots=True)
class Chosen:
    """A pass with its options.

    Attributes:
        name: in ``WHAT_IF``.
        options: all of them.
    """

    name: str
    options: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return ":".join([self.name, ",".join(f"{k}={v}" for k, v in self.options.items())])


def parse_pass(text: str) -> Chosen:
    """A pass from ``NAME[:OPTION=VALUE,...]``.

    Raises:
        UsageError: an unknown pass or option, or an invalid value.
    """
    name, _, rest = text.partition(":")
    if name not in WHAT_IF:
        raise UsageError(f"pass {name!r}: choose from {', '.join(WHAT_IF)}")
    known = WHAT_IF[name].options
    given: dict[str, Any] = {}
    for item in rest.split(",") if rest else ():
        option, equals, value = item.partition("=")
        if option not in known:
            raise UsageError(f"pass {name}, option {option!r}: choose from {', '.join(known)}")
        if option in given:
            raise UsageError(f"pass {name}, option {option!r} is given twice")
        read, meant, _ = known[option]
        try:
            given[option] = read(value if equals else "")
        except (ValueError, OverflowError):
            raise UsageError(f"pass {name}, {option}={value!r}: give {meant}") from None
    defaults = {option: default for option, (_, _, default) in known.items()}
    return Chosen(name, {**defaults, **given})


def parse_passes(passes: Iterable[str | Chosen]) -> tuple[Chosen, ...]:
    """Passes in the order given; texts are read (see ``parse_pass``)."""
    return tuple(parse_pass(item) if isinstance(item, str) else item for item in passes)


def transform(graph: WorkloadGraph, passes: Iterable[str | Chosen]) -> WorkloadGraph:
    """``graph`` after what-if passes, one after another.

    Args:
        graph: at the granularity that is to be simulated.
        passes: texts, or results of ``parse_pass``.

    Raises:
        UsageError: an unknown pass or option.
        FlintError: a graph that contradicts itself (see ``flint.graph.verification``).
    """
    return stages(graph, passes)[-1]


def stages(graph: WorkloadGraph, passes: Iterable[str | Chosen]) -> list[WorkloadGraph]:
    """``graph`` before and after each pass; arguments as of ``transform``."""
    chosen = parse_passes(passes)
    if chosen:
        verify(graph)
    found = [graph]
    for item in chosen:
        found.append(WHAT_IF[item.name](found[-1], **item.options))
        verify(found[-1], f"after pass {item}")
    return found


def same(one: WorkloadGraph, other: WorkloadGraph) -> bool:
    """Whether a pass left everything as it was: nodes, their work, edges and order."""
    blocks = list(zip(one.walk(), other.walk(), strict=False))
    if len(list(one.walk())) != len(list(other.walk())):
        return False
    for (before, times), (after, again) in blocks:
        if times != again or any(
            not np.array_equal(getattr(before, name), getattr(after, name)) for name in _COLUMNS
        ):
            return False
    return True
