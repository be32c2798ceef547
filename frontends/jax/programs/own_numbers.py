"""The sequence of some ranks, with origins numbered in it.

The idea: a step numbers all its calls; the ranks that have no part in some of them number those
that they run, and the arrays that come from other ranks.

    made = SequenceInMaking(step_inputs)
    made.move(arriving, 3, Origin(1, 0))
    made.call(3, called)                    # takes the array that has arrived
    made.items
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from flint.capturing.sequences import CalledModule, Moved
from flint.graph.tensor_types import TensorType
from flint.passes.in_sequence import Origin
from flint.workload.programs import Call, ProgramInput

_UNUSED = TensorType((0,), "i8", 0)


class SequenceInMaking:
    """A sequence while it is made, with origins numbered in it.

    Args:
        inputs: the whole step's.
    """

    def __init__(self, inputs: Sequence[ProgramInput]) -> None:
        self.items: list[CalledModule | Moved] = []
        self._inputs, self._types = inputs, dict[int, TensorType]()
        self._place: dict[int, int] = {}  # number of a call -> its place here
        self._arrived: dict[tuple[int, Origin], Origin] = {}

    def move(self, item: Moved, number: int, origin: Origin, *, is_put: bool) -> None:
        """Add an array that a call takes, or returns if it does nothing else."""
        if item.call.outputs and is_put:
            self._place[number] = len(self.items)
        elif item.call.outputs:
            self._arrived[number, origin] = Origin(len(self.items), 0)
        self.items.append(replace(item, call=self._renumbered(item.call, -1)))

    def tell(self, item: Moved) -> None:
        """Add a message that stands for the host, which waits for a value."""
        self.items.append(replace(item, call=self._renumbered(item.call, -1)))

    def call(self, number: int, item: CalledModule) -> None:
        """Add a call."""
        call = replace(self._renumbered(item.call, number), reads=())
        held = tuple(map(self._own, filter(self._is_here, item.held)))
        self._place[number] = len(self.items)
        self.items.append(replace(item, call=call, held=held))

    def reads(self, call: Call) -> None:
        """Add what the host reads after a call: to the last one here."""
        last = next((n for n in reversed(range(len(self.items))) if self._is_call(n)), None)
        own = tuple(
            replace(read, value=self._own(read.value))
            for read in call.reads
            if self._is_here(read.value)
        )
        if last is not None and own:
            item = self.items[last]
            self.items[last] = replace(
                item, call=replace(item.call, reads=(*item.call.reads, *own))
            )

    def inputs(self) -> list[ProgramInput]:
        """The step's inputs: those that no program here takes have no size."""
        return [
            replace(item, type=self._types.get(number, _UNUSED))
            for number, item in enumerate(self._inputs)
        ]

    def outputs(self, outputs: Sequence[Origin]) -> list[Origin]:
        """What the step returns that is made here."""
        return [self._own(origin) for origin in outputs if self._is_here(origin)]

    def _renumbered(self, call: Call, number: int) -> Call:
        operands = tuple(
            self._arrived.get((number, origin)) or self._own(origin) for origin in call.operands
        )
        for origin, item in zip(operands, call.inputs, strict=True):
            if origin.program < 0:
                self._types.setdefault(origin.number, item.type)
        return replace(call, operands=operands)

    def _is_call(self, number: int) -> bool:
        return isinstance(self.items[number], CalledModule)

    def _is_here(self, origin: Origin) -> bool:
        return origin.program < 0 or origin.program in self._place

    def _own(self, origin: Origin) -> Origin:
        if origin.program < 0:
            return origin
        return Origin(self._place[origin.program], origin.number)
