"""Reading costs in proportion to the instructions, counted in Python calls instead of seconds."""

import sys

import pytest

from flint.hlo import hlo_pb2 as pb
from flint.hlo.locations import Locations
from flint.hlo.reader import read_hlo
from flint.hlo.text import proto_of_text
from flint.stablehlo.packed.packing import packed, unpacked
from flint.stablehlo.walker import walk

F32 = pb.ShapeProto(element_type=11, dimensions=[4])


def module(length, build):
    computation = pb.HloComputationProto(name="e", id=1)
    build(computation, length)
    computation.root_id = computation.instructions[-1].id
    proto = pb.HloModuleProto(name="m", entry_computation_name="e", entry_computation_id=1)
    proto.computations.append(computation)
    return proto.SerializeToString()


def chain(computation, length):
    shape = F32.SerializeToString()
    computation.instructions.add(name="p", opcode="parameter", id=1, shape=shape)
    for number in range(2, length):
        computation.instructions.add(
            name="a", opcode="add", id=number, shape=shape, operand_ids=[number - 1, number - 1]
        )


def wide_tuple(computation, length):
    """A tuple of everything, taken apart again: the form of unrolled training steps."""
    chain(computation, length)
    shape = pb.ShapeProto(element_type=13, tuple_shapes=[F32] * (length - 1))
    operands = range(1, length)
    computation.instructions.add(
        name="t", opcode="tuple", id=length, shape=shape.SerializeToString(), operand_ids=operands
    )
    for number in range(length - 1):
        computation.instructions.add(
            name="g", opcode="get-tuple-element", id=length + 1 + number, operand_ids=[length],
            tuple_index=number, shape=F32.SerializeToString(),
        )  # fmt: skip


def calls(data):
    count = 0

    def counting(_frame, event, _argument):
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(counting)
    try:
        read_hlo(data)
    finally:
        sys.setprofile(None)
    return count


def nested(levels, line):
    """HLO text in which each computation applies the next one twice."""
    text = [f"c{levels} {{\n x = f32[] parameter(0)\n ROOT n = f32[] negate(x)\n}}"]
    for n in reversed(range(levels)):
        twice = f" a = f32[] {line('x', n + 1)}\n ROOT b = f32[] {line('a', n + 1)}"
        text.append(f"c{n} {{\n x = f32[] parameter(0)\n{twice}\n}}")
    entry = f"ENTRY e {{\n x = f32[] parameter(0)\n ROOT a = f32[] {line('x', 0)}\n}}"
    return "\n".join(["HloModule m", *text, entry]).encode()


def test_regions_that_ops_share_are_looked_at_once():
    """2**60 applications of one computation, if each were followed."""
    text = nested(60, lambda x, n: f"map({x}), dimensions={{}}, to_apply=c{n}")
    module = read_hlo(proto_of_text(text))
    assert len(list(module.blocks())) == 62
    again = unpacked(packed(module))
    assert walk(again).ops == 1


@pytest.mark.parametrize("build", [chain, wide_tuple])
def test_calls_grow_with_instructions(build):
    small, large = (calls(module(length, build)) for length in (2_000, 8_000))
    assert large < 4.2 * small


def test_records_and_values_are_as_many_as_instructions():
    read = read_hlo(module(5_000, chain))
    assert len(read.functions["main"].ops) == 4_998
    assert len(read.value_type) == 4_999
    assert len(read.types) == 1


class Listed(dict):
    """Counts how often it is gone through."""

    times = 0

    def __iter__(self):
        Listed.times += 1
        return super().__iter__()


def test_places_are_listed_once_however_many_parameters_there_are(monkeypatch):
    count = 50
    lines = [
        f'  p{n} = f32[8] parameter({n}), metadata={{op_name="p{n}" source_line={n}}}'
        for n in range(count)
    ]
    text = "\n".join(["HloModule m", "ENTRY e {", *lines, "  ROOT r = f32[8] negate(p0)", "}"])
    plain = Locations.__init__

    def counted(self, *arguments):
        plain(self, *arguments)
        self.numbers = Listed()

    monkeypatch.setattr(Locations, "__init__", counted)
    monkeypatch.setattr(Listed, "times", 0)
    module = read_hlo(proto_of_text(text.encode()))
    assert module.input_names == tuple(f"p{n}" for n in range(count))
    assert Listed.times <= 3
