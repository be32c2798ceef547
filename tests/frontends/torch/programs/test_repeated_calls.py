"""Models that are called again and again without gradients."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")


def test_evaluations_are_called_twice_and_answered_afterwards(said):
    found = said("""
        calls = []
        class Model(torch.nn.Module):
            def forward(self, x):
                calls.append(1)
                return x + 1
        model = Model().eval()
        with torch.no_grad():
            results = [model(torch.zeros(2, device="cuda")) for _ in range(10)]
        say(len(calls), [list(item.shape) for item in results] == [[2]] * 10)
    """)
    assert found[1] and 2 <= found[0] < 10


def test_a_frozen_models_calls_are_answered_with_gradients_switched_on_too(said):
    # A copy that is sampled from outside of no_grad (StyleGAN3's averaged generator).
    assert said(
        """
        calls = []
        class Net(torch.nn.Linear):
            def forward(self, x):
                calls.append(x.shape)
                return super().forward(x)
        net = Net(4, 2).cuda().eval()
        trained = [net(torch.ones(8, 4, device="cuda")) for _ in range(5)]
        frozen = net.requires_grad_(False)
        sampled = [frozen(torch.ones(8, 4, device="cuda")) for _ in range(5)]
        say(len(calls), trained[-1].requires_grad, sampled[-1].requires_grad)
        """
    ) == [5 + 2, True, False]
