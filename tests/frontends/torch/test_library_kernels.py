"""Which kernels PyTorch takes by a tensor's layout.

What is expected follows from ``use_cudnn_depthwise`` and ``is_depthwise`` in PyTorch's
Convolution.cpp and from cuDNN's documentation of CUDNN_BATCHNORM_SPATIAL, and was seen in profiles
(``tests/cost/test_library_kernels.py``).
"""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from flint.cost.library_kernels import (  # noqa: E402
    ADDED,
    CHANNELS_FIRST,
    COLUMNS,
    DIRECT,
    LOOPED,
    PER_CHANNEL,
    RECURRENT,
    ROWS,
    SORTED,
    TRANSPOSING,
    TWICE,
    UNALIGNED,
    WITH_BIAS,
)
from flint.cost.row_kernels import (  # noqa: E402
    AGAIN,
    PRODUCT_FIRST,
    REGISTERS,
    ROW_GRADIENT,
    SHARED,
    TABLE_GRADIENT,
)
from flint.frontends.torch.emission import library_kernels  # noqa: E402
from tests.frontends.torch.in_child import record_in_child  # noqa: E402


def taken(module, shape, last=False, half=False, evaluated=False):
    """What the kernels of a step with one module do, by op."""

    def given(mesh):
        made = module().to(mesh.device_type)
        data = torch.ones(shape, device=mesh.device_type, requires_grad=True)
        if evaluated:
            made = made.eval()
        if half:
            made, data = made.half(), data.detach().half().requires_grad_()
        if last:
            made = made.to(memory_format=torch.channels_last)
            data = data.detach().contiguous(memory_format=torch.channels_last).requires_grad_()
        return made, data

    ops = record_in_child(lambda made, data: made(data).sum().backward(), given, (1,), ("dp",)).ops
    found = {op.name.split(".")[1]: library_kernels.does(op) for op in ops}
    return {name: kind for name, kind in found.items() if kind not in ("", *PLAIN)}


#: Of elementwise ops, copies and sums.
PLAIN = (LOOPED, TRANSPOSING, ROWS, COLUMNS)


def depthwise(bias=True):
    return torch.nn.Conv2d(8, 16, 3, padding=1, groups=8, bias=bias)


def norm():
    return torch.nn.BatchNorm2d(8)


IMAGES = (2, 8, 6, 6)


def test_a_depthwise_convolution_of_f32_is_pytorchs_own_kernel():
    expected = {"convolution": DIRECT, "convolution_backward": DIRECT}
    assert taken(depthwise, IMAGES) == expected


@pytest.mark.parametrize(
    ("module", "options"),
    [
        (lambda: depthwise(False), {"last": True}),
        (lambda: depthwise(False), {"half": True}),
        (lambda: torch.nn.Conv2d(8, 16, 3, bias=False), {"last": True}),
        (lambda: torch.nn.Conv2d(8, 16, 1, bias=False), {}),
        (lambda: torch.nn.ConvTranspose2d(8, 8, 3, groups=8, bias=False), {}),
    ],
)
def test_other_convolutions_are_cudnns(module, options):
    assert taken(module, IMAGES, **options) == {}


@pytest.mark.parametrize(
    ("module", "options", "kind"),
    [
        (lambda: torch.nn.Conv2d(8, 16, 3), {}, CHANNELS_FIRST),
        (lambda: torch.nn.Conv2d(8, 16, 3, bias=False), {"half": True}, CHANNELS_FIRST),
        (lambda: torch.nn.Conv2d(8, 16, 1, stride=2, bias=False), {}, CHANNELS_FIRST),
        (lambda: torch.nn.Conv2d(8, 16, 3), {"last": True}, WITH_BIAS),
        (lambda: torch.nn.Conv2d(8, 16, 1), {}, WITH_BIAS),
    ],
)
def test_convolutions_with_channels_first_or_a_bias_have_further_kernels(module, options, kind):
    """Profiles of a UNet and of DeepLab on an H100: three ``nchwToNhwc`` or ``nhwcToNchw`` forward
    and six backward, none around 1 x 1; an ``add_`` and a ``sum`` for each bias."""
    expected = {"convolution": kind, "convolution_backward": kind}
    assert taken(module, IMAGES, **options) == expected


def test_elementwise_kernels_take_one_element_where_tensors_do_not_lie_alike():
    def given(mesh):
        x = torch.ones(4, 6, 8, device=mesh.device_type)
        return x, x.half()

    def step(x, half):
        return [
            x + x, x * x[0], x + half, half.float(), x.half(), x.transpose(0, 1).contiguous(),
            x.transpose(1, 2).contiguous(), x.sum(-1), x.sum(0), x[:, :, :4] * 2, x.sum(),
            x[0, 0, 0].sum(-1),
        ]  # fmt: skip

    ops = record_in_child(step, given, (1,), ("dp",)).ops
    found = [library_kernels.does(op) for op in ops if op.name.startswith("aten.")]
    made = ["", LOOPED, LOOPED, LOOPED, "", LOOPED, TRANSPOSING, ROWS, COLUMNS, LOOPED, ROWS, ROWS]
    assert found[-len(made) :] == made


def test_rows_are_added_at_indices_element_by_element():
    def given(mesh):
        return torch.ones(6, 8, device=mesh.device_type), torch.arange(4, device=mesh.device_type)

    def step(x, index):
        return x.index_add(0, index, x[:4]), x.index_add_(0, index, x[2:])

    ops = record_in_child(step, given, (1,), ("dp",)).ops
    assert [library_kernels.does(op) for op in ops if "index_add" in op.name] == [ADDED, ADDED]


def test_whole_rows_are_added_by_scatter_add_as_by_index_add_and_by_gradients_of_indexing_sorted():
    def given(mesh):
        return torch.ones(6, 8, device=mesh.device_type, requires_grad=True), torch.arange(
            4, device=mesh.device_type
        )

    def step(x, index):
        whole = index[:, None].expand(-1, 8)
        (x[index] + torch.gather(x, 0, whole)).sum().backward()
        return x.detach().scatter_add(0, whole, x.detach()[:4])

    ops = record_in_child(step, given, (1,), ("dp",)).ops
    kinds = {op.name.split(".")[1]: library_kernels.does(op) for op in ops}
    assert kinds["scatter_add_"] == kinds["scatter_add"] == ADDED
    assert kinds["_index_put_impl_"] == SORTED


def test_a_trained_batch_norm_of_channels_first_has_a_block_per_channel():
    expected = {"native_batch_norm": PER_CHANNEL, "native_batch_norm_backward": PER_CHANNEL}
    assert taken(norm, IMAGES) == expected


def test_channels_last_and_evaluation_have_other_kernels():
    expected = {"native_batch_norm": TWICE, "native_batch_norm_backward": TWICE}
    assert taken(norm, IMAGES, last=True) == expected
    assert "native_batch_norm" not in taken(norm, IMAGES, evaluated=True)
    assert taken(lambda: torch.nn.BatchNorm1d(8), (4, 8)) == {}


def test_a_convolution_keeps_channels_last():
    """So that the norm behind it has the kernel of channels last (a profile of ResNet-50 on an H100
    names ``cudnn::batchnorm_fwtr_nhwc_semiPersist``).
    """

    def layers():
        return torch.nn.Sequential(torch.nn.Conv2d(8, 8, 3, bias=False), norm())

    found = taken(layers, IMAGES, last=True)
    assert found == {"native_batch_norm": TWICE, "native_batch_norm_backward": TWICE}
    assert set(taken(layers, IMAGES).values()) == {PER_CHANNEL, CHANNELS_FIRST}


def test_backward_passes_of_norms_with_weights_have_two_kernels():
    both = {"native_layer_norm": AGAIN, "native_layer_norm_backward": ROW_GRADIENT}
    assert taken(lambda: torch.nn.LayerNorm(6), IMAGES) == both
    plain = torch.nn.LayerNorm(6, elementwise_affine=False)
    assert taken(lambda: plain, IMAGES) == {"native_layer_norm": AGAIN}
    both = {"native_group_norm": TWICE, "native_group_norm_backward": TWICE}
    assert taken(lambda: torch.nn.GroupNorm(2, 8), IMAGES) == both


@pytest.mark.parametrize(
    ("length", "half", "forward"),
    [
        (1024, False, REGISTERS),
        (1024, True, REGISTERS),
        (4096, True, SHARED),
        (12_000, False, SHARED),
        (12_001, False, AGAIN),  # is not aligned
        (24_000, True, SHARED),
        (32_000, True, AGAIN),
    ],
)
def test_a_softmax_is_where_its_rows_fit(length, half, forward):
    """``host_softmax`` of SoftMax.cu, with 48 KiB of shared memory."""
    last = taken(lambda: torch.nn.Softmax(-1), (2, length), half=half)
    assert last == {"_softmax": forward, "_softmax_backward_data": PRODUCT_FIRST}
    logs = taken(lambda: torch.nn.LogSoftmax(-1), (2, length), half=half)
    long = {"_log_softmax_backward_data": AGAIN} if length > 1024 else {}
    assert logs == {"_log_softmax": forward, **long}


def test_a_softmax_over_another_dim_is_of_no_rows():
    assert taken(lambda: torch.nn.Softmax(0), (2, 4096)) == {}


#: A linear layer's product, and those of its gradients.
PRODUCTS = ["addmm", "mm", "mm"]


@pytest.mark.parametrize(
    ("width", "half", "unaligned"),
    [
        (24, True, []),
        (30, True, PRODUCTS),
        (30, False, PRODUCTS),
        (28, False, []),
    ],
)
def test_products_with_rows_that_do_not_begin_at_16_bytes_are_known(width, half, unaligned):
    """An output layer of ``width`` words: its scores, and gradients, which read as wide rows."""

    def given(mesh):
        made = torch.nn.Linear(16, width).to(mesh.device_type)
        data = torch.ones(5, 16, device=mesh.device_type, requires_grad=True)
        return (made.half(), data.detach().half().requires_grad_()) if half else (made, data)

    def step(made, data):
        made(data).square().sum().backward()

    ops = record_in_child(step, given, (1,), ("dp",)).ops
    found = [op.name.split(".")[1] for op in ops if library_kernels.does(op) == UNALIGNED]
    assert sorted(found) == unaligned


def test_the_gradient_of_a_table_is_known():
    class Sum(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.table = torch.nn.Embedding(16, 8)

        def forward(self, data):
            return self.table(data.long())

    assert taken(Sum, (4096,)) == {"embedding_dense_backward": TABLE_GRADIENT}


def test_the_steps_of_a_recurrent_layer_are_known_as_such():
    class Last(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.head = torch.nn.GRU(8, 8), torch.nn.Linear(8, 4)

        def forward(self, x):
            return self.head(self.layer(x)[0])

    found = taken(Last, (3, 2, 8))
    assert set(found.values()) == {RECURRENT}
    assert {"_thnn_fused_gru_cell", "_thnn_fused_gru_cell_backward"} <= set(found)
