"""Our minimal schema against the descriptors that the installed jaxlib carries in its library.

protoc embeds each file's serialised FileDescriptorProto in the generated C++; it is found by the
file's own name, which stands first in it.
"""

import mmap
import re
from pathlib import Path

import jaxlib
import pytest
from google.protobuf import descriptor_pb2
from google.protobuf.descriptor import FieldDescriptor as Field
from google.protobuf.internal.decoder import _DecodeVarint
from jaxlib._hlo import HloOpcode

from flint.hlo import hlo_pb2
from flint.hlo.opcodes import ROWS
from flint.hlo.reader import HANDLERS
from flint.hlo.shapes import ELEMENT_TYPES

FILES = ("xla/service/hlo.proto", "xla/xla_data.proto")
#: The same on the wire: enums as int32, submessages as bytes.
SAME_ON_THE_WIRE = {
    (Field.TYPE_INT32, Field.TYPE_ENUM),
    (Field.TYPE_BYTES, Field.TYPE_MESSAGE),
}
#: What older XLA wrote and newer XLA reserves.
RETIRED = {("CollectiveDeviceListProto", "iota_replica_group_list")}


def embedded(name):
    library = Path(jaxlib.__file__).parent / "libjax_common.so"
    if not library.exists():
        pytest.skip("this jaxlib has no libjax_common.so")
    start = b"\x0a" + bytes([len(name)]) + name.encode() + b"\x12"
    with library.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as view:
        position = view.find(start)
        if position < 0:
            pytest.skip(f"this jaxlib does not embed {name}")
        data = view[position : position + (1 << 20)]
    end = 0
    while end < len(data):  # fields of a FileDescriptorProto until something else follows
        tag, after = _DecodeVarint(data, end)
        if tag >> 3 not in range(1, 13) or tag & 7 != 2:
            break
        length, after = _DecodeVarint(data, after)
        end = after + length
        if tag >> 3 == 12:  # syntax, the last one
            break
    return descriptor_pb2.FileDescriptorProto.FromString(data[:end])


@pytest.fixture(scope="module")
def xla():
    messages = {}

    def collect(message, prefix):
        messages[prefix + message.name] = message
        for inner in message.nested_type:
            collect(inner, f"{prefix}{message.name}.")

    for name in FILES:
        for message in embedded(name).message_type:
            collect(message, "")
    return messages


def ours():
    def walk(messages, prefix):
        for message in messages:
            yield prefix + message.name, message
            yield from walk(message.nested_types, f"{prefix}{message.name}.")

    return list(walk(hlo_pb2.DESCRIPTOR.message_types_by_name.values(), ""))


def test_every_field_has_xlas_number_type_and_multiplicity(xla):
    for name, message in ours():
        theirs = {field.name: field for field in xla[name].field}
        for field in message.fields:
            if (name, field.name) in RETIRED:
                continue
            other = theirs[field.name]
            assert field.number == other.number, (name, field.name)
            repeated = other.label == other.LABEL_REPEATED
            assert field.is_repeated == repeated, (name, field.name)
            kinds = (field.type, other.type)
            assert kinds[0] == kinds[1] or kinds in SAME_ON_THE_WIRE, (name, field.name)


def test_primitive_types_have_xlas_numbers(xla):
    [enum] = [e for e in embedded(FILES[1]).enum_type if e.name == "PrimitiveType"]
    numbers = {value.name: value.number for value in enum.value}
    spelled = {"i1": "PRED", "bf16": "BF16", "complex<f32>": "C64", "complex<f64>": "C128"}
    for number, dtype in ELEMENT_TYPES.items():
        name = spelled.get(dtype)
        if name is None:
            name = dtype.upper().replace("UI", "U") if dtype[0] != "i" else f"S{dtype[1:]}"
        assert numbers[name] == number
    unread = {"PRIMITIVE_TYPE_INVALID", "TUPLE", "OPAQUE_TYPE", "TOKEN", "BUFFER", "S1", "U1"}
    assert set(numbers.values()) - set(ELEMENT_TYPES) == {numbers[name] for name in unread}


def test_every_hlo_opcode_is_known():
    # jaxlib shows the names of XLA's C++ enum: kAddDependency -> add-dependency, and these.
    spelled = {
        "cos": "cosine", "sin": "sine", "exp": "exponential", "expm1": "exponential-minus-one",
        "log1p": "log-plus-one", "clz": "count-leading-zeros", "population-count": "popcnt",
        "optimization-barrier": "opt-barrier", "top-k": "topk",
    }  # fmt: skip
    for member in HloOpcode:
        words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", member.name[1:]).lower()
        opcode = spelled.get(words, words)
        assert opcode in ROWS or opcode in HANDLERS, member.name
