"""What a kernel sends to other devices itself, as its frontend states it -> communications.

The idea: each entry is a message of every device, or of some, to the one that is so many places on
along each axis of the mesh.  The devices of the mesh are the module's partitions, in their order.

    messages_of('{"mesh": [8], "sent": [{"bytes": 64, "dtype": "f32", "by": [1], "from": [[-1]]}]}',
                World(8))
"""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flint.errors import FlintError
from flint.graph.communication import Communication
from flint.stablehlo.collectives.world import World


def messages_of(stated: str, world: World) -> list[Communication]:
    """The communications of a kernel, each a permute.

    Args:
        stated: JSON: ``mesh``, its sizes; ``sent``, a list of ``bytes``, ``dtype``, ``by`` (places
            on along each axis, whose ends are joined) and ``from`` (places of the senders, -1 for
            all along an axis).
        world: the module's devices.

    Raises:
        FlintError: the text is not of this form, or the mesh is not of the module's devices.
    """
    try:
        read = json.loads(stated)
        sizes = [int(size) for size in read["mesh"]]
        if math.prod(sizes) != world.partitions:
            raise FlintError(
                f"a kernel copies to other devices of a mesh of {math.prod(sizes):,}, but the "
                f"module is for {world.partitions:,} partitions"
            )
        ids = np.arange(world.partitions, dtype=np.int64).reshape(sizes)
        return [_message(entry, ids, world) for entry in read["sent"]]
    except (KeyError, TypeError, ValueError, IndexError, RecursionError) as error:
        raise FlintError(f"a kernel's copies to other devices cannot be read: {error}") from error


def _message(entry: Any, ids: NDArray[np.int64], world: World) -> Communication:
    size, steps = int(entry["bytes"]), [-int(step) for step in entry["by"]]
    if size < 0 or {len(steps), *map(len, entry["from"])} != {ids.ndim}:
        raise ValueError(f"{size} bytes from {entry['from']} by {entry['by']}")
    targets = np.roll(ids, steps, range(ids.ndim))
    sends = np.zeros(ids.shape, bool)
    for place in entry["from"]:
        sends[tuple(slice(None) if int(at) < 0 else int(at) for at in place)] = True
    pairs = np.stack([ids[sends], targets[sends]], axis=1)
    return Communication(
        kind="collective_permute",
        reduction=None,
        groups=None,
        permutation=world.permutation(pairs, channel=1),
        operand_bytes=(size,),
        result_bytes=(size,),
        dtypes=(str(entry["dtype"]),),
        channel=0,
    )
