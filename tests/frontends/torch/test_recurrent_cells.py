"""A GPU's kernels for a step's cell and their derivatives, against what PyTorch composes."""

from __future__ import annotations

import pytest
import torch

from flint.frontends.torch.emission import emitted
from tests.frontends.torch.checking import assert_equal
from tests.frontends.torch.executing import execute
from tests.frontends.torch.lowering_cases.inputs import normal
from tests.frontends.torch.real_recording import by_hand

ROWS, HIDDEN = 3, 5


def run(name, tensors, results, *arguments):
    recording = by_hand(f"aten.{name}.default", tensors, results, *arguments)
    return execute(emitted(recording, strict=True).data, tensors)[0]


def gates_of(parts, biased):
    gates = [normal(ROWS, parts * HIDDEN).requires_grad_() for _ in range(2)]
    biases = [normal(parts * HIDDEN).requires_grad_() for _ in range(2)] if biased else [None] * 2
    return gates, biases


def plain(*tensors):
    return [tensor.detach() for tensor in tensors if tensor is not None]


@pytest.mark.parametrize("biased", [True, False])
def test_the_cell_of_a_gru_and_its_derivative(biased):
    (inputs, hidden), biases = gates_of(3, biased)
    state, grad = normal(ROWS, HIDDEN).requires_grad_(), normal(ROWS, HIDDEN)
    given = [
        gate if bias is None else gate + bias
        for gate, bias in zip((inputs, hidden), biases, strict=True)
    ]
    (ri, zi, ni), (rh, zh, nh) = (gates.chunk(3, 1) for gates in given)
    # torch.nn.GRU's formula, as its documentation has it.
    r, z = torch.sigmoid(ri + rh), torch.sigmoid(zi + zh)
    n = torch.tanh(ni + r * nh)
    out = (1 - z) * n + z * state
    out.backward(grad)
    workspace = torch.cat([r, z, n, state, nh], 1).detach()
    tensors = plain(inputs, hidden, state, *biases)
    places = [{0}, {1}, {2}, *([{3}, {4}] if biased else [])]
    made = run("_thnn_fused_gru_cell", tensors, [out.detach(), workspace], *places)
    assert_equal(made[0], out.detach())
    assert_equal(made[1], workspace)
    expected = [inputs.grad, hidden.grad, state.grad]
    of_biases = [bias.grad if biased else torch.zeros(0) for bias in biases]
    # The gradient of a bias is that of its gates, summed; the state's has no part of the gates.
    direct = grad * z.detach()
    results = [*expected[:2], direct, *of_biases]
    made = run("_thnn_fused_gru_cell_backward", [grad, workspace], results, {0}, {1}, biased)
    for ours, theirs in zip(made, results, strict=True):
        assert_equal(ours, theirs)
    assert torch.allclose(direct, state.grad)


@pytest.mark.parametrize("biased", [True, False])
@pytest.mark.parametrize("given", ["both", "state", "cell"])
def test_the_cell_of_an_lstm_and_its_derivative(biased, given):
    (inputs, hidden), biases = gates_of(4, biased)
    cell = normal(ROWS, HIDDEN).requires_grad_()
    weights = torch.eye(4 * HIDDEN)
    total = inputs + hidden + sum(bias for bias in biases if bias is not None)
    # The CPU's cell on inputs that are the gates: weights of one, a state of zeros.
    zeros = torch.zeros(ROWS, HIDDEN), torch.zeros(4 * HIDDEN, HIDDEN)
    out, after = torch.lstm_cell(total, (zeros[0], cell), weights, zeros[1])
    grads = [normal(ROWS, HIDDEN) if given in ("both", one) else None for one in ("state", "cell")]
    used = [(made, g) for made, g in zip((out, after), grads, strict=True) if g is not None]
    torch.autograd.backward(*map(list, zip(*used, strict=True)))
    put, kept, new, gate = total.detach().chunk(4, 1)
    workspace = torch.cat([put.sigmoid(), kept.sigmoid(), new.tanh(), gate.sigmoid()], 1)
    tensors = plain(inputs, hidden, cell, *biases)
    places = [{0}, {1}, {2}, *([{3}, {4}] if biased else [])]
    results = [out.detach(), after.detach(), workspace]
    for ours, theirs in zip(
        run("_thnn_fused_lstm_cell", tensors, results, *places), results, strict=True
    ):
        assert_equal(ours, theirs)
    tensors = plain(*grads, cell, after, workspace)
    some = len(tensors) - 3
    first = [None if g is None else {0 if g is grads[0] else some - 1} for g in grads]
    results = [inputs.grad, cell.grad, *([biases[0].grad] if biased else [])]
    rest = [{some}, {some + 1}, {some + 2}]
    made = run("_thnn_fused_lstm_cell_backward_impl", tensors, results, *first, *rest, biased)
    for ours, theirs in zip(made, results, strict=True):
        assert_equal(ours, theirs)
