"""Sharding texts against the form in which XLA prints them."""

import re

import pytest
from jaxlib._hlo import hlo_module_from_text

from flint.hlo.reader import read_hlo


@pytest.mark.parametrize(
    "sharding",
    [
        "{replicated}",
        "{maximal device=3}",
        "{manual}",
        "{unreduced}",
        "{devices=[4,2]<=[8]}",
        "{devices=[4,2]<=[2,4]T(1,0)}",
        "{devices=[4,1,2]<=[8] last_tile_dim_replicate}",
        "{devices=[2,1,2,2]<=[8] last_tile_dims={manual, replicated}}",
        "{devices=[2,2]0,2,1,3}",
        "{mesh['x'=4,'y'=2], [{'x'}, {'y'}]}",
        "{mesh['x'=4,'y'=2], [{'x':(1)2}, {}], replicated={'y'}}",
    ],
)
def test_sharding_is_written_as_xla_prints_it(sharding):
    text = f"HloModule m\nENTRY e {{\n ROOT p = f32[8,4] parameter(0), sharding={sharding}\n}}\n"
    module = hlo_module_from_text(text)
    [printed] = re.findall(r"sharding=(\{.*\})\n", module.to_string())
    assert read_hlo(module.as_serialized_hlo_module_proto()).input_shardings == (printed,)


def test_tuple_parameter_has_one_text_per_leaf():
    text = """HloModule m
    ENTRY e {
      ROOT p = (f32[8], f32[4]) parameter(0), sharding={{devices=[2]<=[2]}, {replicated}}
    }"""
    read = read_hlo(hlo_module_from_text(text).as_serialized_hlo_module_proto())
    assert read.input_shardings == ("{devices=[2]<=[2]}", "{replicated}")


def test_without_a_sharding_there_is_no_text():
    text = "HloModule m\nENTRY e {\n ROOT p = f32[8] parameter(0)\n}\n"
    read = read_hlo(hlo_module_from_text(text).as_serialized_hlo_module_proto())
    assert read.input_shardings == ("",)
