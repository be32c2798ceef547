"""Actors as the machine runs them: columns over the nodes of one kind of rank.

The idea: an actor stands for all ranks that behave alike.  What its nodes are, what they wait for
and how long they take are arrays; names, shapes and bytes stay behind in the graph.

    actor = Actor(types, ptr, deps, ticks, channel)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from flint.graph.graph import Ints

#: The capacity of a rank's links on a tier: a whole number, as ticks are.
CAPACITY: Final = 1 << 20


@dataclass(frozen=True, eq=False, slots=True)
class Beside:
    """What the communications of an actor leave to what runs at the same time.

    Attributes:
        speed: speed of kernels while each COLL or SEND runs, above 0 and at most 1, shape [nodes].
        load: each node's row of ``loads``, shape [nodes].
        loads: the part of the rank's links on each tier that a COLL or SEND takes at full speed, in
            1/``CAPACITY``, shape [rows, tiers].
    """

    speed: NDArray[np.float64]
    load: Ints
    loads: Ints


@dataclass(frozen=True, eq=False, slots=True)
class Actor:
    """One kind of rank.

    Attributes:
        types: ``NodeType`` in issue order, shape [nodes].
        ptr, deps: CSR over the nodes to wait for.
        ticks: how long each node takes; a RECV itself takes no time, shape [nodes].
        channel: for a COLL the number of its meeting, for a SEND or RECV the number of its message;
            else -1, shape [nodes].
        slot: the slot of each COLL and SEND, and of each MEM_LOAD and MEM_STORE, which have
            separate slots; from 0, shape [nodes]; None: there is one.
        delay: how long after its dependencies each node begins; negative for a free COMP that
            begins before that, shape [nodes]; None: no delays.
        free: nodes that take no slot and share nothing, shape [nodes]; None: there are none.
        beside: what each COLL or SEND leaves to what runs at the same time; None: kernels run at
            full speed, and each takes the whole of the same links.
    """

    types: NDArray[np.int8]
    ptr: Ints
    deps: Ints
    ticks: Ints
    channel: Ints
    slot: Ints | None = None
    delay: Ints | None = None
    free: NDArray[np.bool_] | None = None
    beside: Beside | None = None

    def __len__(self) -> int:
        return len(self.types)
