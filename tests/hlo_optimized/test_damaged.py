"""Truncated, damaged and foreign files: one clear line, whatever is wrong with them."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import flint
from flint.errors import FlintError
from flint.hlo.messages import parse_module
from flint.hlo.reader import read_hlo
from flint.stablehlo.walker import walk
from tests.hlo_optimized.single import load
from tests.hlo_optimized.text import module_of

SMALL = ("gpu_library", "gpu_conditional", "tpu_library")


def refused_or_read(data):
    try:
        walk(read_hlo(data, "step.hlo.pb"))
    except FlintError as error:
        assert "\n" not in str(error)
        return True
    return False


@pytest.mark.parametrize("name", SMALL)
@settings(max_examples=60)
@given(data=st.data())
def test_a_truncated_module_is_refused(name, data):
    whole = load(name)
    cut = data.draw(st.integers(0, len(whole) - 1))
    refused_or_read(whole[:cut])


@pytest.mark.parametrize("name", SMALL)
@settings(max_examples=120)
@given(data=st.data())
def test_a_damaged_module_is_refused_or_read(name, data):
    damaged = bytearray(load(name))
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(damaged) - 1))
        damaged[place] = data.draw(st.integers(0, 255))
    refused_or_read(bytes(damaged))


def test_a_cut_file_names_itself(tmp_path):
    path = tmp_path / "compiled.hlo.pb"
    path.write_bytes(load("gpu_library")[:-2000])
    with pytest.raises(FlintError, match=r"compiled\.hlo\.pb"):
        flint.convert(path)


def test_an_end_that_awaits_more_than_it_gives_is_refused():
    with pytest.raises(FlintError, match="2 values were started, 1 are awaited"):
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


def test_what_nobody_knows_is_a_node_and_counted():
    module = module_of(
        "ENTRY e { x = f32[64] parameter(0)  ROOT c = f32[64] custom-call(x), "
        'custom_call_target="vendor$secret" }'
    )
    walked = walk(module)
    assert [node.op for node in walked.graph] == ["vendor$secret"]
    assert any("vendor$secret" in text for text in walked.warnings)
