"""The form of an op's rule.

The idea: everything that Flint knows about one op is in one place, an entry of the table
``flint.stablehlo.rules.RULES``: what the op is to a fusing compiler and what work it does.

    RULES["add"] = Rule(Role.ELEMENTWISE, elementwise(Unit.VECTOR))
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

from flint.graph.tensor_types import TensorType
from flint.graph.work import Role, Work
from flint.stablehlo.read.records import Op

#: (op, operand types, result types) -> whether this one only renames its operand's buffer.
ViewRule = Callable[[Op, Sequence[TensorType], Sequence[TensorType]], bool]

#: (op, operand types, result types) -> work. Pure; raises FlintError for an inconsistent op
#: (negative sizes, a contracting dim that does not exist).
WorkRule = Callable[[Op, Sequence[TensorType], Sequence[TensorType]], Work]


@dataclass(frozen=True, slots=True)
class Rule:
    """What an op is and does.

    Attributes:
        role: what it is; the category (compute, movement, free) follows from it.
        work: its work from types and attributes.
        types_only: the work depends on nothing but name and types, so that it may be cached by
            them; False when attributes or regions matter.
        kind: what the work depends on beside name and types, if that is less than all attributes
            and regions; None: nothing less.
        view: whether a compiler turns this use of the op into a bitcast; None: never.
    """

    role: Role
    work: WorkRule
    types_only: bool = True
    kind: Callable[[Op], Hashable] | None = None
    view: ViewRule | None = None
