"""Facts about ops and process groups from the nodes of a PyTorch execution trace.

groups, world = groups_and_world(configs)
facts_of("record_param_comms", inputs, attributes, groups).group
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from flint.converters.profilers.torch_collectives import (
    comms_facts,
    functional_reduction,
    groups_of,
    old_record,
    peer_in_group,
    root_in_group,
)
from flint.converters.profilers.torch_ops import op_facts, tensors_of
from flint.cost.aten_work import needs_values
from flint.observed.classes import OpClass
from flint.observed.columns import OpFacts

#: The observer leaves out tensors of a list beyond 4096 (kMaxNumElements).
_CUT_AT = 4096
#: The node that lists the process groups.
GROUPS = "## process_group:init ##"

#: Attributes of a collective's node since 1.1.1 -> Kineto's names for them.
_COMMS = {
    "collective_name": "Collective name",
    "dtype": "dtype",
    "in_msg_nelems": "In msg nelems",
    "out_msg_nelems": "Out msg nelems",
    "pg_name": "Process Group Name",
    "pg_size": "Group size",
    "global_rank_start": "Global rank start",
    "global_rank_stride": "Global rank stride",
}


def communicates(name: str) -> bool:
    """Whether the process groups complete a node's facts, or the node lists them."""
    return "c10d" in name or name in ("record_param_comms", GROUPS)


def groups_and_world(
    nodes: Iterable[tuple[str, dict[str, Any]]],
) -> tuple[dict[str, tuple[int, ...]], int | None]:
    """Process groups and the number of ranks, from the node that lists them.

    Args:
        nodes: names and inputs.
    """
    for name, inputs in nodes:
        values = inputs.get("values")
        if name != GROUPS or not isinstance(values, list) or not values:
            continue
        try:
            config = json.loads(values[0])
        except (TypeError, ValueError, RecursionError):
            continue
        if not isinstance(config, list):
            continue
        groups = groups_of(config)
        entries = [entry for entry in config if isinstance(entry, dict)]
        sizes = [e["group_size"] for e in entries if type(e.get("group_size")) is int]
        world = max(sizes, default=0)
        for entry in entries:  # a group without ranks means all ranks
            if entry.get("ranks") == [] and 0 < world <= 1 << 22:
                groups[str(entry.get("pg_name", ""))] = tuple(range(world))
            if str(entry.get("pg_name", "")) in groups and "backend_id" in entry:
                groups[f"backend {entry['backend_id']}"] = groups[str(entry["pg_name"])]
        return groups, world or None
    return {}, None


def facts_of(
    name: str,
    inputs: dict[str, Any],
    attributes: dict[str, Any],
    groups: dict[str, tuple[int, ...]],
) -> OpFacts:
    """Facts about an op.

    Args:
        name: name of the op.
        inputs: values, shapes and types, as in the file.
        attributes: by name.
        groups: process group's name -> ranks.
    """
    if name == "record_param_comms":
        args = {ours: attributes[key] for key, ours in _COMMS.items() if key in attributes}
        return comms_facts(args, groups) or _recorded(name, inputs, groups)
    shapes, types = inputs.get("shapes"), inputs.get("types")
    if not isinstance(shapes, list) or not isinstance(types, list):
        return op_facts(name, None)
    if "::" not in name:
        return OpFacts(OpClass.FREE, name)
    group = None
    if name.startswith("_c10d_functional"):  # the group's name is its last text
        values = inputs.get("values")
        texts = (
            [item for item in values if isinstance(item, str)] if isinstance(values, list) else []
        )
        group = groups.get(texts[-1]) if texts else None
    values = inputs.get("values")
    values = values if isinstance(values, list) and needs_values(name) else []
    facts = op_facts(name, tensors_of(shapes, types), group, values)
    if reduction := functional_reduction(name, inputs.get("values")):
        facts = replace(facts, reduction=reduction)
    if (root := root_in_group(name, inputs.get("values"))) >= 0:
        facts = replace(facts, root=root)
    if facts.kind.collective and len(facts.operands or ()) >= _CUT_AT:
        facts = replace(facts, operands=None, parts=None)
    if facts.kind in (OpClass.SEND, OpClass.RECV):
        facts = replace(facts, peer=peer_in_group(facts.name, inputs.get("values"), groups))
    return facts


def _recorded(name: str, inputs: dict[str, Any], groups: dict[str, tuple[int, ...]]) -> OpFacts:
    """Before 1.1.1 the collective's name and group are among the inputs' values."""
    values, shapes, types = (inputs.get(key) for key in ("values", "shapes", "types"))
    found = old_record(values, shapes, types)
    if found is None or not isinstance(shapes, list) or not isinstance(types, list):
        return OpFacts(OpClass.FREE, name)
    assert isinstance(values, list)
    named = [value for value in values if isinstance(value, str) and value in groups]
    named += [f"backend {value}" for value in values if f"backend {value}" in groups]
    named += [
        str(value[0]) for value in values if isinstance(value, list) and value
        and str(value[0]) in groups
    ]  # fmt: skip
    group = groups[named[0]] if named else found.group
    peer = -1
    if found.kind in (OpClass.SEND, OpClass.RECV) and group is not None:
        place = values[values.index(found.name) - 1]  # the other's number within the group
        peer = group[place] if type(place) is int and 0 <= place < len(group) else -1
    return replace(found, name=name, group=group, peer=peer)
