"""Stand-ins for Transformer Engine's kernels compute what PyTorch computes."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")
import torch
from torch.nn import functional

from flint.frontends.torch.programs.transformer_engine import (
    activations,
    enums,
    norms,
    products,
    rotary,
    routing,
    softmax,
)

#: Arguments that the package's wrapper of products passes if nothing else is asked for.
ASKED = {
    "out_dtype": None, "out": None, "accumulate": False, "bias": None, "grad": False,
    "gelu": False, "gelu_in": None, "quantization_params": None,
}  # fmt: skip

#: Name of an activation -> PyTorch's function of it.
PLAIN = {
    "gelu": lambda x: functional.gelu(x, approximate="tanh"),
    "qgelu": lambda x: x * torch.sigmoid(1.702 * x),
    "relu": torch.relu,
    "srelu": lambda x: torch.relu(x) ** 2,
    "silu": functional.silu,
}
GATED = {
    "geglu": PLAIN["gelu"], "qgeglu": PLAIN["qgelu"], "reglu": torch.relu,
    "sreglu": PLAIN["srelu"], "swiglu": functional.silu, "glu": torch.sigmoid,
}  # fmt: skip


@pytest.fixture(autouse=True)
def _same_numbers():
    torch.manual_seed(0)


def gradients(function, grad, *inputs):
    """What autograd finds for the inputs."""
    leaves = [item.detach().requires_grad_() for item in inputs]
    function(*leaves).backward(grad)
    return [leaf.grad for leaf in leaves]


def close(found, wanted):
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)


def test_layer_norm_and_its_gradients_are_pytorchs():
    x, weight, bias, grad = (torch.randn(shape) for shape in ((6, 8), 8, 8, (6, 8)))
    out, mean, rsigma = norms.layernorm_fwd(x, weight, bias, 1e-5, None, None, None, 0, False)
    close(out, functional.layer_norm(x, (8,), weight, bias))
    found = norms.layernorm_bwd(grad, x, mean, rsigma, weight, 0, False)
    norm = lambda *items: functional.layer_norm(items[0], (8,), *items[1:])  # noqa: E731
    for each, wanted in zip(found, gradients(norm, grad, x, weight, bias), strict=True):
        close(each, wanted)


@pytest.mark.parametrize("centered", [False, True])
def test_rms_norm_and_its_gradients_are_pytorchs(centered):
    x, weight, grad = torch.randn(6, 8), torch.randn(8), torch.randn(6, 8)
    norm = lambda x, w: functional.rms_norm(x, (8,), w + 1 if centered else w, 1e-5)  # noqa: E731
    out, _, rsigma = norms.rmsnorm_fwd(x, weight, 1e-5, None, None, None, 0, centered)
    close(out, norm(x, weight))
    found = norms.rmsnorm_bwd(grad, x, rsigma, weight, 0, centered)
    wanted = gradients(norm, grad, x, weight)
    for each, one in zip(found, wanted, strict=True):
        close(each, one)
    added = norms.rmsnorm_bwd_add(grad, x, x, rsigma, weight, 0, centered)[0]
    close(added, wanted[0] + x)


@pytest.mark.parametrize("name", PLAIN)
def test_an_activation_and_its_gradient_are_pytorchs(name):
    x, grad = torch.randn(4, 8), torch.randn(4, 8)
    close(getattr(activations, name)(x, None), PLAIN[name](x))
    wanted = gradients(PLAIN[name], grad, x)[0]
    close(getattr(activations, f"d{name}")(grad, x, None), wanted)
    bias, both = getattr(activations, f"dbias_d{name}")(grad, x, None)
    close(both, wanted)
    close(bias, wanted.sum(0))


@pytest.mark.parametrize("name", GATED)
def test_a_gated_activation_and_its_gradient_are_pytorchs(name):
    x, grad = torch.randn(4, 8), torch.randn(4, 4)
    gated = lambda x: GATED[name](x[:, :4]) * x[:, 4:]  # noqa: E731
    close(getattr(activations, name)(x, None), gated(x))
    close(getattr(activations, f"d{name}")(grad, x, None), gradients(gated, grad, x)[0])


def test_the_gradient_of_scores_is_pytorchs():
    scores, grad = torch.randn(2, 3, 4, 4), torch.randn(2, 3, 4, 4)
    out = softmax.scaled_softmax_forward(scores, 0.5)
    scaled = lambda x: torch.softmax(x * 0.5, -1)  # noqa: E731
    close(out, scaled(scores))
    found = softmax.scaled_softmax_backward(grad, out, 0.5)
    close(found, gradients(scaled, grad, scores)[0])


def turned(t, angles):
    """Rotary embeddings as their paper has them: pairs of elements as complex numbers."""
    first, second = t.chunk(2, -1)
    made = torch.complex(first, second) * torch.polar(torch.ones_like(angles), angles)
    return torch.cat((made.real, made.imag), -1)


@pytest.mark.parametrize(
    ("form", "shape"), [("NVTE_SBHD", (5, 2, 3, 8)), ("NVTE_BSHD", (2, 5, 3, 8))]
)
def test_positions_are_turns_of_pairs(form, shape):
    t, angles = torch.randn(shape), torch.randn(5, 1, 1, 4)
    both = torch.cat((angles, angles), -1)
    number = getattr(enums.NVTE_QKV_Format, form)
    by_position = angles if form == "NVTE_SBHD" else angles.transpose(0, 1)
    out = rotary.fused_rope_forward(t, both, None, number, False)
    close(out, turned(t, by_position))
    close(rotary.fused_rope_backward(out, both, None, number, False), t)  # turned back


@pytest.mark.parametrize(
    ("layout", "left", "right", "wanted"),
    [
        ("TN", (6, 4), (2, 3, 4), lambda a, b: b @ a.T),
        ("NN", (6, 4), (2, 3, 6), lambda a, b: b @ a),
        ("NT", (10, 4), (10, 6), lambda a, b: b.T @ a),
    ],
)
def test_a_product_is_that_of_its_layout(layout, left, right, wanted):
    a, b = torch.randn(left), torch.randn(right)
    made, *_ = products.general_gemm({**ASKED, "A": a, "B": b, "layout": layout})
    close(made, wanted(a, b))


def test_gradients_of_weights_are_added_to_a_buffer():
    x, grad, buffer = torch.randn(10, 4), torch.randn(10, 6), torch.ones(6, 4)
    given = {**ASKED, "A": x, "B": grad, "layout": "NT", "out": buffer, "accumulate": True}
    made, *_ = products.general_gemm({**given, "grad": True})
    assert made is buffer
    close(buffer, 1 + grad.T @ x)


def test_the_gradient_of_a_bias_comes_with_that_of_its_weight():
    x, grad = torch.randn(10, 4), torch.randn(10, 6)
    given = {**ASKED, "A": x, "B": grad, "layout": "NT", "bias": torch.zeros(6), "grad": True}
    made, bias, *_ = products.general_gemm(given)
    close(made, grad.T @ x)
    close(bias, grad.sum(0))


def test_gelu_is_applied_by_the_product_and_undone_by_its_gradient():
    weight, x, bias = torch.randn(6, 4), torch.randn(3, 4), torch.randn(6)
    given = {**ASKED, "A": weight, "B": x, "layout": "TN", "gelu": True, "bias": bias}
    made, _, before, _ = products.general_gemm(given)
    close(before, functional.linear(x, weight, bias))
    close(made, functional.gelu(before, approximate="tanh"))
    grad, second = torch.randn(3, 5), torch.randn(5, 6)
    back = {**ASKED, "A": second, "B": grad, "layout": "NN", "gelu": True, "grad": True}
    found, *_ = products.general_gemm({**back, "gelu_in": before})
    gelu = lambda x: functional.gelu(x, approximate="tanh")  # noqa: E731
    close(found, gradients(gelu, grad @ second, before)[0])


def test_each_group_has_its_own_product():
    weights, x = torch.randn(3, 6, 4), torch.randn(7, 4)
    out = torch.empty(7, 6)
    given = {
        **ASKED, "A": list(weights), "B": list(x.split((2, 0, 5))), "layout": "TN", "out": [out],
        "single_output": True, "m_splits": [2, 0, 5], "use_bias": False,
    }  # fmt: skip
    products.general_grouped_gemm(given)
    close(out, torch.cat((x[:2] @ weights[0].T, x[2:] @ weights[2].T)))


@pytest.mark.parametrize("pre", [False, True])
def test_a_token_goes_to_its_best_experts_with_weights_that_add_up(pre):
    logits = torch.randn(5, 8)
    asked = {
        "logits": logits, "topk": 2, "use_pre_softmax": pre, "num_groups": None,
        "group_topk": None, "scaling_factor": None, "score_function": "softmax",
        "expert_bias": None,
    }  # fmt: skip
    probs, chosen = routing.fused_topk_with_score_function(asked)
    best = logits.topk(2, -1)
    assert torch.equal(chosen, torch.zeros(5, 8).scatter(-1, best.indices, 1).bool())
    wanted = logits.softmax(-1).gather(-1, best.indices) if pre else best.values.softmax(-1)
    close(probs.gather(-1, best.indices), wanted)


def test_tokens_spread_evenly_have_the_loss_of_their_coefficient():
    # Switch Transformers, equation 4: experts * sum(share of tokens * mean score) is 1 if both are
    # even; 12 tokens of 4 experts, one each.
    even = {
        "probs": torch.full((12, 4), 0.25), "tokens_per_expert": torch.full((4,), 3.0),
        "total_num_tokens": 12, "num_experts": 4, "topk": 1, "coeff": 0.01,
    }  # fmt: skip
    assert float(routing.fused_moe_aux_loss(even)) == pytest.approx(0.01)
