"""The Chakra schema as constants: node types, collective kinds, each attribute's one right field.

Writer and reader both import this and nothing here imports protobuf, so that files can be encoded
byte by byte.  `FIELD_OF` is the table that matters most: consumers read an attribute from one
member of the `value` oneof and take a value in any other member for 0, silently.

    FIELD_OF["comm_size"] is ValueField.INT64
    ValueField.INT64 == 9           # the field number inside AttributeProto
    ValueField.INT64.proto_name == "int64_val"

Numbers are those of the MLCommons Chakra schema, `schema/protobuf/et_def.proto`.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from flint.execution.node_types import NodeType as NodeType
from flint.execution.tags import MAX_TAG as MAX_TAG

SCHEMA_VERSION: Final = "0.0.4"
"""`GlobalMetadata.version` in files that Flint writes."""

MAX_NETWORK_DIMS: Final = 4
"""More network dims than this are only simulated right with explicit groups."""


class CollectiveKind(IntEnum):
    """The value of `comm_type` on a COLL node (`CollectiveCommType` in the schema)."""

    ALL_REDUCE = 0
    REDUCE = 1
    ALL_GATHER = 2
    GATHER = 3
    SCATTER = 4
    BROADCAST = 5
    ALL_TO_ALL = 6
    REDUCE_SCATTER = 7
    REDUCE_SCATTER_BLOCK = 8
    BARRIER = 9


COLLECTIVE_KIND: Final = {
    "all_reduce": CollectiveKind.ALL_REDUCE,
    "all_gather": CollectiveKind.ALL_GATHER,
    "reduce_scatter": CollectiveKind.REDUCE_SCATTER,
    "all_to_all": CollectiveKind.ALL_TO_ALL,
    "ragged_all_to_all": CollectiveKind.ALL_TO_ALL,
}
"""StableHLO kind -> kind of COLL node.  Consumers have no ragged exchange: its upper bound is
written as an all-to-all.
"""

EMITTED_TYPES: Final = frozenset({NodeType.COMP, NodeType.SEND, NodeType.RECV, NodeType.COLL})
#: Copies from and to remote memory.
MEMORY_TYPES: Final = frozenset({NodeType.MEM_LOAD, NodeType.MEM_STORE})
"""The node types that every consumer executes."""

SIMULATED_KINDS: Final = frozenset(
    {
        CollectiveKind.ALL_REDUCE,
        CollectiveKind.ALL_GATHER,
        CollectiveKind.ALL_TO_ALL,
        CollectiveKind.REDUCE_SCATTER,
    }
)
"""The collectives that consumers model; `comm_size` is bytes per rank: the full buffer for
all-reduce and all-to-all, the input shard for all-gather, the full input for reduce-scatter."""


class ValueField(IntEnum):
    """Field numbers of the `value` oneof of `AttributeProto`."""

    DOUBLE = 3
    DOUBLE_LIST = 4
    FLOAT = 5
    FLOAT_LIST = 6
    INT32 = 7
    INT32_LIST = 8
    INT64 = 9
    INT64_LIST = 10
    UINT32 = 11
    UINT32_LIST = 12
    UINT64 = 13
    UINT64_LIST = 14
    SINT32 = 15
    SINT32_LIST = 16
    SINT64 = 17
    SINT64_LIST = 18
    FIXED32 = 19
    FIXED32_LIST = 20
    FIXED64 = 21
    FIXED64_LIST = 22
    SFIXED32 = 23
    SFIXED32_LIST = 24
    SFIXED64 = 25
    SFIXED64_LIST = 26
    BOOL = 27
    BOOL_LIST = 28
    STRING = 29
    STRING_LIST = 30
    BYTES = 31
    BYTES_LIST = 32

    @property
    def proto_name(self) -> str:
        """The field's name in the proto file, as `int64_val` or `bool_list`."""
        name = self.name.lower()
        return name if name.endswith("_list") else f"{name}_val"


FIELD_OF: Final[dict[str, ValueField]] = {
    "is_cpu_op": ValueField.BOOL,
    "comm_type": ValueField.INT64,
    "comm_size": ValueField.INT64,
    "comm_priority": ValueField.INT32,
    "comm_src": ValueField.INT32,
    "comm_dst": ValueField.INT32,
    "comm_tag": ValueField.INT32,
    "num_ops": ValueField.INT64,
    "tensor_size": ValueField.UINT64,
    "pg_name": ValueField.STRING,
    "involved_dim": ValueField.BOOL_LIST,
}
"""Attribute name -> the one field that every consumer reads it from."""

REQUIRED_ATTRIBUTES: Final[dict[NodeType, tuple[str, ...]]] = {
    NodeType.COMP: (),
    NodeType.COLL: ("comm_type", "comm_size"),
    NodeType.SEND: ("comm_dst", "comm_tag", "comm_size"),
    NodeType.RECV: ("comm_src", "comm_tag", "comm_size"),
}
"""Node type -> attributes without which consumers throw or read garbage."""


class NodeField(IntEnum):
    """Field numbers of `Node`."""

    ID = 1
    NAME = 2
    TYPE = 3
    CTRL_DEPS = 4
    DATA_DEPS = 5
    START_TIME_MICROS = 6
    DURATION_MICROS = 7
    INPUTS = 8
    OUTPUTS = 9
    ATTR = 10


ATTR_NAME_FIELD: Final = 1
"""Field number of `AttributeProto.name`."""

METADATA_VERSION_FIELD: Final = 1
"""Field number of `GlobalMetadata.version`."""
