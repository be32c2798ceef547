"""What granularity xla fuses into products, rule by rule."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest

import flint
from flint.graph.graph import WorkloadGraph
from flint.graph.tensor_types import tensor_type
from flint.graph.work import Role, Unit, Work, WorkItem
from flint.passes import apply
from flint.passes.fuse import fuse_kernels
from flint.passes.xla.fuse import fuse_as_xla
from tests.passes.building import ACTIVATION, SCALAR, WEIGHT, Graph
from tests.passes.xla.kernels.programs import BF16, F32, conv, of

MIB = 1 << 20


def as_xla(graph: WorkloadGraph) -> list[tuple[str, int]]:
    return [(node.op, node.ops_merged) for node in fuse_as_xla(graph)]


def kernels(graph: WorkloadGraph) -> list[tuple[str, int]]:
    return [(node.op, node.ops_merged) for node in fuse_kernels(graph)]


def test_a_batched_product_of_xla_leaves_transposes_outside_and_has_an_epilogue():
    """XLA's ``gemm_fusion_dot_general`` of eight products computes the tanh behind them."""
    g = Graph()
    kind = tensor_type((8, 64, 64), "bf16")
    item = WorkItem(Unit.MATMUL, "bf16", 2 * 8 * 64**3, (8, 64, 64, 64))
    work = Work((item,), 2 * kind.bytes, kind.bytes)
    turned = g.move(g.input(kind), kind, kind)
    made = g.op("dot_general", Role.CONTRACTION, (turned, g.input(kind)), kind, work)
    graph = g.finish(g.elementwise(made, of=kind, name="tanh"))
    assert kernels(graph) == [("dot_general", 3)]
    assert as_xla(graph) == [("transpose", 1), ("dot_general", 2)]


def test_the_epilogue_of_a_product_of_xla_reads_parameters_but_nothing_that_was_computed() -> None:
    for name in ("add", "multiply"):
        g = Graph()
        made = g.dot(g.input(), g.input(WEIGHT))
        assert as_xla(g.finish(g.elementwise(made, g.input(), name=name))) == [("dot_general", 2)]
        g = Graph()
        made = g.dot(g.input(), g.input(WEIGHT))
        other = g.elementwise(g.input(), name="tanh")
        graph = g.finish(g.elementwise(made, other, name=name))
        assert as_xla(graph) == [("dot_general", 1), (name, 2)]


def test_a_product_in_f32_is_converted_before_it_is_transposed() -> None:
    """XLA's ``gemm_fusion_dot_general`` writes bf16, and ``wrapped_transpose`` reads it."""

    def step(a, b):
        made = jnp.einsum("bhij,bhjk->bhik", a, b, preferred_element_type=F32)
        return made.transpose(0, 2, 1, 3).astype(BF16)

    whole = 2 * 4 * 256 * 256 * 2 / MIB
    found = captured(step, of(2, 4, 256, 256), of(2, 4, 256, 256))
    assert found == [("dot_general", 2 * whole, whole), ("transpose", whole, whole)]


def captured(function, *arguments) -> list[tuple[str, float, float]]:
    """Kernels of granularity xla: name, MiB read and written."""
    graph = flint.capture(mesh=(1,))(function).capture(*arguments).graph
    return [(n.op, n.work.read / MIB, n.work.written / MIB) for n in apply(graph, "xla")]


def test_what_several_read_ends_an_epilogue_and_products_compute_a_relu_again() -> None:
    """As in XLA's dense layer: ``gemm_fusion_dot_general`` writes the sum with the bias, and two
    other products compute the maximum of that and 0 (jaxlib 0.10.2, H100)."""

    def layer(x, w, b, v, y):
        before = x @ w + b
        after = jax.nn.relu(before)
        return before, after @ v, after.T @ y

    matrix, vector = of(2048, 2048), of(2048)
    first, second, third = captured(layer, matrix, matrix, vector, of(2048, 4096), matrix)
    assert first == ("dot_general", 16 + 4096 / MIB, 8)
    assert second == ("dot_general", 8 + 16, 16)
    assert third[1] == 16


def test_an_epilogue_makes_nothing_larger() -> None:
    def function(x, w):
        return jnp.exp((x @ w).astype(jnp.float32))

    names = [name for name, *_ in captured(function, of(1024, 2048), of(2048, 4096))]
    assert names == ["dot_general", "exponential"]
    # As in XLA's ``gemm_fusion_dot`` of the program "policy", in bf16.
    narrow = captured(lambda x, w: jnp.tanh(x @ w), of(1024, 2048), of(2048, 4096))
    assert [name for name, *_ in narrow] == ["dot_general"]
    wide = [of(1024, 2048, dtype=jnp.float32), of(2048, 4096, dtype=jnp.float32)]
    assert captured(lambda x, w: jnp.tanh(x @ w), *wide) == [("dot_general", 8 + 32, 16)]


def test_heads_are_turned_by_a_kernel_and_a_matrix_by_its_product() -> None:
    """As in XLA's attention: ``loop_transpose_fusion`` behind the product of the queries."""

    def heads(x, w):
        return (x @ w).reshape(8, 512, 16, 128).transpose(0, 2, 1, 3)

    names = [name for name, *_ in captured(heads, of(8, 512, 2048), of(2048, 2048))]
    assert names == ["dot_general", "transpose"]
    [turned] = captured(lambda x, w: (x @ w).T, of(4096, 2048), of(2048, 2048))
    assert turned[0] == "dot_general"


def test_the_epilogue_of_a_convolution_of_xla_has_nothing_that_cudnn_lacks() -> None:
    """The U-Net's last convolution is written before it is multiplied, by a scalar too."""
    for name, expected in (
        ("maximum", [("convolution", 2)]),
        ("multiply", [("convolution", 1), ("multiply", 1)]),
    ):
        g = Graph()
        item = WorkItem(Unit.MATMUL, "bf16", 2 * 64 * 32 * 16, (1, 64, 32, 16))
        work = Work((item,), ACTIVATION.bytes + WEIGHT.bytes, ACTIVATION.bytes)
        made = g.op("convolution", Role.CONTRACTION, (g.input(), g.input(WEIGHT)), work=work)
        assert as_xla(g.finish(g.elementwise(made, g.input(SCALAR), name=name))) == expected


def test_what_a_convolution_adds_per_image_is_written_and_a_bias_is_not() -> None:
    """XLA's diffusion block: ``wrapped_broadcast`` of [16, 64] to the image, which
    ``__cudnn$convBiasActivationForward`` reads; a bias per feature stays [64]."""

    def step(x, w, t):
        return conv(x, w) + t

    image, filter_ = of(16, 56, 56, 64), of(3, 3, 64, 64)
    size, small = 16 * 56 * 56 * 64 * 2 / MIB, (9 * 64 * 64 * 2) / MIB
    each = captured(step, image, filter_, of(16, 1, 1, 64))
    assert ("broadcast_in_dim", 16 * 64 * 2 / MIB, size) in each
    assert ("convolution", 2 * size + small, size) in each and len(each) == 3
    [_, alone] = captured(step, image, filter_, of(64))
    assert alone == ("convolution", size + small + 64 * 2 / MIB, size)


def test_a_gradient_of_experts_is_transposed_by_its_product() -> None:
    """``gemm_fusion_dot`` of [16, 768, 384] in XLA's switch: no transpose behind it."""

    def kernels_of(equation):
        return captured(lambda x, g: jnp.einsum(equation, x, g), of(16, 160, 384), of(16, 160, 768))

    product = ("dot_general", 16 * 160 * (384 + 768) * 2 / MIB, 16 * 768 * 384 * 2 / MIB)
    assert kernels_of("ech,ecf->ehf") == kernels_of("ech,ecf->efh") == [product]
    assert [name for name, *_ in kernels_of("ech,ecf->fhe")] == ["dot_general", "transpose"]


def test_a_minimum_and_its_place_are_found_among_what_their_kernel_computes() -> None:
    """``input_reduce_fusion`` of XLA's codebook: [8192, 2048] are read, never written."""

    def step(far, size):
        return (size - 2 * far).argmin(-1)

    [name, read, written], *rest = captured(
        step, of(8192, 2048, dtype=jnp.float32), of(2048, dtype=jnp.float32)
    )
    assert (name, read) == ("reduce", 64 + 2048 * 4 / MIB) and not rest
    assert written <= 8192 * 8 / MIB


def test_what_nothing_reads_is_no_kernel() -> None:
    g = Graph()
    whole = tensor_type((1024, 1024), "f32")
    g.move(g.constant(), SCALAR, whole, "broadcast_in_dim")
    g.elementwise(g.elementwise(g.input(), name="exponential"), name="tanh")
    assert as_xla(g.finish(g.elementwise(g.input(), name="negate"))) == [("negate", 1)]


def test_a_convolution_reads_its_residual_and_gives_a_gradient_alone() -> None:
    """XLA's residual block has ``wrapped_add`` behind ``__cudnn$convBackwardInput``; the gradient
    of a filter of one place is a forward convolution, with a residual in the bottleneck."""
    image = of(4, 16, 16, 32)

    def back(w, g, r):
        return jax.linear_transpose(lambda x: conv(x, w), image)(g)[0] + r

    def forward(w, x, r):
        return conv(x, w) + jnp.tanh(r)

    def names(function, filter_):
        return [name for name, *_ in captured(function, filter_, image, image)]

    assert names(forward, of(3, 3, 32, 32))[-2:] == ["tanh", "convolution"]
    assert names(back, of(3, 3, 32, 32))[-2:] == ["convolution", "add"]
    assert names(back, of(1, 1, 32, 32))[-1:] == ["convolution"]


def test_a_filter_is_turned_once_for_cudnn_and_its_gradient_back() -> None:
    """``wrapped_transpose`` of [3, 3, 32, 48] to [48, 3, 3, 32] and back; ``__cudnn$convForward``
    and ``__cudnn$convBackwardInput`` read the same one."""

    def step(x, w, g):
        y, pull = jax.vjp(conv, x, w)
        return y, *pull(g)

    image, gradient, filter_ = of(4, 16, 16, 32), of(4, 16, 16, 48), of(3, 3, 32, 48)
    graph = flint.capture(mesh=(1,))(step).capture(image, filter_, gradient).graph
    made = [(node.op, str(node.result_types[0])) for node in apply(graph, "xla")]
    turns = [shape for op, shape in made if op == "transpose"]
    assert turns == ["48x3x3x32xbf16", "3x3x32x48xbf16"]
    assert ("convolution", "48x3x3x32xbf16") in made and len(made) == 5


@pytest.mark.parametrize(
    ("function", "arguments", "expected"),
    [
        (  # two layers' matrices, a tanh between them
            lambda x, w: jnp.tanh((x @ w[0]).astype(F32)).astype(BF16) @ w[1],
            (of(2048, 512), of(2, 512, 512)),
            [(2621440, 2097152), (2097152, 2097152), (2621440, 2097152)],
        ),
        (  # one matrix, read by two products
            lambda x, y, w: (x @ w[0], y @ w[0].T),
            (of(2048, 512), of(4096, 512), of(2, 512, 512)),
            [(2621440, 2097152), (4718592, 4194304)],
        ),
        (  # a scale per feature, in a kernel of whole rows
            lambda x, s: (x.astype(F32) - x.astype(F32).mean(-1, keepdims=True)) * s[0],
            (of(2048, 512), of(2, 512, dtype=F32)),
            [(2099200, 4194304)],
        ),
    ],
)
def test_what_is_cut_out_of_a_parameter_is_read_where_it_is(function, arguments, expected) -> None:
    """Kernels and bytes of XLA's ``gemm_fusion_dot``s and ``triton_softmax``, with no slice of
    their own (jaxlib 0.10.2, H100)."""
    graph = apply(flint.capture(mesh=(1,))(function).capture(*arguments).graph, "xla")
    works = [node.work for node in graph if node.work.read or node.work.written]
    assert [(work.read, work.written) for work in works] == expected


@pytest.mark.parametrize("number", [1, of(512)])
def test_a_product_adds_a_constant_or_a_parameter_per_feature_though_others_read_the_sum(
    number,
) -> None:
    """XLA's ``gemm_fusion_dot_general`` reads what is added to, and ``loop_add_fusion`` writes the
    sum [4096, 512] (jaxlib 0.10.2, H100)."""

    def step(x, w, b=1):
        return (x + b) @ w, x + b

    rows, matrix = of(4096, 512), of(512, 512)
    arguments = (rows, matrix) if number == 1 else (rows, matrix, number)
    graph = apply(flint.capture(mesh=(1,))(step).capture(*arguments).graph, "xla")
    more = 0 if number == 1 else 512 * 2
    whole = 4096 * 512 * 2
    assert {node.op: (node.work.read - more, node.work.written) for node in graph} == {
        "add": (whole, whole), "dot_general": (whole + 512 * 512 * 2, whole)
    }  # fmt: skip
    computed = flint.capture(mesh=(1,))(lambda x, w, b: step(x, w, jnp.exp(b)))
    graph = apply(computed.capture(rows, matrix, of(512)).graph, "xla")
    [product] = [node for node in graph if node.op == "dot_general"]
    assert product.work.read == whole + 512 * 512 * 2


def test_a_convolution_multiplies_its_result_by_a_constant_before_it_adds_a_residual() -> None:
    """XLA's ``convBiasActivationForward`` of the super-resolution (jaxlib 0.10.2, H100): images
    [8, 64, 64, 64] that are read twice and written once, beside filters; a bias is 128 bytes of
    zeros there."""

    def step(x, w):
        return x + conv(jnp.tanh(x), w) * 0.1

    graph = captured(step, of(8, 64, 64, 64), of(3, 3, 64, 64))
    image, filters = 8 * 64 * 64 * 64 * 2 / MIB, 3 * 3 * 64 * 64 * 2 / MIB
    assert ("convolution", 2 * image + filters, image) in graph
    assert {name for name, *_ in graph} == {"tanh", "transpose", "convolution"}
