"""Kept dumps (``tests/data/hlo/README.md``): what must be in them follows from their programs."""

from pathlib import Path

import pytest

from flint.frontends.saved.kinds import Kind, detect
from flint.frontends.saved.parsing import parse

DATA = Path(__file__).parents[1] / "data" / "hlo"


def ops(block):
    for op in block.ops:
        yield op
        for region in op.regions:
            yield from ops(region)


def everything(module):
    return [op for block in module.functions.values() for op in ops(block)]


def test_forms():
    assert detect((DATA / "partitioned/ring_loop.hlo.pb").read_bytes()) is Kind.HLO_PROTO
    assert detect((DATA / "optimized/ring_loop.hlo.pb").read_bytes()) is Kind.HLO_MODULE_PROTO


@pytest.mark.parametrize("level", ["partitioned", "optimized"])
def test_ring_passes_blocks_to_the_next_device_along_data(level):
    module = parse((DATA / level / "ring_loop.hlo.pb").read_bytes())
    [permute] = [op for op in everything(module) if op.name == "collective_permute"]
    # Device 2 i + j is (data i, model j) of the 4 x 2 mesh; i goes to i + 1 mod 4, j stays.
    expected = {(2 * i + j, 2 * ((i + 1) % 4) + j) for i in range(4) for j in range(2)}
    assert {tuple(pair) for pair in permute.attr("pairs").tolist()} == expected
    # 32 x 16 over 4 devices along data: 8 x 16 f32 each
    sent = module.type_of(permute.operands[0])
    assert (sorted(sent.shape), sent.dtype, sent.bytes) == ([8, 16], "f32", 512)


@pytest.mark.parametrize("level", ["partitioned", "optimized"])
def test_ring_is_one_loop_that_contains_the_exchange_and_the_product(level):
    module = parse((DATA / level / "ring_loop.hlo.pb").read_bytes())
    [loop] = [op for op in everything(module) if op.name == "while"]
    names = [op.name for op in ops(loop.regions[1])]
    assert names.count("collective_permute") == names.count("dot_general") == 1
    assert loop.attr("trip_count") == (4 if level == "optimized" else None)


def test_optimized_dump_is_scheduled_and_the_partitioned_one_is_not():
    assert parse((DATA / "optimized/ring_loop.hlo.pb").read_bytes()).scheduled
    assert not parse((DATA / "partitioned/ring_loop.hlo.pb").read_bytes()).scheduled


def test_conditionals_keep_their_branches():
    module = parse((DATA / "partitioned/conditionals.hlo.pb").read_bytes())
    choices = [op for op in everything(module) if op.name in ("case", "if")]
    assert sorted(len(op.regions) for op in choices) == [2, 3]
    found = [{op.name for op in ops(region)} for choice in choices for region in choice.regions]
    for name in ("sine", "cosine", "exponential", "log"):
        assert sum(name in names for names in found) == 1


def test_inputs_keep_names_and_source_lines():
    module = parse((DATA / "partitioned/ring_loop.hlo.pb").read_bytes())
    assert module.input_names == ("q", "k")
    [product] = [op for op in everything(module) if op.name == "dot_general"]
    place = module.location(product.loc)
    assert place.file == "tests/hlo/programs.py" and place.line > 0
    assert place.name.endswith("dot_general")
