"""Truncated, damaged and foreign files: one clear line, whatever is wrong with them."""

from __future__ import annotations

import pytest
from google.protobuf.internal.decoder import _DecodeVarint
from hypothesis import given, settings
from hypothesis import strategies as st

import flint
from flint.errors import FlintError
from flint.hlo import hlo_pb2 as pb
from flint.hlo.completeness import UNENDED, UNSCHEDULED
from flint.hlo.messages import parse_module
from flint.hlo.reader import read_hlo
from flint.stablehlo.walker import walk
from tests.hlo.optimized.single import load
from tests.hlo.optimized.text import module_of
from tests.support.shared import examples, quick

SMALL = ("gpu_library", "gpu_conditional", "tpu_library")

#: Fields of an HloModuleProto; XLA writes them in this order.
SCHEDULE, ALIAS, DONORS, ATTRIBUTES = 7, 8, 18, 19


def warnings_or_none(data):
    """What reading warns of; None where it refuses."""
    try:
        return walk(read_hlo(data, "step.hlo.pb")).warnings
    except FlintError as error:
        assert "\n" not in str(error)
        return None


def fields(data):
    """(start, number) of every field of a serialised message, by the wire format."""
    position = 0
    while position < len(data):
        tag, after = _DecodeVarint(data, position)
        if tag & 7 == 0:
            _, end = _DecodeVarint(data, after)
        else:
            assert tag & 7 == 2, "a module's own fields are numbers and messages"
            length, end = _DecodeVarint(data, after)
            end += length
        yield position, tag >> 3
        position = end


def without_metadata(data):
    module = parse_module(data)
    module.DiscardUnknownFields()  # they would be written last, whatever their number
    for computation in module.computations:
        for instruction in computation.instructions:
            instruction.ClearField("metadata")
    return module.SerializeToString()


@pytest.mark.parametrize("name", SMALL)
@settings(max_examples=examples(60))
@given(data=st.data())
def test_a_module_cut_anywhere_is_refused_or_warned_of(name, data):
    whole = load(name)
    cut = data.draw(st.integers(0, len(whole) - 1))
    warnings = warnings_or_none(whole[:cut])
    assert warnings is None or UNENDED in warnings


@pytest.mark.parametrize("name", quick([*SMALL, "cpu_resnet"], *SMALL))
def test_a_module_cut_between_two_fields_is_refused(name):
    """But before its last two, buffer donors and attributes of the module, which are not read."""
    whole = load(name)
    for cut, number in fields(whole):
        warnings = warnings_or_none(whole[:cut])
        if number in (DONORS, ATTRIBUTES):
            assert UNENDED in warnings
        else:
            assert warnings is None, number


@pytest.mark.parametrize("name", SMALL)
def test_a_cut_module_of_which_nothing_refers_to_what_is_lost_is_warned_of(name):
    """Without source lines no instruction shows that there were stack frames."""
    whole = without_metadata(load(name))
    assert UNENDED not in warnings_or_none(whole)
    found = {number: warnings_or_none(whole[:cut]) for cut, number in fields(whole)}
    assert found.pop(SCHEDULE) is None and found.pop(ALIAS) is None
    assert all(warnings is None or UNENDED in warnings for warnings in found.values())


def test_a_compiled_module_without_its_schedule_says_that_the_order_is_modelled(tmp_path):
    module = parse_module(load("gpu_conditional"))
    path = tmp_path / "step.hlo.pb"
    path.write_bytes(module.SerializeToString())
    scheduled = flint.convert(path)
    assert str(scheduled.order) == "compiled" and UNSCHEDULED not in scheduled.warnings
    module.ClearField("schedule")
    path.write_bytes(module.SerializeToString())
    workload = flint.convert(path)
    assert (str(workload.level), str(workload.order)) == ("optimized", "modelled")
    assert workload.warnings[UNSCHEDULED] == 1


@pytest.mark.parametrize("field", ["metadata", "backend_config_payload"])
def test_a_reference_to_a_lost_payload_is_refused(field):
    module = parse_module(load("gpu_library"))
    reference = pb.Payload(id=3)
    for computation in module.computations:
        for instruction in computation.instructions:
            if field == "metadata":
                instruction.metadata = pb.OpMetadata(metadata_payload=reference).SerializeToString()
            elif instruction.opcode == "custom-call":
                instruction.backend_config = b""
                instruction.backend_config_payload = reference.SerializeToString()
    module.payloads.extend([b""] * 3)
    with pytest.raises(FlintError, match=r"payload 3.*cut off"):
        read_hlo(module.SerializeToString())
    module.payloads.append(b"")
    read_hlo(module.SerializeToString())


@pytest.mark.parametrize("name", SMALL)
@settings(max_examples=examples(120))
@given(data=st.data())
def test_a_damaged_module_is_refused_or_read(name, data):
    damaged = bytearray(load(name))
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(damaged) - 1))
        damaged[place] = data.draw(st.integers(0, 255))
    warnings_or_none(bytes(damaged))


def test_a_cut_file_names_itself(tmp_path):
    path = tmp_path / "compiled.hlo.pb"
    path.write_bytes(load("gpu_library")[:-2000])
    with pytest.raises(FlintError, match=r"compiled\.hlo\.pb"):
        flint.convert(path)


def test_an_end_that_awaits_more_than_it_gives_is_refused():
    with pytest.raises(FlintError, match="2 values were started, but 1 are awaited"):
        module_of(
            "ENTRY e { x = (f32[64], f32[64]) parameter(0)  ROOT d = f32[64] all-reduce-done(x) }"
        )


def test_a_fusion_of_another_number_of_operands_is_refused():
    data = parse_module(load("gpu_library"))
    entry = next(c for c in data.computations if c.id == data.entry_computation_id)
    fusion = next(i for i in entry.instructions if i.opcode == "fusion")
    fusion.operand_ids.append(fusion.operand_ids[0])
    with pytest.raises(FlintError, match=r"fusion.*takes 1 values, not 2"):
        read_hlo(data.SerializeToString())


def test_an_unknown_instruction_is_a_node_and_counted():
    module = module_of(
        "ENTRY e { x = f32[64] parameter(0)  ROOT c = f32[64] custom-call(x), "
        'custom_call_target="vendor$secret" }'
    )
    walked = walk(module)
    assert [node.op for node in walked.graph] == ["vendor$secret"]
    assert any("vendor$secret" in text for text in walked.warnings)
