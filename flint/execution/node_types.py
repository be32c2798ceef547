"""The types of the nodes that a rank executes.

Numbers are those of the MLCommons Chakra schema, ``schema/protobuf/et_def.proto``, so that a trace
can store them unchanged.
"""

from __future__ import annotations

from enum import IntEnum


class NodeType(IntEnum):
    """`Node.type`.

    COMP, SEND, RECV and COLL are safe to emit.  MEM_LOAD and MEM_STORE access remote memory, here
    the host's, which a consumer must be configured for.
    """

    INVALID = 0
    METADATA = 1
    MEM_LOAD = 2
    MEM_STORE = 3
    COMP = 4
    SEND = 5
    RECV = 6
    COLL = 7
