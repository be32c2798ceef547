"""The verifier's verdicts on indexing and windows against those of MLIR's own verifier.

Each example is an op with attributes and types that fit, or nearly fit: what MLIR takes, the
verifier takes, and what MLIR refuses, it refuses.
"""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from flint.errors import FlintError
from flint.graph.tensor_types import tensor_type
from flint.stablehlo.read.bindings import parse
from flint.stablehlo.read.records import Block, Module, Op
from flint.stablehlo.verification.verifier import verify

SUM = """({
  ^bb0(%l: tensor<f32>, %r: tensor<f32>):
    %s = "stablehlo.add"(%l, %r) : (tensor<f32>, tensor<f32>) -> tensor<f32>
    "stablehlo.return"(%s) : (tensor<f32>) -> ()
})"""


def written(shape, dtype="f32"):
    return f"tensor<{'x'.join([*map(str, shape), dtype])}>"


def array(numbers):
    return f"array<i64: {', '.join(map(str, numbers))}>" if numbers else "array<i64>"


def mlir_takes(name, attributes, operands, result, region="", dtype="f32"):
    """Whether MLIR takes a function of one op with operands (shape, element type)."""
    types, made = [written(*operand) for operand in operands], written(result, dtype)
    arguments = ", ".join(f"%{number}: {text}" for number, text in enumerate(types))
    values = ", ".join(f"%{number}" for number in range(len(types)))
    text = f"""func.func @main({arguments}) -> {made} {{
      %r = "stablehlo.{name}"({values}) {region} {{{attributes}}}
        : ({", ".join(types)}) -> {made}
      return %r : {made}
    }}"""
    try:
        parse(text.encode())
    except FlintError as error:  # a verdict on the op, not on this text
        assert "expected" not in str(error).replace("expected to be in range", ""), error
        return False
    return True


def verifier_takes(name, attributes, operands, result, dtype="f32"):
    op = Op(name, tuple(range(len(operands))), (len(operands),), attributes)
    types = [tensor_type(tuple(shape), dtype) for shape, dtype in operands]
    types.append(tensor_type(tuple(result), dtype))
    block = Block(op.operands, [op], op.results)
    try:
        verify(Module("m", {"main": block}, list(range(len(types))), types), lambda op: op.name)
    except FlintError:
        return False
    return True


SIZE = st.integers(1, 3)
OFF = st.sampled_from((0,) * 12 + (-1, 1))


def nearly(draw, numbers):
    """The same numbers, or with one that is another."""
    changed = [max(number + draw(OFF), 0) for number in numbers]
    return tuple(changed)


@given(st.data())
def test_pad(data):
    shape = data.draw(st.lists(SIZE, max_size=3))
    low, high = ([data.draw(st.integers(-1, 2)) for _ in shape] for _ in range(2))
    between = [data.draw(st.integers(0, 2)) for _ in shape]
    rows = list(zip(shape, low, high, between, strict=True))
    result = [size + a + b + gap * (size - 1) for size, a, b, gap in rows]
    assume(all(size >= 0 for size in result))
    result = nearly(data.draw, result)
    stated = {"low": tuple(low), "high": tuple(high), "between": tuple(between)}
    operands = [(shape, "f32"), ((), "f32")]
    attributes = (
        f"edge_padding_low = {array(low)}, edge_padding_high = {array(high)}, "
        f"interior_padding = {array(between)}"
    )
    theirs = mlir_takes("pad", attributes, operands, result)
    assert verifier_takes("pad", stated, operands, result) == theirs


@given(st.data())
def test_reduce(data):
    shape = data.draw(st.lists(SIZE, min_size=1, max_size=4))
    dims = data.draw(st.lists(st.integers(0, 3), max_size=3, unique=True).map(sorted))
    result = nearly(data.draw, [size for dim, size in enumerate(shape) if dim not in dims])
    operands = [(shape, "f32"), ((), "f32")]
    theirs = mlir_takes("reduce", f"dimensions = {array(dims)}", operands, result, SUM)
    assert verifier_takes("reduce", {"dimensions": tuple(dims)}, operands, result) == theirs


@given(st.data())
def test_dynamic_slice(data):
    shape = data.draw(st.lists(SIZE, max_size=3))
    sizes = nearly(data.draw, [data.draw(st.integers(0, size)) for size in shape])
    result = nearly(data.draw, sizes)
    count = max(len(shape) + data.draw(OFF), 0)
    operands = [(shape, "f32"), *[((), "i32")] * count]
    theirs = mlir_takes("dynamic_slice", f"slice_sizes = {array(sizes)}", operands, result)
    assert verifier_takes("dynamic_slice", {"sizes": sizes}, operands, result) == theirs


def lookup(draw):
    """What gather and scatter share: operand and indices, and the dims that an index leads to."""
    rank = draw(st.integers(1, 3))
    whole = [draw(SIZE) for _ in range(rank)]
    order = draw(st.permutations(range(rank)))
    dropped = draw(st.integers(0, rank))
    batched = draw(st.integers(0, min(dropped, 1)))
    batching, collapsed = order[:batched], sorted(order[batched:dropped])
    mapped = order[batched : batched + draw(st.integers(0, rank - batched))]
    # A batch dim stands first among the indices, then any others.
    indices = [whole[dim] for dim in batching] + [
        draw(SIZE) for _ in range(draw(st.integers(0, 2)))
    ]
    own = draw(st.integers(len(batching), len(indices)))
    if len(mapped) != 1 or draw(st.booleans()):
        indices.insert(own, len(mapped))
    else:
        own = len(indices)
    looked_up = [size for dim, size in enumerate(indices) if dim != own]
    return {
        "whole": whole, "indices": indices, "own": own, "looked_up": looked_up,
        "batching": tuple(batching), "of_indices": tuple(range(batched)),
        "collapsed": tuple(collapsed), "mapped": tuple(mapped),
    }  # fmt: skip


def mixed(draw, window, looked_up):
    """A window's dims among those of the indices: where they stand, and the shape of it all."""
    rank = len(window) + len(looked_up)
    places = sorted(draw(st.permutations(range(rank)))[: len(window)])
    parts = {True: iter(window), False: iter(looked_up)}
    return tuple(places), [next(parts[dim in places]) for dim in range(rank)]


@given(st.data())
def test_gather(data):
    draw = data.draw
    case = lookup(draw)
    gone = {*case["collapsed"], *case["batching"]}
    window = [
        1 if dim in gone else draw(st.integers(1, size)) for dim, size in enumerate(case["whole"])
    ]
    window = nearly(draw, window)
    kept = [size for dim, size in enumerate(window) if dim not in gone]
    offsets, result = mixed(draw, kept, case["looked_up"])
    result = nearly(draw, result)
    mapped = draw(st.sampled_from([case["mapped"]] * 8 + [case["mapped"][1:], (0, 1)]))
    stated = {
        "offset_dims": offsets,
        "collapsed_slice_dims": case["collapsed"],
        "operand_batching_dims": case["batching"],
        "start_indices_batching_dims": case["of_indices"],
        "start_index_map": mapped,
        "index_vector_dim": case["own"],
        "slice_sizes": window,
    }
    attributes = f"""dimension_numbers = #stablehlo.gather<
        offset_dims = {list(offsets)}, collapsed_slice_dims = {list(case["collapsed"])},
        operand_batching_dims = {list(case["batching"])},
        start_indices_batching_dims = {list(case["of_indices"])},
        start_index_map = {list(mapped)}, index_vector_dim = {case["own"]}>,
        slice_sizes = {array(window)}, indices_are_sorted = false"""
    operands = [(case["whole"], "f32"), (case["indices"], "i32")]
    theirs = mlir_takes("gather", attributes, operands, result)
    assert verifier_takes("gather", stated, operands, result) == theirs


@given(st.data())
def test_scatter(data):
    draw = data.draw
    case = lookup(draw)
    gone = {*case["collapsed"], *case["batching"]}
    kept = [draw(st.integers(1, size)) for dim, size in enumerate(case["whole"]) if dim not in gone]
    places, update = mixed(draw, kept, case["looked_up"])
    update = nearly(draw, update)
    result = nearly(draw, case["whole"])
    mapped = draw(st.sampled_from([case["mapped"]] * 8 + [case["mapped"][1:], (0, 1)]))
    stated = {
        "update_window_dims": places,
        "inserted_window_dims": case["collapsed"],
        "input_batching_dims": case["batching"],
        "scatter_indices_batching_dims": case["of_indices"],
        "scatter_dims_to_operand_dims": mapped,
        "index_vector_dim": case["own"],
    }
    attributes = f"""scatter_dimension_numbers = #stablehlo.scatter<
        update_window_dims = {list(places)}, inserted_window_dims = {list(case["collapsed"])},
        input_batching_dims = {list(case["batching"])},
        scatter_indices_batching_dims = {list(case["of_indices"])},
        scatter_dims_to_operand_dims = {list(mapped)}, index_vector_dim = {case["own"]}>"""
    operands = [(case["whole"], "f32"), (case["indices"], "i32"), (update, "f32")]
    theirs = mlir_takes("scatter", attributes, operands, result, SUM)
    assert verifier_takes("scatter", stated, operands, result) == theirs


@given(st.data())
def test_convolution(data):
    draw = data.draw
    groups, batches = draw(st.sampled_from([(1, 1), (2, 1), (1, 2), (3, 1)]))
    batch, used, made = (draw(st.integers(1, 4)) for _ in range(3))
    batch, made = batch * batches, made * draw(st.sampled_from([groups * batches, 1]))
    size, window, stride = draw(st.integers(3, 6)), draw(SIZE), draw(st.integers(1, 2))
    image = nearly(draw, (batch, used * groups, size))
    result = nearly(draw, (batch // batches, made, (size - window) // stride + 1))
    stated = {
        "input_batch": 0, "input_feature": 1, "input_spatial": (2,),
        "kernel_output_feature": 0, "kernel_input_feature": 1, "kernel_spatial": (2,),
        "output_batch": 0, "output_feature": 1, "output_spatial": (2,),
        "feature_group_count": groups, "batch_group_count": batches, "strides": (stride,),
    }  # fmt: skip
    attributes = f"""dimension_numbers = #stablehlo.conv<[b, f, 0]x[o, i, 0]->[b, f, 0]>,
        feature_group_count = {groups} : i64, batch_group_count = {batches} : i64,
        window_strides = {array([stride])}"""
    operands = [(image, "f32"), ((made, used, window), "f32")]
    assume(min(image) > 0)
    theirs = mlir_takes("convolution", attributes, operands, result)
    assert verifier_takes("convolution", stated, operands, result) == theirs


#: Op -> operands' element types where all of it fits; the last is the result's.
FITTING = {
    "add": ("f32", "f32", "f32"),
    "abs": ("complex<f32>", "f32"),
    "clamp": ("f32", "f32", "f32", "f32"),
    "complex": ("f32", "f32", "complex<f32>"),
    "is_finite": ("f32", "i1"),
    "power": ("f32", "f32", "f32"),
    "real": ("complex<f32>", "f32"),
    "select": ("i1", "f32", "f32", "f32"),
    "shift_left": ("i32", "i32", "i32"),
    "sqrt": ("f32", "f32"),
}


@pytest.mark.parametrize("name", FITTING)
def test_element_types(name):
    """With one type another: what is refused here, MLIR refuses, and what it takes is taken.

    That no tensor of such a type has a square root is nothing that this verifier says.
    """
    fitting = FITTING[name]
    refused = 0
    for place in range(len(fitting)):
        for other in ("f32", "bf16", "i32", "ui32", "i1", "complex<f32>"):
            types = [*fitting[:place], other, *fitting[place + 1 :]]
            operands = [((2,), dtype) for dtype in types[:-1]]
            takes = verifier_takes(name, None, operands, (2,), types[-1])
            assert takes or not mlir_takes(name, "", operands, (2,), dtype=types[-1]), types
            refused += not takes
    assert refused > 2 * len(fitting)
