"""The verifier refuses ops that do not fit, in the words of what is wrong, and no others.

What fits is what XLA's and MLIR's own verifiers take: modules of real programs, and single ops in
both forms.  What does not is the same with one thing changed.

Longer than 300 lines because it is one table of ops that do not fit, each with the words of the
refusal.
"""

from pathlib import Path

import pytest

from flint.errors import FlintError
from flint.frontends.saved.kinds import detect
from flint.frontends.saved.parsing import parse
from flint.hlo import hlo_pb2 as pb
from flint.hlo.reader import read_hlo
from flint.hlo.text import proto_of_text
from flint.stablehlo.verification.verifier import verify
from flint.stablehlo.walker import walk

DATA = Path(__file__).parents[2] / "data"
PROGRAMS = sorted(
    path
    for folder in ("hlo", "optimized", "stablehlo")
    for path in (DATA / folder).rglob("*")
    if path.name.endswith(".hlo.pb.gz")
    or (path.is_file() and detect(path.read_bytes()[: 1 << 16]).is_program)
)

HLO = """HloModule m, num_partitions=4

add { lhs = f32[] parameter(0)
  rhs = f32[] parameter(1)
  ROOT sum = f32[] add(lhs, rhs) }

ENTRY e {
  x = f32[8,16] parameter(0)
  r = f32[8,16] all-reduce(x), channel_id=1, replica_groups={{0,1},{2,3}}, use_global_device_ids=true, to_apply=add
  g = f32[16,16] all-gather(r), channel_id=2, replica_groups={{0,1},{2,3}}, use_global_device_ids=true, dimensions={0}
  s = f32[4,16] reduce-scatter(x), channel_id=3, replica_groups=[2,2]<=[4], use_global_device_ids=true, dimensions={0}, to_apply=add
  p = f32[8,16] collective-permute(x), channel_id=4, source_target_pairs={{0,1},{1,0}}
  a = f32[8,16] all-to-all(x), channel_id=5, replica_groups={{0,1},{2,3}}, dimensions={0}
  m = f32[8,16] multiply(p, a)
  n = f32[8,16] negate(m)
  t = f32[16,8] transpose(n), dimensions={1,0}
  d = f32[8,8] dot(n, t), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  z = f32[] constant(0)
  u = f32[8] reduce(d, z), dimensions={1}, to_apply=add
  b = f32[8,8] broadcast(u), dimensions={0}
  c = f32[8,16] concatenate(b, d), dimensions={1}
  l = f32[4,8] slice(c), slice={[0:4], [0:16:2]}
  ROOT o = (f32[4,8], f32[16,16], f32[4,16]) tuple(l, g, s)
}
"""  # noqa: E501


#: What reads and writes at indices, and windows, in the forms that XLA's parser takes.
INDEXED = """HloModule n

add { lhs = f32[] parameter(0)
  rhs = f32[] parameter(1)
  ROOT sum = f32[] add(lhs, rhs) }

less { one = f32[] parameter(0)
  other = f32[] parameter(1)
  ROOT is = pred[] compare(one, other), direction=LT }

ENTRY e {
  x = f32[8,16] parameter(0)
  i = s32[5,1] parameter(1)
  k = s32[] parameter(2)
  y = bf16[8,16] convert(x)
  z = f32[] constant(0)
  g = f32[5,16] gather(x, i), offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1, slice_sizes={1,16}
  s = f32[8,16] scatter(x, i, g), update_window_dims={1}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=add
  p = f32[10,33] pad(s, z), padding=1_1x2_0_1
  d = f32[2,16] dynamic-slice(s, k, k), dynamic_slice_sizes={2,16}
  u = f32[8,16] dynamic-update-slice(s, d, k, k)
  c = pred[8,16] compare(u, x), direction=LT
  w = f32[8,16] select(c, u, x)
  m = f32[8,16] maximum(w, u)
  r = f32[16] reduce(m, z), dimensions={0}, to_apply=add
  v = f32[16] reverse(r), dimensions={0}
  a = f32[1,8,16] reshape(x)
  f = f32[4,16,4] parameter(3)
  h = f32[1,5,4] convolution(a, f), window={size=4}, dim_labels=b0f_0io->b0f
  l = f32[16] reduce-window(r, z), window={size=2 pad=1_0}, to_apply=add
  n = f32[16] select-and-scatter(r, l, z), window={size=2 pad=1_0}, select=less, scatter=add
  ROOT o = (f32[10,33], f32[16], bf16[8,16], f32[1,5,4], f32[16]) tuple(p, v, y, h, n)
}
"""  # noqa: E501


#: What the two before have not.
OTHERS = """HloModule o, num_partitions=2

plus { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT s = f32[] add(a, b) }

minus { a = f32[] parameter(0)
  ROOT b = f32[] negate(a) }

ENTRY e {
  x = f32[8,16] parameter(0)
  c = c64[8,16] parameter(1)
  k = s32[] parameter(2)
  v = s32[8] constant({1,2,3,4,5,6,7,8})
  f = c64[8,16] fft(c), fft_type=FFT, fft_length={16}
  r = c64[8,9] fft(x), fft_type=RFFT, fft_length={16}
  ib = f32[8,16] fft(r), fft_type=IRFFT, fft_length={16}
  t = (f32[8,2], s32[8,2]) topk(x), k=2, largest=true
  l = f32[8,2] get-tuple-element(t), index=0
  z = f32[] constant(0)
  n = f32[8,2] rng(z, z), distribution=rng_uniform
  m = f32[8,16] map(x), dimensions={0,1}, to_apply=minus
  i = u32[] partition-id()
  g = s32[] get-dimension-size(x), dimensions={0}
  sd = f32[<=8,16] set-dimension-size(x, k), dimensions={0}
  w = c64[8,16] complex(x, x)
  h = pred[8,16] is-finite(x)
  y = f32[2,3,4] parameter(3)
  q = f32[4] parameter(4)
  bt = (f32[2,3,4], f32[4], f32[4]) batch-norm-training(y, q, q), epsilon=0.001, feature_index=2
  st = f32[8,16] all-reduce-start(x), replica_groups={{0,1}}, channel_id=1, use_global_device_ids=true, to_apply=plus
  d = f32[8,16] all-reduce-done(st)
  ROOT o = (f32[8,2], s32[8]) tuple(l, v)
}
"""  # noqa: E501


def verified(module):
    verify(module, lambda op: op.name)


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.name)
def test_every_real_program_passes(path):
    verified(parse(path.read_bytes(), path.name))


def changed(name, change, text=HLO):
    """A module above as a proto in which one instruction is another."""
    module = pb.HloModuleProto.FromString(proto_of_text(text.encode()))
    for computation in module.computations:
        for instruction in computation.instructions:
            if instruction.name == name and computation.id == module.entry_computation_id:
                change(instruction)
    return read_hlo(module.SerializeToString())


def shaped(*dims, dtype=11):
    shape = pb.ShapeProto(element_type=dtype, dimensions=dims).SerializeToString()
    return lambda instruction: setattr(instruction, "shape", shape)


def one_operand_less(instruction):
    del instruction.operand_ids[-1]


def one_operand_more(instruction):
    instruction.operand_ids.append(instruction.operand_ids[-1])


@pytest.mark.parametrize("text", [HLO, INDEXED, OTHERS], ids=["HLO", "INDEXED", "OTHERS"])
def test_what_xla_has_parsed_passes(text):
    verified(changed("", None, text))


@pytest.mark.parametrize(
    ("name", "change", "text"),
    [
        ("r", shaped(16, 16), r"all_reduce: has the operand 8x16xf32 for the result 16x16xf32"),
        ("r", shaped(8, 16, dtype=16), r"all_reduce: has the operand 8x16xf32 for the .*bf16"),
        ("g", shaped(32, 16), "all_gather: has the result 32x16xf32 for parts 8x16xf32 of 2 ranks"),
        ("g", shaped(9, 16), "all_gather: has the result 9x16xf32 for parts 8x16xf32"),
        ("g", shaped(16, 32), "all_gather: has the result 16x32xf32"),
        ("g", shaped(0, 16), "all_gather: has the result 0x16xf32 for parts 8x16xf32"),
        ("g", shaped(), "all_gather: has the operand 8x16xf32 for the result f32"),
        ("s", shaped(2, 16), "reduce_scatter: has the operand 8x16xf32 for parts 2x16xf32 of 2"),
        ("s", one_operand_less, "reduce_scatter: has no operand or no result"),
        ("p", shaped(8, 8), "collective_permute: has the operand 8x16xf32"),
        ("p", one_operand_more, "collective_permute: has 2 operands and 1 results"),
        ("a", shaped(8, 8), "all_to_all: has the operand 8x16xf32"),
        ("m", one_operand_less, "multiply: has 1 operands, not 2"),
        ("m", shaped(16, 8), "multiply: has the operand 8x16xf32 for the result 16x8xf32"),
        ("n", shaped(8), "negate: has the operand 8x16xf32"),
        ("t", shaped(8, 16), "transpose: does not yield the result 8x16xf32"),
        ("d", shaped(8, 8, dtype=4), "dot_general: has the operand 8x16xf32 for the .*8x8xi32"),
        ("d", shaped(8, 16), "dot_general: has the operands 8x16xf32 and 16x8xf32"),
        ("u", shaped(9), "reduce: does not reduce the operand 8x8xf32 to the result 9xf32"),
        ("b", shaped(9, 8), "broadcast_in_dim: does not yield"),
        ("c", shaped(8, 17), "concatenate: does not yield"),
        ("l", shaped(4, 9), "slice: does not yield"),
    ],
)  # fmt: skip
def test_an_instruction_that_does_not_fit_is_refused(name, change, text):
    with pytest.raises(FlintError, match=text):
        verified(changed(name, change))


def pair(*dims):
    """The shape of a tuple of two."""
    parts = [pb.ShapeProto(element_type=11, dimensions=part) for part in dims]
    shape = pb.ShapeProto(element_type=13, tuple_shapes=parts).SerializeToString()
    return lambda instruction: setattr(instruction, "shape", shape)


@pytest.mark.parametrize(
    ("name", "change", "text"),
    [
        ("v", shaped(9, dtype=4), r"constant: has a value of shape \(8,\) for the result 9xi32"),
        ("f", shaped(8, 9, dtype=15), "fft: has the operand 8x16xcomplex<f32> for the result 8x9"),
        ("r", shaped(8, 16, dtype=15), "fft: has the operand 8x16xf32 for the result 8x16xcomp"),
        ("r", shaped(8, 9), "fft: has the operand 8x16xf32 for the result 8x9xf32"),
        ("ib", shaped(8, 18), "fft: has the operand 8x9xcomplex<f32> for the result 8x18xf32"),
        ("ib", shaped(8, 15), "fft: has the operand 8x9xcomplex<f32> for the result 8x15xf32"),
        ("t", one_operand_more, "topk: has 2 operands, not 1"),
        ("t", pair((8, 2), (8, 4)), "topk: has the operand 8x4xf32 for the result 8x2xf32"),
        ("t", pair((8, 2), (8, 2)), "8x2xf32, which does not contain integers"),
        ("l", shaped(8, 3), "its shape has 8x3xf32, but 8x2xf32 is passed on"),
        ("n", one_operand_less, "rng: has 1 operands, not 2"),
        ("m", shaped(8, 16, dtype=4), "map: has 8x16xi32, but its function has f32"),
        ("m", shaped(16, 8), "map: has the operand 8x16xf32 for the result 16x8xf32"),
        ("i", shaped(3, dtype=8), "partition_id: has the result 3xui32, which is not a scalar"),
        ("g", shaped(3, dtype=4), "get_dimension_size: .* 3xi32, which is not a scalar"),
        ("sd", shaped(8, 16, dtype=4), "set_dimension_size: has the operand 8x16xf32 for .*i32"),
        ("w", shaped(8, 16), "complex: has the operand 8x16xf32 for the result 8x16xf32"),
        ("bt", one_operand_less, "batch_norm_training: has 2 operands, not 3"),
        ("d", shaped(8, 8), "async_done: has 8x16xf32, but results have 8x8xf32"),
    ],
)  # fmt: skip
def test_the_other_ops_are_checked_too(name, change, text):
    with pytest.raises(FlintError, match=text):
        verified(changed(name, change, OTHERS))


def test_finite_are_floating_point_numbers():
    text = OTHERS.replace("is-finite(x)", "is-finite(x)\n  ii = s32[8,16] convert(x)")
    module = pb.HloModuleProto.FromString(proto_of_text(text.encode()))
    [entry] = [one for one in module.computations if one.id == module.entry_computation_id]
    by_name = {
        instruction.name.partition(".")[0]: instruction for instruction in entry.instructions
    }
    entry.instructions.remove(by_name["h"])
    by_name["h"].operand_ids[:] = [by_name["ii"].id]
    entry.instructions.append(by_name["h"])
    entry.root_id = by_name["o"].id
    with pytest.raises(
        FlintError, match="is_finite: has the operand 8x16xi32, which does not contain float"
    ):
        verified(read_hlo(module.SerializeToString()))


def dims(field, kind, name, *numbers):
    """Change dimension numbers, a message inside the instruction."""

    def change(instruction):
        message = kind.FromString(getattr(instruction, field))
        if isinstance(getattr(message, name), int):
            setattr(message, name, *numbers)
        else:
            getattr(message, name)[:] = numbers
        setattr(instruction, field, message.SerializeToString())

    return change


def gather_dims(name, *numbers):
    return dims("gather_dimension_numbers", pb.GatherDimensionNumbers, name, *numbers)


def scatter_dims(name, *numbers):
    return dims("scatter_dimension_numbers", pb.ScatterDimensionNumbers, name, *numbers)


def convolution_dims(name, *numbers):
    field = "convolution_dimension_numbers"
    return dims(field, pb.ConvolutionDimensionNumbers, name, *numbers)


def listed(field, *numbers):
    return lambda instruction: getattr(instruction, field).__setitem__(slice(None), numbers)


def groups(instruction):
    instruction.feature_group_count = 3


@pytest.mark.parametrize(
    ("name", "change", "text"),
    [
        ("g", shaped(5, 15), "gather: does not yield .* 5x15xf32 from windows of \\(1, 16\\)"),
        ("g", listed("gather_slice_sizes", 1, 17), r"gather: has windows of \(1, 17\)"),
        ("g", listed("gather_slice_sizes", 2, 16), "gather: drops a dim longer than 1"),
        ("g", gather_dims("start_index_map", 2), "gather: names dims .* not fit 8x16xf32"),
        ("g", gather_dims("start_index_map", 0, 1), "gather: has the indices 5x1xi32, of 1 numb"),
        ("g", gather_dims("index_vector_dim", 3), "gather: has no dim 3 in the indices 5x1xi32"),
        ("g", gather_dims("offset_dims", 2), "gather: has window dims"),
        ("i", shaped(5, 1), "gather: has the operand 5x1xf32, which does not contain integers"),
        ("s", scatter_dims("update_window_dims", 0), "scatter: has the updates 5x16xf32"),
        ("s", scatter_dims("inserted_window_dims", 9), "scatter: names dims"),
        ("s", shaped(8, 17), "scatter: has the operand 8x16xf32 for the result 8x17xf32"),
        ("p", shaped(10, 32), "pad: does not yield the result 10x32xf32 from the operand 8x16xf32"),
        ("z", shaped(dtype=4), "pad: has the operand i32 for the result 10x33xf32"),
        ("d", listed("dynamic_slice_sizes", 2, 8), r"dynamic_slice: has slice sizes \(2, 8\) for"),
        ("d", one_operand_less, "dynamic_slice: has 1 indices into 8x16xf32"),
        ("u", one_operand_less, "dynamic_update_slice: has 1 indices into 8x16xf32"),
        ("u", shaped(8, 16, dtype=16), "dynamic_update_slice: has the operand 8x16xf32 for"),
        ("c", shaped(8, 16, dtype=2), "compare: has the result 8x16xi8, which is not i1"),
        ("w", shaped(8, 16, dtype=16), "select: has the operand 8x16xf32 for the result 8x16xbf16"),
        ("m", shaped(8, 16, dtype=16), "maximum: has the operand 8x16xf32 for the result"),
        ("r", listed("dimensions", 1), "reduce: does not reduce the operand 8x16xf32"),
        ("r", listed("dimensions", 5), r"reduce: names dims \(5,\), which do not fit 8x16xf32"),
        ("v", listed("dimensions", 1), r"reverse: names dims \(1,\), which do not fit 16xf32"),
        ("h", shaped(1, 5, 5), "convolution: has the operands 1x8x16xf32 and 4x16x4xf32 for"),
        ("h", groups, "convolution: .* in 3 groups of features"),
        ("h", convolution_dims("input_batch_dimension", 2), "convolution: names dims"),
        ("n", shaped(17), "select_and_scatter: has the operand 16xf32 for the result 17xf32"),
    ],
)  # fmt: skip
def test_an_instruction_that_looks_elsewhere_is_refused(name, change, text):
    with pytest.raises(FlintError, match=f"^{text}"):
        verified(changed(name, change, INDEXED))


def test_what_reads_at_indices_passes():
    verified(changed("", None, INDEXED))


def test_the_error_says_where_the_op_stands():
    read = changed("r", shaped(16, 16))
    with pytest.raises(FlintError, match=r"^all_reduce at r: has the operand"):
        walk(read)
