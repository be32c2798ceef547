"""The HLO reader against XLA's own conversion of the same module, read through MLIR."""

import jaxlib._jax as xla
import pytest

from flint.hlo.messages import is_wrapped, parse_module
from flint.hlo.reader import read_hlo
from flint.hlo.text import proto_of_text
from flint.stablehlo.read.reader import read_mlir
from tests.hlo.comparing import dataflow, inventory

#: Workers would wait for each other's dumps (``conftest.py``).
pytestmark = pytest.mark.xdist_group("hlo-dumps")

#: Programs in which XLA's conversion writes ``convert`` to a predicate as ``compare`` with 0.
COMPARED_WITH_ZERO = {"embedding_gradient"}


@pytest.fixture
def both(partitioned, program):
    data = partitioned[program]
    assert is_wrapped(data)
    module = strip(data)
    return read_hlo(data, program), read_mlir(xla.mlir.hlo_to_stablehlo(module), program)


def strip(data):
    """The bytes inside the outer field 1."""
    position, length, shift = 1, 0, 0
    while True:
        byte = data[position]
        length |= (byte & 127) << shift
        position, shift = position + 1, shift + 7
        if byte < 128:
            return data[position : position + length]


def test_same_ops_types_and_attributes(both, program):
    ours, theirs = map(inventory, both)
    if program in COMPARED_WITH_ZERO:
        names = [key[1] for key in (ours - theirs).elements()]
        assert names == ["convert"]
        assert sorted(key[1] for key in (theirs - ours).elements()) == ["compare", "constant"]
    else:
        assert ours == theirs


def test_same_data_flow(both, program):
    if program in COMPARED_WITH_ZERO:
        pytest.skip("XLA's conversion rewrites an op")
    ours, theirs = map(dataflow, both)
    assert ours == theirs


def test_same_interface(both):
    ours, theirs = both
    assert ours.donated == theirs.donated
    assert ours.input_names == theirs.input_names
    assert ours.input_shardings == theirs.input_shardings
    assert sorted(ours.meshes.values()) == sorted(theirs.meshes.values())
    assert interface_types(ours) == interface_types(theirs)


def interface_types(module):
    main = module.functions["main"]
    return [[str(module.type_of(value)) for value in values] for values in (main.args, main.yields)]


def test_same_locations(both):
    kinds = {"dot", "dot_general", "all_reduce", "convolution", "sort", "scatter", "fft", "add"}
    ours, theirs = (
        sorted(
            (place.name, place.file, place.line)
            for op in all_ops(module)
            if op.name in kinds
            for place in [module.location(op.loc)]
        )
        for module in both
    )
    assert ours == theirs


def all_ops(module):
    def visit(block):
        for op in block.ops:
            yield op
            for region in op.regions:
                yield from visit(region)

    for block in module.functions.values():
        yield from visit(block)


def test_number_of_partitions_is_the_device_assignments(both):
    assert (both[0].num_partitions, both[0].num_replicas) == (8, 1)


def test_bare_module_reads_like_the_wrapped_one(partitioned):
    data = partitioned["collectives"]
    assert inventory(read_hlo(data)) == inventory(read_hlo(strip(data)))
    assert parse_module(data) == parse_module(strip(data))


def test_what_is_there_and_empty_stays_when_a_module_is_written():
    """XLA refuses a product without dimension numbers; an outer product has empty ones."""
    text = b"""
HloModule m
ENTRY e {
  a = f32[4] parameter(0)
  b = f32[8] parameter(1)
  ROOT r = f32[4,8] dot(a, b), lhs_contracting_dims={}, rhs_contracting_dims={}
}
"""
    module = parse_module(proto_of_text(text, "m.hlo"))
    written = xla.mlir.hlo_to_stablehlo(module.SerializeToString())
    [op] = [op for op in read_mlir(written, "m").functions["main"].ops if "dot" in op.name]
    assert read_hlo(module.SerializeToString()).functions["main"].ops[-1].name == op.name


def test_reads_every_optimized_module(optimized, program):
    module = read_hlo(optimized[program], program)
    assert module.scheduled
    assert not module.warnings
    assert module.num_partitions == 8


def test_trip_counts_are_those_that_xla_proved(optimized):
    loops = [
        op.attr("trip_count")
        for name in ("scan_training", "ring_loop", "dynamic_loop")
        for op in all_ops(read_hlo(optimized[name]))
        if op.name == "while"
    ]
    # scan over 3 layers forward and backward; 4 ring hops; a data-dependent loop has no count
    assert loops == [3, 3, 4, None]
