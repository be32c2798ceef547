"""What a program draws on the host after it has made its model is what a run draws."""

from __future__ import annotations

import textwrap

import pytest

torch = pytest.importorskip("torch")

#: Sizes below 16, of no multiple of 16, and of several parts.
MODEL = """
    import torch
    torch.manual_seed(5)
    model = torch.nn.Sequential(
        torch.nn.Linear(3, 2), torch.nn.Linear(37, 11), torch.nn.Embedding(20_011, 113)
    )
    for weight in model.parameters():
        torch.nn.init.normal_(weight, 0.0, 0.02)
    torch.nn.init.trunc_normal_(model[1].weight, std=0.5, a=-0.5, b=1.0)
    torch.nn.init.trunc_normal_(model[0].weight, std=0.02)
    numbers = torch.rand(4).tolist()
"""


def test_the_host_draws_after_a_models_weights_what_it_draws_in_a_run(said):
    names = {}
    exec(textwrap.dedent(MODEL), names)
    assert said(f"{MODEL}\n    say(numbers)") == [names["numbers"]]
