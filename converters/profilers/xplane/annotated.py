"""Steps that a JAX program annotates, and its calls of programs within them.

The idea: ``jax.profiler.StepTraceAnnotation`` marks a step on the host.  What it calls runs later,
so the calls (``PjitFunction(step)``) are counted, not the runs on devices.

    marked.several("jit_step")           # how many steps call jit_step more than once
"""

from __future__ import annotations

import re
from bisect import bisect_left
from typing import Any, NamedTuple

SEVERAL = (
    "annotated steps (StepTraceAnnotation) that run the program several times: each run counts as "
    "a step"
)
#: A call of a jitted function, or of what it was compiled to.
_CALL = re.compile(r"PjitFunction\((?:jit\()?(.{1,400}?)\)+")
#: What the name of a program has other characters for.
_OTHERS = re.compile(r"[\W_]+")
_NUMBER = "step_num"


class Marked(NamedTuple):
    """What a host has annotated and called; nanoseconds.

    Attributes:
        steps: begin and end of each annotated step.
        calls: begin, end, and name of the function; a call has another one inside.
    """

    steps: list[tuple[int, int]]
    calls: list[tuple[int, int, str]]

    def take(self, event: Any, stats: dict[str, Any]) -> None:
        """Keep an event of a host, if it is either."""
        start = int(event.start_ns)
        end = start + int(event.duration_ns)
        if _NUMBER in stats:
            self.steps.append((start, end))
        elif called := _CALL.fullmatch(event.name):
            self.calls.append((start, end, _OTHERS.sub("", called[1])))

    def several(self, program: str) -> int:
        """The number of steps that call a program more than once."""
        function = _OTHERS.sub("", program.removeprefix("jit_"))
        begins: list[int] = []
        over = 0
        for start, end, name in sorted(self.calls):
            if name == function and start >= over:
                begins.append(start)
                over = end
        counts = (
            bisect_left(begins, end) - bisect_left(begins, begin) for begin, end in self.steps
        )
        return sum(count > 1 for count in counts)
