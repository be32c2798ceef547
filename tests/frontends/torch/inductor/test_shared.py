"""Graphs that one rank has lowered are not lowered again for another."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from flint.errors import FlintError
from tests.frontends.torch.in_child import record_in_child


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(64), nn.Linear(64, 256), nn.Linear(256, 64)

    def forward(self, x):
        return x + self.down(nn.functional.gelu(self.up(self.norm(x))))


def stage(blocks):
    def setup(mesh):
        with torch.device("cuda"):
            model = nn.Sequential(*(Block() for _ in range(blocks)))
            x = torch.empty(32, 64)
        for part in model:
            part.compile()
        return model, x

    return setup


def train(model, x):
    model(x).square().mean().backward()


def refusing(setup):
    """The same, with an Inductor that lowers nothing: code is left eager, and that is reported."""

    def without_lowering(mesh):
        from torch._inductor.graph import GraphLowering

        def refuse(*_, **__):
            raise FlintError("a graph is lowered again")

        GraphLowering.run = refuse
        return setup(mesh)

    return without_lowering


def recorded(setup, folder):
    return record_in_child(train, setup, (1,), ("dp",), compile_for="h100-sxm", lowered=folder)


@pytest.fixture(scope="module")
def first(tmp_path_factory):
    """The stage of one rank, and the folder with what it has lowered."""
    folder = tmp_path_factory.mktemp("lowered")
    return recorded(stage(2), folder), folder


def test_a_longer_stage_is_recorded_without_lowering_a_graph(first):
    # The first block has graphs of its own: its input has no gradient.
    found = recorded(refusing(stage(3)), first[1])
    assert not found.warnings
    products = [op.name for op in found.ops if op.name.split(".")[1] in ("mm", "addmm")]
    assert len(products) == 3 * (2 + 4)  # a block's two products, and two gradients of each


@pytest.mark.thorough
def test_without_the_folder_it_would_lower_them(first, tmp_path):
    found = recorded(refusing(stage(3)), tmp_path)
    assert any("a graph is lowered again" in text for text in found.warnings)


@pytest.mark.thorough
def test_what_was_lowered_before_records_the_same(first):
    assert recorded(refusing(stage(2)), first[1]).ops == first[0].ops
