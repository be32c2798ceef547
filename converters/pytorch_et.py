"""PyTorch execution traces (``ExecutionTraceObserver``) -> observed ops.

The idea: a node is an op that ran, with all its tensors; ``ctrl_deps`` is the op around it, and
``rf_id`` counts the ops in the order in which they began.  There are no times in it.  Schemas 1.0.2
to 1.1.1 are known; what an older one writes elsewhere is refused rather than misread.

    observe(Path("et.json")).rows(rank=0, step=1)
"""

from __future__ import annotations

import json
import math
import re
from bisect import bisect_right
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from flint.converters.json_traces import JsonTrace
from flint.converters.pytorch_et_links import AccessesBuilder
from flint.converters.torch_ops import (
    comms_facts,
    groups_of,
    op_facts,
    peer_in_group,
    tensors_of,
)
from flint.errors import FlintError
from flint.post_execution.storages import Accesses
from flint.tensor_types import DTYPE_BITS
from flint.validation.classes import OpClass, c10d_class
from flint.validation.observed import UNTOLD_RANK, Observed, ObservedRows, OpFacts

_SCHEMA = re.compile(r"(\d+)\.(\d+)\.(\d+)")
_OLDEST, _NEWEST = (1, 0, 2), (1, 1, 1)
_GROUPS = "## process_group:init ##"
#: The observer leaves out what is beyond 4096 tensors of a list (kMaxNumElements).
_CUT_AT = 4096
_RANK = re.compile(r"(?:rank[-_.]?|[-_](?=\d+$))(\d{1,7})", re.IGNORECASE)

#: Attributes of a collective's node since 1.1.1 -> Kineto's names of the same.
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


class _Node(NamedTuple):
    """A node; what it takes is kept only of those that need the process groups to be understood."""

    order: int
    id: int
    outer: int
    name: str
    thread: int
    facts: OpFacts | None
    inputs: dict[str, Any]
    attributes: dict[str, Any]


def observe(path: Path) -> Observed:
    """The ops of an execution trace, gzip allowed.

    Raises:
        FlintError: it is not such a file, of an unknown schema, cut off or damaged.
    """
    return _read(path, None)[0]


def linked(path: Path) -> tuple[Observed, Accesses]:
    """The ops, and what each does with memory (see ``observe``)."""
    observed, accesses = _read(path, AccessesBuilder())
    assert accesses is not None
    return observed, accesses


def _read(path: Path, accesses: AccessesBuilder | None) -> tuple[Observed, Accesses | None]:
    trace = JsonTrace.read(path)
    found = _Nodes(trace, accesses)
    nodes = sorted(found.nodes, key=lambda node: (node.order, node.id))
    schema = str(trace.rest("nodes").get("schema", ""))
    _check(path, schema)
    rows = ObservedRows(str(path))
    groups, world = _groups(nodes)
    marks = [(n.order, n.name) for n in nodes if n.name.startswith("ProfilerStep")]
    begins = [order for order, _ in marks]
    named = _RANK.search(path.name.removesuffix(".gz").removesuffix(".json"))
    if named is None:
        rows.note(UNTOLD_RANK)
    rank = int(named[1]) if named else 0
    if not marks:
        rows.note("no ProfilerStep in the trace: all of it is taken as one step")
    number_of: dict[int, int] = {}
    outer_of = {node.id: node.outer for node in nodes}
    collectives = {node.id for node in nodes if node.name.startswith(("c10d::", "gloo:"))}
    for node in nodes:
        outer = node.outer
        if outer in collectives and node.name.startswith(("aten::", "c10d::")):
            # An annotation of gloo that ends on another thread mixes up the observer's stack: what
            # follows the collective on its own thread is said to be inside of it.
            rows.note("ops that the observer puts inside of a collective, taken to follow it")
            outer = _outside(outer, collectives, outer_of, path)
        number_of[node.id] = rows.add(
            node.facts or _facts(node.name, node.inputs, node.attributes, groups),
            rank=rank,
            step=bisect_right(begins, node.order) - 1 if marks else 0,
            stream=node.thread,
            parent=number_of.get(outer, -1),
        )
    if not nodes:
        raise FlintError(f"{path}: no ops in it")
    observed = rows.finish(
        form="pytorch-et",
        backend="gpu" if found.on_device else "cpu",
        world=world,
        steps=tuple(name for _, name in marks) or ("whole trace",),
    )
    if accesses is None:
        return observed, None
    return observed, accesses.finish([node.id for node in nodes], groups)


def _outside(node: int, collectives: set[int], outer_of: dict[int, int], path: Path) -> int:
    """The innermost node around a collective that is none itself."""
    passed: set[int] = set()
    while node in collectives:
        if node in passed:
            raise FlintError(f"{path}: node {node} is inside of itself, by its ctrl_deps")
        passed.add(node)
        node = outer_of[node]
    return node


def _check(path: Path, schema: str) -> None:
    found = _SCHEMA.match(schema)
    known = f"known are {'.'.join(map(str, _OLDEST))} to {'.'.join(map(str, _NEWEST))}"
    if found is None:
        raise FlintError(f"{path}: no schema version, so no PyTorch execution trace ({known})")
    version = tuple(map(int, found.groups()))
    if not _OLDEST <= version <= _NEWEST:
        raise FlintError(f"{path}: execution trace schema {schema[:40]}; {known}")


class _Nodes:
    """The nodes of a trace, in the file's order.

    Attributes:
        nodes: all of them.
        on_device: whether a tensor of any lies on a GPU.
    """

    def __init__(self, trace: JsonTrace, accesses: AccessesBuilder | None) -> None:
        self.on_device = False
        self._known: dict[tuple[str, str], OpFacts] = {}
        self.nodes = [self._node(trace.path, item, accesses) for item in trace.items("nodes")]

    def _node(self, path: Path, item: dict[str, Any], accesses: AccessesBuilder | None) -> _Node:
        attributes = _attributes(item.get("attrs"))
        number, outer = item.get("id"), item.get("ctrl_deps", -1)
        name, inputs = str(item.get("name", "")), item.get("inputs")
        order = attributes.get("rf_id")
        if type(number) is not int or type(outer) is not int or not isinstance(inputs, dict):
            raise FlintError(
                f"{path}: a node without id, ctrl_deps or inputs as the schemas from 1.0.2 "
                f"on have them: {str(item)[:80]}"
            )
        if accesses is not None:
            record = order if type(order) is int and 0 <= order < 1 << 62 else -1
            accesses.node(number, record, name, str(attributes.get("op_schema", "")), item)
        self.on_device = self.on_device or _on_device(inputs)
        thread = _thread(attributes.get("tid"))
        facts = None
        if not _communicates(name):
            facts, inputs, attributes = self._facts(name, inputs), {}, {}
        order = order if type(order) is int else number
        return _Node(order, number, outer, name, thread, facts, inputs, attributes)

    def _facts(self, name: str, inputs: dict[str, Any]) -> OpFacts:
        """What is known of an op that does not communicate, once for equal tensors."""
        key = name, f"{inputs.get('shapes')}{inputs.get('types')}"
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = _facts(name, inputs, {}, {})
        return found


def _communicates(name: str) -> bool:
    """Whether the process groups tell more of a node, or it tells of them."""
    return "c10d" in name or name in ("record_param_comms", _GROUPS)


def _attributes(listed: object) -> dict[str, Any]:
    """Values by name; entries without a name are left out."""
    if not isinstance(listed, list):
        return {}
    try:
        return {entry["name"]: entry["value"] for entry in listed}
    except (KeyError, TypeError):
        entries = [entry for entry in listed if isinstance(entry, dict)]
        return {str(entry.get("name")): entry.get("value") for entry in entries}


def _thread(number: object) -> int:
    return number if isinstance(number, int) and 0 <= number < 1 << 62 else 0


def _groups(nodes: list[_Node]) -> tuple[dict[str, tuple[int, ...]], int | None]:
    """Process groups and the number of ranks, of the node that lists them."""
    for node in nodes:
        values = node.inputs.get("values")
        if node.name != _GROUPS or not isinstance(values, list) or not values:
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
        for entry in entries:  # a group without ranks is everybody
            if entry.get("ranks") == [] and 0 < world <= 1 << 22:
                groups[str(entry.get("pg_name", ""))] = tuple(range(world))
            if str(entry.get("pg_name", "")) in groups and "backend_id" in entry:
                groups[f"backend {entry['backend_id']}"] = groups[str(entry["pg_name"])]
        return groups, world or None
    return {}, None


def _facts(
    name: str,
    inputs: dict[str, Any],
    attributes: dict[str, Any],
    groups: dict[str, tuple[int, ...]],
) -> OpFacts:
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
    facts = op_facts(name, tensors_of(shapes, types), group)
    if facts.kind.collective and len(facts.operands or ()) >= _CUT_AT:
        facts = replace(facts, operands=None, parts=None)
    if facts.kind in (OpClass.SEND, OpClass.RECV):
        values = inputs.get("values")
        said = values[2] if isinstance(values, list) and len(values) > 2 else None
        facts = replace(facts, peer=peer_in_group(said, groups))
    return facts


def _recorded(name: str, inputs: dict[str, Any], groups: dict[str, tuple[int, ...]]) -> OpFacts:
    """Before 1.1.1 the collective's name and group stand among the inputs' values."""
    values, shapes, types = (inputs.get(key) for key in ("values", "shapes", "types"))
    if not (isinstance(values, list) and isinstance(shapes, list) and isinstance(types, list)):
        return OpFacts(OpClass.FREE, name)
    kind = None
    for value in values:
        if isinstance(value, str) and (kind := c10d_class(value)) is not None:
            break
    if kind is None:
        return OpFacts(OpClass.FREE, name)
    tensors = tensors_of(shapes, types)
    sent = tuple(tensors[0]) if tensors else ()
    named = [value for value in values if isinstance(value, str) and value in groups]
    named += [f"backend {value}" for value in values if f"backend {value}" in groups]
    named += [
        str(value[0]) for value in values if isinstance(value, list) and value
        and str(value[0]) in groups
    ]  # fmt: skip
    sized = sent and all(dtype in DTYPE_BITS for _, dtype in sent)
    parts = tuple(math.prod(shape) * DTYPE_BITS[dtype] // 8 for shape, dtype in sent)
    group = groups[named[0]] if named else None
    peer = -1
    if kind in (OpClass.SEND, OpClass.RECV) and group is not None:
        place = values[values.index(value) - 1]  # the other's number within the group
        peer = group[place] if type(place) is int and 0 <= place < len(group) else -1
    return OpFacts(
        kind, name, sent or None, parts if sized else None, sent[0][1] if sent else "",
        group, peer=peer,
    )  # fmt: skip


def _on_device(inputs: dict[str, Any]) -> bool:
    """Whether a tensor lies on a GPU: [.., element size, device]."""
    values = inputs.get("values")
    for value in values if isinstance(values, list) else []:
        if isinstance(value, list) and len(value) == 6 and str(value[5]).startswith("cuda"):
            return True
    return False
