"""Which of a GPU's kernels attention is recorded as."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from torch.nn.attention import SDPBackend, sdpa_kernel  # noqa: E402

from tests.frontends.torch.in_child import record_in_child  # noqa: E402


def names(step, setup):
    ops = record_in_child(step, setup, (1,), ("dp",)).ops
    return [op.name.removeprefix("aten.").split(".")[0] for op in ops]


#: With PyTorch's own switch for the order in which it asks for kernels.
ORDERS = pytest.mark.parametrize(("later", "kernel"), [("0", "cudnn"), ("1", "flash")])


def attentions(step, setup):
    return [name for name in names(step, setup) if "_attention" in name]


@ORDERS
def test_attention_is_one_kernel(monkeypatch, later, kernel):
    """On an H100, cuDNN's: its profiles of GPT-2, Llama, BERT and ViT name ``cudnn_..._sdpa_sm90``
    (docs/accuracy/one-gpu.md).
    """
    monkeypatch.setenv("TORCH_CUDNN_SDPA_DEPRIORITIZED", later)

    def setup(mesh):
        return (torch.ones(2, 4, 16, 8, device="cuda", dtype=torch.bfloat16, requires_grad=True),)

    def step(x):
        torch.nn.functional.scaled_dot_product_attention(x, x, x, is_causal=True).sum().backward()

    name = f"_scaled_dot_product_{kernel}_attention"
    assert attentions(step, setup) == [name, f"{name}_backward"]


@pytest.mark.parametrize(
    ("backends", "prioritised", "kernel"),
    [
        ("CUDNN_ATTENTION", False, "cudnn"),
        ("EFFICIENT_ATTENTION", False, "efficient"),
        # Without priorities, only what is allowed changes, in the device's order.
        ("EFFICIENT_ATTENTION FLASH_ATTENTION CUDNN_ATTENTION", False, "cudnn"),
        ("EFFICIENT_ATTENTION FLASH_ATTENTION CUDNN_ATTENTION", True, "efficient"),
        # PyTorch's own order of a CPU, asked for on a GPU.
        ("FLASH_ATTENTION EFFICIENT_ATTENTION MATH CUDNN_ATTENTION", True, "flash"),
        ("FLASH_ATTENTION EFFICIENT_ATTENTION MATH", False, "flash"),
    ],
)
def test_a_program_chooses_the_kernels_of_attention(backends, prioritised, kernel):
    """As ``sdpa_kernel`` is documented; afterwards the device's order is back."""
    chosen = [getattr(SDPBackend, name) for name in backends.split()]

    def setup(mesh):
        return (torch.ones(2, 4, 16, 8, device="cuda", dtype=torch.bfloat16),)

    def step(x):
        with sdpa_kernel(chosen, set_priority=prioritised):
            torch.nn.functional.scaled_dot_product_attention(x, x, x)
        torch.nn.functional.scaled_dot_product_attention(x, x, x)

    expected = [f"_scaled_dot_product_{name}_attention" for name in (kernel, "cudnn")]
    assert attentions(step, setup) == expected


@pytest.mark.parametrize("mask", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_attention_on_tensors_that_are_not_dense_is_products(dtype, mask):
    """As in a profile of an H100: T5's bias is a transposed table, a UNet's heads are columns."""

    def setup(mesh):
        x = torch.ones(2, 4, 16, 8, device="cuda", dtype=dtype)
        return (x, torch.ones(16, 16, 4, device="cuda", dtype=dtype))

    def step(x, table):
        if mask:
            bias = table.permute(2, 0, 1)[None]
            torch.nn.functional.scaled_dot_product_attention(x, x, x, attn_mask=bias)
        else:
            y = x.transpose(2, 3)
            torch.nn.functional.scaled_dot_product_attention(y, y, y)

    found = names(step, setup)
    assert not [name for name in found if name.endswith("_attention")]
    assert found.count("bmm") == 2


@pytest.mark.parametrize(("gradient", "kernel"), [(False, "cudnn"), (True, "efficient")])
def test_a_mask_with_a_gradient_is_not_for_cudnn(gradient, kernel):
    def setup(mesh):
        x = torch.ones(2, 4, 16, 8, device="cuda", dtype=torch.bfloat16, requires_grad=True)
        bias = torch.ones(16, 16, device="cuda", dtype=torch.bfloat16, requires_grad=gradient)
        return x, bias

    def step(x, bias):
        out = torch.nn.functional.scaled_dot_product_attention(x, x, x, attn_mask=bias)
        out.sum().backward()

    name = f"_scaled_dot_product_{kernel}_attention"
    assert attentions(step, setup) == [name, f"{name}_backward"]


@pytest.mark.parametrize(("later", "kernel"), [("0", "cudnn"), ("1", "efficient")])
def test_attention_to_values_of_smaller_heads_is_one_kernel_that_flash_attention_is_not(
    monkeypatch, later, kernel
):
    """As in latent attention; flash attention on a GPU takes heads of one size."""
    monkeypatch.setenv("TORCH_CUDNN_SDPA_DEPRIORITIZED", later)

    def setup(mesh):
        sizes = (24, 24, 16)
        return [torch.ones(2, 4, 8, n, device="cuda", dtype=torch.bfloat16) for n in sizes]

    def step(q, k, v):
        q.requires_grad_()
        out = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        assert out.shape == (2, 4, 8, 16)
        out.sum().backward()

    name = f"_scaled_dot_product_{kernel}_attention"
    assert attentions(step, setup) == [name, f"{name}_backward"]


def kernels_of(q, k, dtype="bfloat16", **options):
    """What runs for queries [batch, heads, length, size] and keys of these sizes."""

    def setup(mesh):
        made = [torch.ones(*sizes, device="cuda", dtype=getattr(torch, dtype)) for sizes in (q, k)]
        return [tensor.requires_grad_() for tensor in made]

    def step(query, key):
        attention = torch.nn.functional.scaled_dot_product_attention
        attention(query, key, key, **options).sum().backward()

    found = names(step, setup)
    fused = [name for name in found if "_attention" in name]
    return fused or found.count("bmm")


def either(name):
    kernel = f"_scaled_dot_product_{name}_attention"
    return [kernel, f"{kernel}_backward"]


#: Since 2.14 all kernels take groups (pytorch/pytorch#191085).
ANY_GROUPS = tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 14)
#: Two products forward, four backward.
PRODUCTS = 6


@pytest.mark.parametrize(
    ("keys", "dtype", "grouped", "kernel"),
    [
        # "try using unsqueeze and expand_to": heads and batches that are only broadcast.
        ((2, 1, 16, 8), "bfloat16", False, either("cudnn") if ANY_GROUPS else PRODUCTS),
        ((2, 1, 16, 8), "float32", False, either("efficient") if ANY_GROUPS else PRODUCTS),
        ((1, 4, 16, 8), "bfloat16", False, PRODUCTS),
        # Its documentation: "works only for Flash_attention and math kernel", and cuDNN's code.
        ((2, 2, 16, 8), "bfloat16", True, either("cudnn")),
        ((2, 2, 16, 8), "float32", True, either("efficient") if ANY_GROUPS else PRODUCTS),
    ],
)
def test_attention_with_fewer_heads_of_keys(keys, dtype, grouped, kernel):
    assert kernels_of((2, 4, 16, 8), keys, dtype, enable_gqa=grouped) == kernel


def test_causal_attention_to_more_keys_is_not_for_flash_attention(monkeypatch):
    """``check_flash_causal_non_square_seqlens``: its masks are aligned to the last key."""
    monkeypatch.setenv("TORCH_CUDNN_SDPA_DEPRIORITIZED", "1")
    q, k = (2, 4, 16, 8), (2, 4, 32, 8)
    assert kernels_of(q, k, is_causal=True) == either("efficient")


@pytest.mark.parametrize(("dtype", "size"), [("float32", 6), ("bfloat16", 12), ("float64", 8)])
def test_attention_of_odd_sizes_or_doubles_is_products(monkeypatch, dtype, size):
    """``check_head_dim_size_mem_efficient``: 16 bytes; flash attention pads, for halves."""
    monkeypatch.setenv("TORCH_CUDNN_SDPA_DEPRIORITIZED", "1")
    sizes = (2, 4, 16, size)
    expected = either("flash") if dtype == "bfloat16" else PRODUCTS
    assert kernels_of(sizes, sizes, dtype) == expected
