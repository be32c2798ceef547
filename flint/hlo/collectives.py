"""Attribute decoders of collectives and of point-to-point exchanges.

Groups are decoded once per distinct content (``groups.py`` has their forms); the channel and
``use_global_device_ids`` together determine the kind of their ids.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np

from flint.hlo.attributes import frontend_attributes
from flint.hlo.context import Context
from flint.hlo.groups import (
    groups_of_iota,
    groups_of_list,
    groups_of_mesh,
    groups_of_table,
)
from flint.stablehlo.read.records import ReplicaGroups


def replica_groups(instruction: Any, context: Context) -> ReplicaGroups:
    """Replica groups from whichever field the writer used; each distinct content is decoded
    once.
    """
    known = context.groups
    for form, (field, decode) in enumerate(_GROUP_FIELDS):
        data = getattr(instruction, field)
        if data:
            groups = known.get((form, data))
            if groups is None:
                groups = known[form, data] = decode(data)
                if groups.mesh is not None:
                    number = len(context.meshes)
                    context.meshes.setdefault(
                        groups.mesh[0], f"mesh_{number}" if number else "mesh"
                    )
            return groups
    return groups_of_table(instruction.replica_groups)


_GROUP_FIELDS: tuple[tuple[str, Callable[[bytes], ReplicaGroups]], ...] = (
    ("iota_collective_device_list", groups_of_iota),
    ("mesh_axes_replica_group_list", groups_of_mesh),
    ("collective_device_list", groups_of_list),
)


def channel(instruction: Any) -> dict[str, Any]:
    """Channel (0: none; older writers use ``all_reduce_id``) and the meaning of device numbers."""
    return {
        "channel_id": max(instruction.channel_id, instruction.all_reduce_id, 0),
        "use_global_device_ids": instruction.use_global_device_ids,
    }


def collective(instruction: Any, context: Context) -> dict[str, Any]:
    """Groups and channel of a collective."""
    return channel(instruction) | {"groups": replica_groups(instruction, context)}


def ragged_all_to_all(instruction: Any, context: Context) -> dict[str, Any]:
    """The custom call by which StableHLO writes a ragged all-to-all."""
    return {"target": "ragged_all_to_all"} | collective(instruction, context)


def point_to_point(instruction: Any, _context: Context) -> dict[str, Any]:
    """Source-target pairs and channel."""
    decoded = channel(instruction)
    pairs = [(pair.source, pair.target) for pair in instruction.source_target_pairs]
    # A permutation may be empty: no rank sends, and all results are zeros.
    if pairs or instruction.opcode.startswith("collective-permute"):
        decoded["pairs"] = np.array(pairs, dtype=np.int64).reshape(-1, 2)
    return decoded


#: Where XLA's pipelining passes write senders and receivers, as ``{{0,1},{1,2}}``.
_PAIRS_ATTRIBUTE = "_xla_send_recv_source_target_pairs"
_PAIR = re.compile(r"\{\s*(\d{1,9})\s*,\s*(\d{1,9})\s*\}")


def host_or_point_to_point(instruction: Any, context: Context) -> dict[str, Any]:
    """Send and receive: to the host, or between devices that a frontend attribute pairs."""
    decoded = point_to_point(instruction, context)
    decoded["is_host_transfer"] = instruction.is_host_transfer
    if "pairs" not in decoded and instruction.frontend_attributes:
        pairs = _PAIR.findall(frontend_attributes(instruction).get(_PAIRS_ATTRIBUTE, ""))
        if pairs:
            decoded["pairs"] = np.array(pairs, dtype=np.int64)
    return decoded
