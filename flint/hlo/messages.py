"""The messages in which XLA writes a module: ``HloProto`` and, inside it, ``HloModuleProto``."""

from __future__ import annotations

from flint.hlo import hlo_pb2 as pb

#: Orders effects and has no data: each runtime has its own.
_TOKEN = 17


def parse_module(data: bytes) -> pb.HloModuleProto:
    """The module inside either of the two messages that XLA writes.

    Raises:
        DecodeError: neither of them.
    """
    if is_wrapped(data):
        return pb.HloProto.FromString(data).hlo_module
    return pb.HloModuleProto.FromString(data)


def signature(module: pb.HloModuleProto) -> str:
    """The types of a module's arguments and results, as text; "" if it does not state them."""
    if not module.HasField("host_program_shape"):
        return ""
    shapes = module.host_program_shape
    known = [item for item in shapes.parameters if item.element_type != _TOKEN]
    return f"{' '.join(map(_text, known))} -> {_text(shapes.result)}"


def _text(shape: pb.ShapeProto) -> str:
    if shape.tuple_shapes:
        known = [item for item in shape.tuple_shapes if item.element_type != _TOKEN]
        return f"({' '.join(map(_text, known))})"
    return f"{shape.element_type}[{','.join(map(str, shape.dimensions))}]"


def is_wrapped(data: bytes) -> bool:
    """Whether field 1 is a module (``HloProto``) rather than a name (``HloModuleProto``).

    A module begins with its own field 1, the name; a name is text and has no control characters.
    """
    if data[:1] != b"\x0a":
        return False
    position = 1
    while position < min(len(data), 11) and data[position] & 0x80:
        position += 1
    return data[position + 1 : position + 2] == b"\x0a"
