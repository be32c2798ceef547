"""Single ops of which XLA says the same as Flint, and what such ops are written with.

Longer than 300 lines because it is one table of ops.
"""

from flint.stablehlo.rules.names import names
from tests.stablehlo.rules.xla_cost import OneOp, one_op, simple

A = "8x4xf32"
INT = "8x4xi32"
BOOL = "8x4xi1"
COMPLEX = "8x4xcomplex<f32>"
ADD = """({^bb0(%a: tensor<f32>, %b: tensor<f32>):
  %z = stablehlo.add %a, %b : tensor<f32>
  stablehlo.return %z : tensor<f32>})"""
#: exp(a) * 2 + b: one transcendental and two FLOPs; the constant costs nothing.
MIXED = """({^bb0(%a: tensor<f32>, %b: tensor<f32>):
  %y = stablehlo.exponential %a : tensor<f32>
  %k = stablehlo.constant dense<2.0> : tensor<f32>
  %x = stablehlo.multiply %y, %k : tensor<f32>
  %z = stablehlo.add %x, %b : tensor<f32>
  stablehlo.return %z : tensor<f32>})"""
GE = """{^bb0(%a: tensor<f32>, %b: tensor<f32>):
  %z = stablehlo.compare GE, %a, %b : (tensor<f32>, tensor<f32>) -> tensor<i1>
  stablehlo.return %z : tensor<i1>}"""
#: The index of the maximum: five ops on (value, index) pairs.
ARGMAX = """({^bb0(%a: tensor<f32>, %i: tensor<i32>, %b: tensor<f32>, %j: tensor<i32>):
  %p = stablehlo.compare GT, %a, %b : (tensor<f32>, tensor<f32>) -> tensor<i1>
  %v = stablehlo.select %p, %a, %b : tensor<i1>, tensor<f32>
  %k = stablehlo.select %p, %i, %j : tensor<i1>, tensor<i32>
  stablehlo.return %v, %k : tensor<f32>, tensor<i32>})"""

_UNARY = names(
    "abs cbrt ceil cosine exponential exponential_minus_one floor log log_plus_one logistic negate",
    "round_nearest_afz round_nearest_even rsqrt sign sine sqrt tan tanh",
)
_UNARY_INT = names("count_leading_zeros not popcnt negate abs")
_BINARY = names("add atan2 divide maximum minimum multiply power remainder subtract")
_BINARY_INT = names(
    "add multiply and or xor shift_left shift_right_arithmetic shift_right_logical",
)
_CHLO_BINARY = names(
    "broadcast_add broadcast_subtract broadcast_multiply broadcast_divide broadcast_maximum",
    "broadcast_minimum broadcast_power broadcast_remainder broadcast_atan2",
)


def _reduce(region: str, operands: str, results: str, dimensions: str) -> OneOp:
    attributes = f"{{dimensions = array<i64: {dimensions}>}}"
    body = f'"stablehlo.reduce"({{args}}){region} {attributes} : {{types}}'
    return one_op(operands, results, body)


def reduce_window(region: str, result: str, attributes: str, operand: str = "8x8xf32") -> OneOp:
    body = f'"stablehlo.reduce_window"({{args}}){region} {{{attributes}}} : {{types}}'
    return one_op(f"{operand} f32", result, body)


def _convolution(
    image: str, kernel: str, out: str, window: str, groups: int = 1, batch_groups: int = 1
) -> OneOp:
    attributes = (
        "dimension_numbers = #stablehlo.conv<[b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f]>, "
        f"feature_group_count = {groups} : i64, batch_group_count = {batch_groups} : i64{window}"
    )
    return simple("stablehlo.convolution", f"{image} {kernel}", out, attributes)


def dense(*rows: tuple[int, int]) -> str:
    return f"dense<{[list(row) for row in rows]}> : tensor<{len(rows)}x2xi64>"


CASES: dict[str, OneOp] = {
    **{name: simple(f"stablehlo.{name}", A, A) for name in _UNARY},
    **{f"{name} i32": simple(f"stablehlo.{name}", INT, INT) for name in _UNARY_INT},
    **{name: simple(f"stablehlo.{name}", f"{A} {A}", A) for name in _BINARY},
    **{f"{name} i32": simple(f"stablehlo.{name}", f"{INT} {INT}", INT) for name in _BINARY_INT},
    **{name: simple(f"chlo.{name}", f"{A} {A}", A) for name in _CHLO_BINARY},
    "chlo.erf": simple("chlo.erf", A, A),
    "chlo.tan": simple("chlo.tan", A, A),
    "chlo.mulhi": simple("chlo.mulhi", "8x4xui32 8x4xui32", "8x4xui32"),
    "is_finite": simple("stablehlo.is_finite", A, BOOL),
    "real": simple("stablehlo.real", COMPLEX, A),
    "imag": simple("stablehlo.imag", COMPLEX, A),
    "complex": simple("stablehlo.complex", f"{A} {A}", COMPLEX),
    "add complex": simple("stablehlo.add", f"{COMPLEX} {COMPLEX}", COMPLEX),
    "multiply complex": simple("stablehlo.multiply", f"{COMPLEX} {COMPLEX}", COMPLEX),
    "abs complex": simple("stablehlo.abs", COMPLEX, A),
    "convert": simple("stablehlo.convert", A, "8x4xbf16"),
    "convert to f8": simple("stablehlo.convert", A, "8x4xf8E4M3FN"),
    "convert pred": simple("stablehlo.convert", BOOL, "8x4xf64"),
    "reduce_precision": one_op(
        A, A, "stablehlo.reduce_precision %0, format = e5m10 : tensor<8x4xf32>"
    ),
    "compare": one_op(f"{A} {A}", BOOL, "stablehlo.compare LT, %0, %1 : {types}"),
    "select": simple("stablehlo.select", f"{BOOL} {A} {A}", A),
    "clamp": simple("stablehlo.clamp", f"{A} {A} {A}", A),
    "map": one_op(
        f"{A} {A}",
        A,
        f'"stablehlo.map"({{args}}){MIXED} {{dimensions = array<i64: 0, 1>}} : {{types}}',
    ),
    "dot": simple("stablehlo.dot", "8x4xbf16 4x16xbf16", "8x16xf32"),
    "dot matrix vector": simple("stablehlo.dot", "8x4xf32 4xf32", "8xf32"),
    "dot i8": simple("stablehlo.dot", "8x4xi8 4x16xi8", "8x16xi32"),
    "dot complex": simple(
        "stablehlo.dot", "8x4xcomplex<f32> 4x16xcomplex<f32>", "8x16xcomplex<f32>"
    ),
    "dot_general": one_op(
        "3x8x4xbf16 3x4x16xbf16",
        "3x8x16xbf16",
        "stablehlo.dot_general %0, %1, batching_dims = [0] x [0], contracting_dims = [2] x [1]"
        " : {types}",
    ),
    "dot_general two contracting, inner batch": one_op(
        "2x8x4x5xf32 5x3x2x4xf32",
        "2x8x3xf32",
        "stablehlo.dot_general %0, %1, batching_dims = [0] x [2], "
        "contracting_dims = [2, 3] x [3, 0] : {types}",
    ),
    "dot_general outer product": one_op(
        "8xf32 4xf32",
        "8x4xf32",
        "stablehlo.dot_general %0, %1, contracting_dims = [] x [] : {types}",
    ),
    "convolution": _convolution("2x8x8x4xf32", "3x3x4x6xf32", "2x6x6x6xf32", ""),
    "convolution padded, strided": _convolution(
        "2x8x8x4xbf16",
        "3x3x4x6xbf16",
        "2x4x4x6xbf16",
        f", window_strides = array<i64: 2, 2>, padding = {dense((1, 1), (0, 1))}",
    ),
    "convolution of 2 feature groups": _convolution(
        "2x8x8x4xf32", "3x3x2x6xf32", "2x8x8x6xf32", f", padding = {dense((1, 1), (1, 1))}", 2
    ),
    "depthwise convolution": _convolution(
        "2x8x8x4xf32", "3x3x1x4xf32", "2x8x8x4xf32", f", padding = {dense((1, 1), (1, 1))}", 4
    ),
    "convolution of 2 batch groups": _convolution(
        "2x8x8x4xf32", "3x3x4x6xf32", "1x6x6x6xf32", "", 1, 2
    ),
    "convolution with dilated input": _convolution(
        "2x8x8x4xf32",
        "3x3x4x6xf32",
        "2x17x17x6xf32",
        f", padding = {dense((2, 2), (2, 2))}, lhs_dilation = array<i64: 2, 2>",
    ),
    "convolution with dilated kernel": _convolution(
        "2x8x8x4xf32", "3x3x4x6xf32", "2x4x4x6xf32", ", rhs_dilation = array<i64: 2, 2>"
    ),
    "convolution cropped": _convolution(
        "2x8x8x4xf32", "3x3x4x6xf32", "2x4x4x6xf32", f", padding = {dense((-1, -1), (-2, 0))}"
    ),
    "convolution without window": simple(
        "stablehlo.convolution",
        "8x4xf32 4x6xf32",
        "8x6xf32",
        "dimension_numbers = #stablehlo.conv<[b, f]x[i, o]->[b, f]>, "
        "feature_group_count = 1 : i64, batch_group_count = 1 : i64",
    ),
    "reduce": _reduce(ADD, f"{A} f32", "8xf32", "1"),
    "reduce to scalar": _reduce(ADD, f"{A} f32", "f32", "0, 1"),
    "reduce mixed region": _reduce(MIXED, f"{A} f32", "4xf32", "0"),
    "reduce over a dim of size 1": _reduce(ADD, "8x1xf32 f32", "8xf32", "1"),
    "reduce_window": reduce_window(
        MIXED,
        "4x4xf32",
        "window_dimensions = array<i64: 3, 3>, window_strides = array<i64: 2, 2>, "
        f"padding = {dense((0, 1), (0, 1))}",
    ),
    "reduce_window cumulative": reduce_window(
        ADD, "8x8xf32", f"window_dimensions = array<i64: 1, 8>, padding = {dense((0, 0), (7, 0))}"
    ),
    "reduce_window nearly cumulative over a long dim": reduce_window(
        ADD,
        "2x255xf32",
        f"window_dimensions = array<i64: 1, 256>, padding = {dense((0, 0), (254, 0))}",
        "2x256xf32",
    ),
    "reduce_window cumulative over a long dim with strides": reduce_window(
        ADD,
        "2x128xf32",
        "window_dimensions = array<i64: 1, 256>, window_strides = array<i64: 1, 2>, "
        f"padding = {dense((0, 0), (255, 0))}",
        "2x256xf32",
    ),
    "reduce_window that is a reduction broadcast back": reduce_window(
        ADD, "8x8xf32", f"window_dimensions = array<i64: 1, 15>, padding = {dense((0, 0), (7, 7))}"
    ),
    "reduce_window nearly that": reduce_window(
        ADD, "8x9xf32", f"window_dimensions = array<i64: 1, 15>, padding = {dense((0, 0), (7, 8))}"
    ),
    "reduce_window dilated": reduce_window(
        ADD,
        "8x13xf32",
        "window_dimensions = array<i64: 1, 2>, window_dilations = array<i64: 1, 2>, "
        "base_dilations = array<i64: 1, 2>",
    ),
    "select_and_scatter": one_op(
        "8x8xf32 4x4xf32 f32",
        "8x8xf32",
        f'"stablehlo.select_and_scatter"({{args}})({GE}, {MIXED[1:-1]}) '
        "{window_dimensions = array<i64: 3, 3>, window_strides = array<i64: 2, 2>, "
        f"padding = {dense((0, 1), (0, 1))}}} : {{types}}",
    ),
    "scatter": one_op(
        "10x4xf32 3x1xi32 3x4xf32",
        "10x4xf32",
        f'"stablehlo.scatter"({{args}}){MIXED} {{scatter_dimension_numbers = #stablehlo.scatter<'
        "update_window_dims = [1], inserted_window_dims = [0], "
        "scatter_dims_to_operand_dims = [0], index_vector_dim = 1>} : {types}",
    ),
    "gather": one_op(
        "10x4xf32 3x1xi32",
        "3x4xf32",
        '"stablehlo.gather"({args}) {dimension_numbers = #stablehlo.gather<offset_dims = [1], '
        "collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>, "
        "slice_sizes = array<i64: 1, 4>} : {types}",
    ),
    "torch_index_select": simple(
        "stablehlo.torch_index_select",
        "5x6xf32 3xi32",
        "3x6xf32",
        "dim = 0 : i64, batch_dims = 0 : i64",
    ),
    "slice": one_op(A, "3x2xf32", "stablehlo.slice %0 [1:7:2, 0:2] : {types}"),
    "dynamic_slice": one_op(
        f"{A} i32 i32", "2x2xf32", "stablehlo.dynamic_slice %0, %1, %2, sizes = [2, 2] : {types}"
    ),
    "dynamic_slice i64": one_op(
        f"{A} i64 i64", "2x2xf32", "stablehlo.dynamic_slice %0, %1, %2, sizes = [2, 2] : {types}"
    ),
    "dynamic_update_slice": one_op(
        f"{A} 2x2xf32 i32 i32", A, "stablehlo.dynamic_update_slice %0, %1, %2, %3 : {types}"
    ),
    "broadcast": simple("stablehlo.broadcast", "4xf32", A, "broadcast_sizes = array<i64: 8>"),
    "broadcast_in_dim": one_op("4xf32", A, "stablehlo.broadcast_in_dim %0, dims = [1] : {types}"),
    "broadcast_in_dim scalar": one_op(
        "f32", A, "stablehlo.broadcast_in_dim %0, dims = [] : {types}"
    ),
    "concatenate": one_op(
        f"{A} 8x2xf32", "8x6xf32", "stablehlo.concatenate %0, %1, dim = 1 : {types}"
    ),
    "pad": one_op(
        f"{A} f32",
        "11x9xf32",
        "stablehlo.pad %0, %1, low = [1, 1], high = [2, 1], interior = [0, 1] : {types}",
    ),
    "reverse": one_op(A, A, "stablehlo.reverse %0, dims = [0] : tensor<8x4xf32>"),
    "iota": one_op("", "8xf32", "stablehlo.iota dim = 0 : tensor<8xf32>"),
    "constant": one_op("", "2xf32", "stablehlo.constant dense<[1.0, 2.0]> : tensor<2xf32>"),
    "partition_id": one_op("", "ui32", "stablehlo.partition_id : tensor<ui32>"),
    "replica_id": one_op("", "ui32", "stablehlo.replica_id : tensor<ui32>"),
    "fft": one_op(
        "4x16xcomplex<f32>",
        "4x16xcomplex<f32>",
        "stablehlo.fft %0, type = FFT, length = [16] : {types}",
    ),
    "fft of 12": one_op(
        "4x12xcomplex<f32>",
        "4x12xcomplex<f32>",
        "stablehlo.fft %0, type = FFT, length = [12] : {types}",
    ),
    "fft over two dims": one_op(
        "4x16xcomplex<f32>",
        "4x16xcomplex<f32>",
        "stablehlo.fft %0, type = FFT, length = [4, 16] : {types}",
    ),
    "rfft": one_op(
        "4x16xf32", "4x9xcomplex<f32>", "stablehlo.fft %0, type = RFFT, length = [16] : {types}"
    ),
    "irfft": one_op(
        "4x9xcomplex<f32>", "4x16xf32", "stablehlo.fft %0, type = IRFFT, length = [16] : {types}"
    ),
    "cholesky": one_op(
        "3x5x5xf32", "3x5x5xf32", "stablehlo.cholesky %0, lower = true : tensor<3x5x5xf32>"
    ),
    "triangular_solve": simple(
        "stablehlo.triangular_solve",
        "3x5x5xf32 3x5x7xf32",
        "3x5x7xf32",
        "left_side = true, lower = true, unit_diagonal = false, "
        "transpose_a = #stablehlo<transpose NO_TRANSPOSE>",
    ),
    "triangular_solve from the right": simple(
        "stablehlo.triangular_solve",
        "3x7x7xf32 3x5x7xf32",
        "3x5x7xf32",
        "left_side = false, lower = true, unit_diagonal = false, "
        "transpose_a = #stablehlo<transpose NO_TRANSPOSE>",
    ),
    "rng": one_op("f32 f32 2xi64", A, "stablehlo.rng %0, %1, %2, distribution = UNIFORM : {types}"),
    "sort": one_op(
        "8x5xf32",
        "8x5xf32",
        f'"stablehlo.sort"({{args}})({GE}) {{dimension = 1 : i64}} : {{types}}',
    ),
}

#: Bytes of the table of pointers that XLA adds for an op with several results, 8 per result.
POINTER = 8
VARIADIC: dict[str, OneOp] = {
    "reduce of two operands": _reduce(ARGMAX, f"{A} {INT} f32 i32", "8xf32 8xi32", "1"),
    "sort of two operands": one_op(
        "8x5xf32 8x5xi32",
        "8x5xf32 8x5xi32",
        """"stablehlo.sort"(%0, %1)({^bb0(%a: tensor<f32>, %b: tensor<f32>, %c: tensor<i32>,
            %d: tensor<i32>):
          %z = stablehlo.compare LT, %a, %b : (tensor<f32>, tensor<f32>) -> tensor<i1>
          stablehlo.return %z : tensor<i1>}) {dimension = 1 : i64} : {types}""",
    ),
    "rng_bit_generator": one_op(
        "2xui64",
        "2xui64 8x4xui32",
        "stablehlo.rng_bit_generator %0, algorithm = THREE_FRY : {types}",
    ),
}
