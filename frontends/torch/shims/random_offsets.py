"""Where in the stream of random numbers a shard of a DTensor begins.

DTensor moves the generator before and after each random op, so that shards are parts of one random
tensor; for that it cuts every tensor into the shards of all ranks, which at thousands of ranks
takes most of a model's initialisation.  Fake tensors have no values, and no kernel depends on the
offset: the generator stays where it is.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any


def apply() -> None:
    """Leave the generator alone around random ops of DTensors."""
    from torch.distributed.tensor import _random

    tracker: Any = _random.OffsetBasedRNGTracker
    tracker._distribute_region = _nothing


@contextlib.contextmanager
def _nothing(*_: Any, **__: Any) -> Iterator[None]:
    yield
