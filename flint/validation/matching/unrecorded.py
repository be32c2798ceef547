"""What a trace does not record about an op that has a partner.

The idea: a fact that a trace does not record can be wrong without showing as a difference, so each
pair lists the captured facts that were not compared.

    unrecorded(rules, captured, executed, by_name=False)      # ["group", "reduce op"]
"""

from __future__ import annotations

from collections.abc import Callable

from flint.observed.classes import OpClass
from flint.observed.columns import OpFacts
from flint.validation.matching.equivalence import MESSAGES, REDUCING, Rules, last_name

SIZES = "sizes"
ELEMENT_TYPE = "element type"
GROUP = "group"
INFERRED = "group, inferred from several ranks' traces as captured"
PEER = "sender or receiver"
REDUCTION = "reduce op"
ROOT = "root of a broadcast"
WINDOW = "window of a convolution"
WHOLE = "whether it ran"
RAN = "whether a lighter op ran"
LIGHTER = "why lighter ops differ"

#: What is never compared, for recordings of PyTorch and for XLA programs.
VALUES = (
    "values: data, and arguments that are not tensors (learning rates, eps, dilations that keep "
    "the shapes, whether a sum is averaged); a workload contains none"
)
COUNTS = (
    "how many lighter ops ran: XLA fuses and repeats them; which ones ran is compared per layer"
)


def unrecorded(rules: Rules, captured: OpFacts, executed: OpFacts, *, by_name: bool) -> list[str]:
    """Facts of a captured op, from those that must match, that its partner in the trace lacks."""
    found = [SIZES] if by_name else []
    return found + [
        fact for fact, is_unrecorded in _FACTS if is_unrecorded(rules, captured, executed)
    ]


def _group(rules: Rules, captured: OpFacts, executed: OpFacts) -> bool:
    return executed.kind not in MESSAGES and rules.of_unknown_group(captured, executed)


def _peer(rules: Rules, captured: OpFacts, executed: OpFacts) -> bool:
    return executed.kind in MESSAGES and rules.of_unknown_group(captured, executed)


def _reduction(rules: Rules, captured: OpFacts, executed: OpFacts) -> bool:
    """A group of one rank reduces nothing; a barrier has no numbers."""
    alone = captured.group is not None and len(captured.group) == 1
    nothing = alone or last_name(executed.name) == "barrier"
    return executed.kind in REDUCING and not (nothing or executed.reduction)


def _root(rules: Rules, captured: OpFacts, executed: OpFacts) -> bool:
    return rules.recorded and executed.kind == OpClass.BROADCAST and executed.root < 0


def _element_type(rules: Rules, captured: OpFacts, executed: OpFacts) -> bool:
    """If a backend computes bfloat16 as float32, the two cannot be distinguished."""
    if not captured.dtype:
        return False
    same = captured.dtype == (executed.compared or executed.dtype)
    return not executed.dtype or (rules.promoted and captured.dtype == "bf16" and not same)


def _window(rules: Rules, captured: OpFacts, executed: OpFacts) -> bool:
    """Of PyTorch's the shapes of what reads the result tell it."""
    of_xla = not rules.recorded and captured.kind == OpClass.CONVOLUTION
    return of_xla and not executed.convolved


_FACTS: tuple[tuple[str, Callable[[Rules, OpFacts, OpFacts], bool]], ...] = (
    (ELEMENT_TYPE, _element_type),
    (GROUP, _group),
    (PEER, _peer),
    (REDUCTION, _reduction),
    (ROOT, _root),
    (WINDOW, _window),
)
