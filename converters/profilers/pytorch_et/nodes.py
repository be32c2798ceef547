"""The nodes of a PyTorch execution trace, as columns in the order of the file.

The idea: nodes are decoded directly into structs, with shapes and types left as text.  Nodes with
equal name, schema and text share their facts; only their numbers and the storages of their tensors
are read node by node.

    nodes = read_nodes(JsonTrace.read(Path("et.json")))
    nodes.facts[nodes.fact[0]].kind, nodes.tensors[0]
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from operator import itemgetter
from types import MappingProxyType
from typing import Annotated, Any

import msgspec

from flint.converters.profilers.json_traces import JsonTrace
from flint.converters.profilers.pytorch_et.facts import communicates, facts_of, groups_and_world
from flint.converters.profilers.pytorch_et.links import AccessesBuilder, Plan, Side
from flint.cost.aten_work import needs_values
from flint.errors import FlintError
from flint.observed.columns import OpFacts
from flint.observed.rows import MAX_ROWS
from flint.post_execution.storages import Access

_EXPECTED = "a node without id, inputs or attrs as the schemas from 1.0.1 on have them"
#: Larger counts of the profiler are not believed, so that sums stay within 64 bits.
_LATEST = 1 << 62
_NOTHING = msgspec.Raw(b"null")

_Number = Annotated[int, msgspec.Meta(ge=-_LATEST, le=_LATEST)]


class _Side(msgspec.Struct, gc=False):
    values: Any = None
    shapes: msgspec.Raw = _NOTHING
    types: msgspec.Raw = _NOTHING
    strides: msgspec.Raw = _NOTHING


_NO_SIDE = _Side()
#: Attributes that every node has.
_WANTED = ("rf_id", "tid", "op_schema")


class _Attribute(msgspec.Struct, gc=False):
    name: str = ""
    value: Any = None


class _Node(msgspec.Struct, gc=False):
    """A node; the fields after ``attrs`` are from schema 1.0.1, where both sides were lists."""

    id: _Number
    inputs: _Side | list[Any]
    ctrl_deps: _Number = -1
    name: str = ""
    outputs: _Side | list[Any] | None = None
    attrs: list[_Attribute] = []
    parent: _Number = -1
    rf_id: Any = None
    tid: Any = None
    op_schema: Any = None
    input_shapes: msgspec.Raw = _NOTHING
    input_types: msgspec.Raw = _NOTHING
    output_shapes: msgspec.Raw = _NOTHING
    output_types: msgspec.Raw = _NOTHING


def _modern(node: _Node) -> tuple[_Side, _Side, int, list[_Attribute]]:
    """Inputs, outputs, the enclosing node and the attributes of a node of schema 1.0.1."""
    return (
        _Side(node.inputs, node.input_shapes, node.input_types),
        _Side(node.outputs, node.output_shapes, node.output_types),
        node.parent,
        [_Attribute(name, getattr(node, name)) for name in _WANTED],
    )


class _Attributes:
    """Finds the attributes that every node has, nearly always at the same positions."""

    def __init__(self) -> None:
        self._take = itemgetter(0, 0, 0)

    def of(self, attributes: list[_Attribute]) -> tuple[Any, Any, Any]:
        """The values of ``_WANTED``, None for those that a node lacks."""
        try:
            record, thread, schema = self._take(attributes)
        except IndexError:
            return self._searched(attributes)
        if (record.name, thread.name, schema.name) != _WANTED:
            return self._searched(attributes)
        return record.value, thread.value, schema.value

    def _searched(self, attributes: list[_Attribute]) -> tuple[Any, Any, Any]:
        places = {entry.name: place for place, entry in enumerate(attributes)}
        if all(name in places for name in _WANTED):
            self._take = itemgetter(*(places[name] for name in _WANTED))
        values = [attributes[places[name]].value if name in places else None for name in _WANTED]
        return values[0], values[1], values[2]


@dataclass(slots=True, eq=False)
class Nodes:
    """Columns, one entry per node; values of several nodes are in tables.

    Attributes:
        id, outer: numbers of the node and of the enclosing one.
        order: when it began, as a count.
        record: the profiler's number for it, -1 without.
        thread: the thread that it ran on.
        name: name of the op.
        fact: index into ``facts``.
        tensors: its memory accesses.
        facts: facts about ops.
        groups: process group's name -> ranks.
        world: number of ranks; None if not recorded.
        on_device: whether any tensor is on a GPU.
    """

    id: list[int] = field(default_factory=list)
    outer: list[int] = field(default_factory=list)
    order: list[int] = field(default_factory=list)
    record: list[int] = field(default_factory=list)
    thread: list[int] = field(default_factory=list)
    name: list[str] = field(default_factory=list)
    fact: list[int] = field(default_factory=list)
    tensors: list[tuple[Access, ...]] = field(default_factory=list)
    facts: tuple[OpFacts, ...] = ()
    groups: dict[str, tuple[int, ...]] = field(default_factory=dict)
    world: int | None = None
    on_device: bool = False


@dataclass(slots=True, frozen=True)
class _Alike:
    """Shared facts of nodes with the same name, schema, shapes and types.

    Attributes:
        name: one object for all.
        fact: index of the op's facts; -1 for those that the process groups complete.
        plan: positions of their tensors.
        sides: sides of inputs and outputs.
    """

    name: str
    fact: int
    plan: Plan
    sides: tuple[Side, Side]


def read_nodes(
    trace: JsonTrace, stated: Mapping[str, tuple[int, ...]] = MappingProxyType({})
) -> Nodes:
    """The nodes of a trace.

    Args:
        trace: the file.
        stated: ranks of process groups that it names but does not list.

    Raises:
        FlintError: it is not such a trace, or is cut off or damaged.
    """
    found, builder = Nodes(), AccessesBuilder()
    facts: dict[OpFacts, int] = {}
    alike: dict[tuple[str, str, bytes], _Alike] = {}
    # Kept complete until the process groups are known, which any node may list.
    by_group: list[tuple[int, str, dict[str, Any], dict[str, Any]]] = []
    by_values: dict[str, bool] = {}
    attributes_of, accesses = _Attributes(), builder.accesses
    add_id, add_outer, add_order = found.id.append, found.outer.append, found.order.append
    add_record, add_thread, add_name = found.record.append, found.thread.append, found.name.append
    add_fact, add_tensors = found.fact.append, found.tensors.append
    for node in trace.records("nodes", _Node, _EXPECTED):
        name, inputs, outputs = node.name, node.inputs, node.outputs
        around, attributes = node.ctrl_deps, node.attrs
        if isinstance(inputs, list) or isinstance(outputs, list):
            inputs, outputs, around, attributes = _modern(node)
        outputs = outputs or _NO_SIDE
        number, thread, schema = attributes_of.of(attributes)
        texts = (
            inputs.shapes, inputs.types, inputs.strides,
            outputs.shapes, outputs.types, outputs.strides,
        )  # fmt: skip
        key = name, schema if type(schema) is str else str(schema or ""), b"\n".join(texts)
        differs = by_values.get(name)
        if differs is None:
            differs = by_values[name] = needs_values(name)
        if differs:
            key = *key[:2], key[2] + _plain(inputs.values)
        shared = alike.get(key)
        if shared is None:
            shared = alike[key] = _alike(name, key[1], inputs, outputs, builder, facts)
        if shared.fact < 0:
            described = shared.sides[0]
            given = {"values": inputs.values, "shapes": described.shapes, "types": described.types}
            by_group.append(
                (len(found.id), name, given, {entry.name: entry.value for entry in attributes})
            )
        record = number if type(number) is int and 0 <= number < _LATEST else -1
        add_id(node.id)
        add_outer(around)
        add_order(record if record >= 0 else node.id)
        add_record(record)
        add_thread(thread if type(thread) is int and 0 <= thread < _LATEST else 0)
        add_name(shared.name)
        add_fact(shared.fact)
        add_tensors(accesses(shared.plan, inputs.values, outputs.values))
    if len(found.id) > MAX_ROWS:
        raise FlintError(f"{trace.path}: more than {MAX_ROWS:,} ops")
    found.groups, found.world = groups_and_world((name, given) for _, name, given, _ in by_group)
    groups = found.groups | dict(stated)
    for place, name, given, schema_facts in by_group:
        known = facts_of(name, given, schema_facts, groups)
        found.fact[place] = facts.setdefault(known, len(facts))
    found.facts, found.on_device = tuple(facts), builder.on_device
    return found


def _alike(
    name: str,
    schema: str,
    inputs: _Side,
    outputs: _Side,
    builder: AccessesBuilder,
    facts: dict[OpFacts, int],
) -> _Alike:
    taken, given = _decoded(inputs), _decoded(outputs)
    number = -1
    if not communicates(name):
        given_in = {"values": inputs.values, "shapes": taken.shapes, "types": taken.types}
        known = facts_of(name, given_in, {}, {})
        number = facts.setdefault(known, len(facts))
    return _Alike(name, number, builder.plan(name, schema, taken, given), (taken, given))


def _plain(values: object) -> bytes:
    """Arguments except tensors, which have a number each."""
    listed = values if isinstance(values, list) else []
    return repr(
        [item for item in listed if not (isinstance(item, list) and len(item) == 6)]
    ).encode()


def _decoded(side: _Side) -> Side:
    return Side(*(msgspec.json.decode(raw) for raw in (side.shapes, side.types, side.strides)))
