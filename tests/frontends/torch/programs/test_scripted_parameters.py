"""Parameters of TorchScript's modules, which C++ holds."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

import flint.frontends.torch.programs.rank  # noqa: F401  # here, not in every child


def test_a_scripted_module_that_moves_keeps_its_parameters(said):
    """As an optimizer that was made before knows them; a buffer moves, too."""
    assert said("""
        class Scaled(torch.jit.ScriptModule):
            def __init__(self):
                super().__init__()
                self.weight = torch.nn.Parameter(torch.ones(4096, 64))
                self.register_buffer("ones", torch.ones(64))
            @torch.jit.script_method
            def forward(self, x):
                return x @ self.weight + self.ones
        model = torch.nn.Sequential(Scaled(), torch.nn.Linear(64, 8))
        before = list(model.parameters())
        model.to(torch.bfloat16).to("cuda")
        out = model(torch.ones(2, 4096, device="cuda", dtype=torch.bfloat16))
        out.sum().backward()
        same = [one is other for one, other in zip(before, model.parameters())]
        graded = [item.grad is not None and item.is_cuda for item in before]
        say(same, graded, list(out.shape), model[0].ones.is_cuda)
    """) == [[True] * 3, [True] * 3, [2, 8], True]
