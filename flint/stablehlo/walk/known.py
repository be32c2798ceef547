"""What the walk knows about a value beyond its type.

The idea: most values are data.  Some follow from the program: an integer from rank and loop
counters, a small table, rows stored by a loop, the elements of a tuple.  One record has all of it,
so that a value's other names share it.  Where the values of a step's inputs are known, so are more
integers, of this step only: they decide its branches and loops, and nothing else.
"""

from __future__ import annotations

from typing import NamedTuple

from flint.graph.scalars import Scalar
from flint.stablehlo.loops.loop_stacks import Stack
from flint.stablehlo.values.arrays import Array


class Known(NamedTuple):
    """What is known about one value; unknown parts are None.

    Attributes:
        scalar: the expression of an integer.
        array: a small array of integers that are constants, or expressions.
        stack: the rows that a loop has written, one per iteration.
        elements: the values that a tuple is made of, or that an asynchronous operation promises.
        now: the expression of an integer with the inputs' values in it, where there is no other.
    """

    scalar: Scalar | None = None
    array: Array | None = None
    stack: Stack | None = None
    elements: tuple[int, ...] | None = None
    now: Scalar | None = None


#: For a value that is only data.
NOTHING = Known()
