"""How much of a period's operands is new: bytes by where they come from.

The idea: a training step renews its parameters, and an evaluation leaves them as they are.  Data
may also stay as they are, if every step has the whole data set; nothing that is renewed has their
shape.

    sizes_of(before, own, 0, 3)         # Sizes(renewed=400, unchanged=0, fresh=64, same=0)
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import NamedTuple


class Given(NamedTuple):
    """An operand of a call that is no constant.

    Attributes:
        array: which array it is.
        since: the earliest call before which it existed; None for data, which no call of this
            thread has computed.
        size: its bytes.
        shape: its shape.
    """

    array: Hashable
    since: int | None
    size: int
    shape: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Made:
    """The data of a call for finding periods.

    Attributes:
        key: equal for calls of the same kind.
        name: name of the called function.
        jitted: whether the user's code, or a library's, jitted it.
        given: its operands that are not constants.
        thread: that makes it; 0 is the program's first.
        gradients: whether it computes some.
        place: the user's line that makes it.
    """

    key: Hashable
    name: str
    jitted: bool
    given: tuple[Given, ...]
    thread: int = 0
    gradients: bool = False
    place: str = ""

    @property
    def size(self) -> int:
        """Bytes of its operands."""
        return sum(one.size for one in self.given)


@dataclass(slots=True)
class Sizes:
    """Bytes of a period's operands.

    Attributes:
        renewed: computed by the period before.
        unchanged: older.
        fresh: data that the period before did not have.
        same: arrays that it had, of other shapes than anything that is renewed, if gradients are
            computed: those of parameters would have their shape.
    """

    renewed: int = 0
    unchanged: int = 0
    fresh: int = 0
    same: int = 0


def sizes_of(before: Sequence[Made], own: Sequence[Made], first: int, begin: int) -> Sizes:
    """The sizes of a period.

    Data that stay the same may be parameters that the host has made: a policy's, or those of which
    gradients are summed.

    Args:
        before: the calls of the period before it.
        own: its calls.
        first, begin: numbers of the first call of either.
    """
    known = {given.array for call in before for given in call.given}
    outside = {
        given.array: given
        for call in own
        for given in call.given
        if given.since is None or given.since <= begin
    }.values()
    renewed = [one for one in outside if one.since is not None and one.since > first]
    gradients, shapes = any(call.gradients for call in own), {one.shape for one in renewed}
    sizes = Sizes(renewed=sum(one.size for one in renewed))
    for one in outside:
        if one.since is None and one.array not in known:
            sizes.fresh += one.size
        elif one.since is None or one.since <= first:
            if gradients and one.shape not in shapes:
                sizes.same += one.size
            else:
                sizes.unchanged += one.size
    return sizes
